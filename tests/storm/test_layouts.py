"""Each layout as a whole storm: four real ranks save, restore, verify every byte, and leave nothing behind."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.mpi

TINY = """
[storm]
rounds = 1
allow = ["tmpfs", "warm"]
[model]
architecture = "llama"
layers = 2
hidden = 64
ffn = 160
heads = 4
kv_heads = 2
vocab = 500
"""


@pytest.mark.parametrize(
    ("layout", "parallel"),
    [
        ('name = "dcp"\nthreads = 2', ""),
        ('name = "dcp"\nfile_per_tensor = true', ""),
        ('name = "dcp"\noverwrite = true', 'sharding = "hsdp"\nreplicas = 2'),
        ('name = "dcp"', 'sharding = "ddp"'),
        ('name = "file_per_rank"', "tensor = 2\npipeline = 2"),
        ('name = "deepspeed"', 'sharding = "zero1"\ntensor = 2'),
        ('name = "deepspeed"', 'sharding = "zero3"'),
        ('name = "fsdp_full"', ""),
        ('name = "megatron_dist"', 'sharding = "distributed_optimizer"\ntensor = 2'),
        ('name = "megatron_legacy"', 'sharding = "distributed_optimizer"\ntensor = 2\npipeline = 2'),
        ('name = "safetensors"\nshard_size = "100KiB"', ""),
        ('name = "safetensors"\nwriter = "0.7"\nread_mode = "pread"', ""),
        ('name = "mlperf"', 'sharding = "zero3"'),
        ('name = "file_per_node"\nranks_per_node = 2\nwriters = "all"', ""),
        ('name = "shared_file"\npattern = "strided"\nblock_size = "64KiB"', ""),
        ('name = "orbax"', ""),
    ],
    ids=lambda text: text.replace("\n", ", ").replace('"', "").replace("name = ", "") or "-",
)
def test_every_layout_makes_a_storm(storm, place, layout, parallel):
    """No error, every byte that is read is what was written, and the directory is gone at the end."""
    ended = storm(ranks=4, job=f"{TINY}[layout]\n{layout}\n[parallel]\n{parallel}\n")
    assert ended.code in (0, 1), ended.said
    assert ended.data["receipts"]["verified"]["state"] == "all"
    for phase in ended.data["phases"]:
        assert (phase["error_count"], phase["mismatch_count"]) == (0, 0), phase["failures"]
        assert phase["bytes"] == phase["planned_bytes"]
    assert {"job.toml", "results"} == set(os.listdir(place))
