"""A rank dies in the middle of a save: from what would each layout's framework go on, and is that complete?"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import clean_environment
from tests.storm.victims import victim

pytestmark = pytest.mark.mpi

_JOB = """
[storm]
rounds = 2
keep = 2
timeout = "2s"
allow = ["tmpfs", "warm"]
[io]
engine = "posix"
[model]
architecture = "llama"
layers = 2
hidden = 64
ffn = 160
heads = 4
kv_heads = 2
vocab = 500
"""
_ZERO1 = '[parallel]\nsharding = "zero1"\n'
_MEGATRON = '[parallel]\nsharding = "distributed_optimizer"\n'


def _fault(rank, op, rest="", ends="kill"):
    return f'[[fault]]\nranks = [{rank}]\nphase = "save"\nround = 2\nop = "{op}"\n{ends} = true\n{rest}\n'


def _recovered(ended):
    """The recovery of a storm that was not simply lost."""
    assert ended.code in (0, 1), ended.said
    assert ended.data["ended"] == "recovered"
    assert "Traceback" not in ended.said
    return ended.data["environment"]["recovery"], [r.split(":")[0] for r in ended.data["verdict"]["reasons"]]


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        ('name = "dcp"', _fault(1, "fsync")),
        ('name = "megatron_legacy"\n' + _MEGATRON, _fault(0, "close")),
        ('name = "megatron_dist"\n' + _MEGATRON, _fault(1, "fsync")),
        ('name = "safetensors"\nshard_size = "100KiB"', _fault(0, "write", "nth = 3")),
        ('name = "orbax"', _fault(1, "write")),
    ],
    ids=["dcp", "megatron_legacy", "megatron_dist", "safetensors", "orbax"],
)
def test_a_pointer_written_last_leads_to_the_newest_complete_checkpoint(storm, place, layout, fault):
    """The torn directory is there, its pointer is not: training goes on from the one before, and nothing is said."""
    ended = storm(job=f"{_JOB}{fault}[layout]\n{layout}\n")
    told, reasons = _recovered(ended)
    assert told["chosen"] == told["found"] == told["newest_complete"] == {"round": 1, "step": "step-0"}
    assert told["names_torn"] is False
    assert {one["why"]: bool(one["torn_because"]) for one in told["attempts"]} == {"chosen": False, "audit": True}
    assert not {"TORN", "NO POINTER", "NOTHING LEFT", "STALE", "NOT FOUND"} & set(reasons)
    assert 0 < told["start_seconds"] < told["seconds"]
    assert told["counted_from"] == "the loss"
    assert {"job.toml", "results"} == set(os.listdir(place))
    assert not list((place / "results").glob("*.partial"))


def test_deepspeed_names_a_torn_checkpoint(storm):
    """`latest` is written before the last barrier: it names a checkpoint that another rank never finished."""
    slow = _fault(1, "open", 'file = "*optim*"\ndelay = "2s"')
    job = _JOB.replace('timeout = "2s"', 'timeout = "10s"')
    ended = storm(job=f'{job}{slow}[layout]\nname = "deepspeed"\n{_ZERO1}')
    told, reasons = _recovered(ended)
    assert ended.code == 1
    assert told["chosen"] == {"round": 2, "step": "step-1"}
    assert told["names_torn"] is True
    assert told["found"] == told["newest_complete"] == {"round": 1, "step": "step-0"}
    assert "TORN" in reasons


def test_dcp_overwrite_in_place_destroys_the_only_checkpoint(storm):
    """The old `.metadata` still stands while the files that it names are written over: torn, and nothing is left."""
    job = f'{_JOB}{_fault(1, "fsync")}[layout]\nname = "dcp"\noverwrite = true\n'
    ended = storm(job=job)
    told, reasons = _recovered(ended)
    assert ended.code == 1
    assert told["chosen"] == {"round": 1, "step": "step-0"}
    assert told["names_torn"] is True
    assert told["found"] == told["newest_complete"] == {}
    assert {"TORN", "NOTHING LEFT"} <= set(reasons)


@pytest.mark.parametrize(
    ("layout", "fault"),
    [
        ('name = "fsdp_full"', _fault(0, "close")),
        ('name = "file_per_rank"', _fault(0, "write", "nth = 2")),
        ('name = "file_per_node"\nranks_per_node = 2\nwriters = "all"', _fault(1, "write", "nth = 2")),
        ('name = "shared_file"\nblock_size = "16KiB"', _fault(1, "write", "nth = 2")),
        ('name = "mlperf"\n[parallel]\nsharding = "zero3"', _fault(1, "close")),
    ],
    ids=["fsdp_full", "file_per_rank", "file_per_node", "shared_file", "mlperf"],
)
def test_without_a_pointer_a_torn_directory_looks_like_any_other(storm, layout, fault):
    """Nothing tells which directory is complete: the newest is taken, and it is torn."""
    ended = storm(job=f"{_JOB}{fault}[layout]\n{layout}\n")
    told, reasons = _recovered(ended)
    assert told["pointer"] == {}
    assert ended.code == 1
    assert "NO POINTER" in reasons
    assert told["chosen"] == {"round": 2, "step": "step-1"}
    assert told["found"] == {"round": 1, "step": "step-0"}


def test_a_stopped_rank_is_lost_too(storm):
    """stop = true: the time until training could go on begins when the rank stopped, not when it was noticed."""
    ended = storm(job=f'{_JOB}{_fault(1, "fsync", ends="stop")}[layout]\nname = "dcp"\n')
    told, _ = _recovered(ended)
    assert told["found"] == {"round": 1, "step": "step-0"}
    assert told["seconds"] > 2
    assert "made no progress" in ended.data["ended_because"]


def test_a_lost_storm_is_recovered_by_a_new_world(place, ckptstorm, mpiexec):
    """Under a foreign launcher the ranks are started again by hand; an unplanted loss keeps its exit code."""
    job = _JOB + '[[fault]]\nranks = [1]\nphase = "save"\nround = 2\nop = "fsync"\ndelay = "50s"\n'
    with victim(place, job.replace('"2s"', '"100s"'), ranks=2, launcher=(mpiexec, "-n", "2")) as storm:
        storm.until("ckptstorm-data/step-1/__1_0.distcp")
        storm.rank(1).kill()
        storm.ends()
    words = [mpiexec, "-n", "3", sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "recover", "ckptstorm-data"]

    def start(count):
        words[2] = str(count)
        return subprocess.run(
            words, capture_output=True, text=True, timeout=100, env=clean_environment(), cwd=place, check=False
        )

    refused = start(3)
    assert refused.returncode == 2
    assert "had 2 ranks, and 3 were started" in refused.stderr
    ended = start(2)
    assert ended.returncode == 4, ended.stderr
    assert "went on    from step-0 (round 1)" in ended.stdout
    assert "from the start of the recovery" in " ".join(ended.stdout.split())
    assert not (place / "ckptstorm-data").exists()
    again = ckptstorm("recover", "ckptstorm-data")
    assert again.code == 2
    assert "no such directory" in again.err
