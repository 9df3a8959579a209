"""The torch engine: what PyTorch writes is what the plan says, byte for byte and call for call, and it is read back."""

import json
import os
import re
import subprocess
import sysconfig
from collections import Counter
from pathlib import Path

import pytest

from ckptstorm.model.parallel import World
from ckptstorm.plan import totals
from ckptstorm.program import READS, WRITES
from tests.real.test_dcp import python  # noqa: F401 - a fixture
from tests.real.torch_engine_reference import RANK_COUNT, job, segments

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).with_name("torch_engine_reference.py")
CASES = (
    "dcp:fsdp2", "fsdp_full:fsdp2", "deepspeed:zero1", "megatron_dist:distributed_optimizer",
    "megatron_legacy:distributed_optimizer", "mlperf:zero3",
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Where the files and the log lie."""
    return tmp_path_factory.mktemp("torch-engine")


@pytest.fixture(scope="module")
def found(python, place):  # noqa: F811
    """By case: what the engine verified; the package comes from this environment, PyTorch from the other."""
    environment = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib"), "OMP_NUM_THREADS": "1"}
    watch = ["strace", "-f", "-y", "-s", "0", "-o", str(place / "log"), "-e", "trace=read,write,pread64,pwrite64"]
    command = [*watch, "--seccomp-bpf", python, str(SCRIPT), str(place), *CASES]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("case", CASES)
def test_pytorch_reads_what_it_wrote(found, case):
    """Every byte of every tensor is the payload, in each layout that is made of PyTorch's calls."""
    sums = totals(job(*case.split(":")), World(RANK_COUNT, RANK_COUNT))
    assert found[case] == [sums.restore.data_bytes, 0]
    assert sums.save.by_kind["torch_save"] > 0


def moved(place, calls):
    """How often each data file of DCP was read or written, by bytes."""
    seen = Counter()
    for line in (place / "log").read_text().splitlines():
        match = re.search(rf" ({calls})\(\d+<([^>]*\.distcp)>.*= (\d+)$", line)
        if match and int(match[3]) and "dcp-fsdp2" in match[2]:
            seen[match[2].rsplit("/", 1)[-1], int(match[3])] += 1
    return seen


def planned(place, phase, kinds):
    """The same of the plan that plain engines run."""
    counts, block_size_bytes = Counter(), place.stat().st_blksize
    asked = job("dcp", "fsdp2", "posix")
    parts = [part for rank in range(RANK_COUNT) for part in segments(asked, rank, phase, block_size_bytes)]
    for program in (program for part in parts for program in part):
        for row, size in zip(program.ops, program.expected_bytes().tolist(), strict=True):
            name = program.paths[int(row["file"])].name
            if row["kind"] in kinds and name.endswith(".distcp"):
                counts[name, size] += 1
    return counts


def test_the_storage_sees_the_same(found, place):
    """Under strace PyTorch makes the very writes that plain engines are planned to make, and the same reads."""
    assert found
    assert moved(place, "write|pwrite64") == planned(place, "save", WRITES)
    seen, ours = moved(place, "read|pread64"), planned(place, "restore", READS)
    # A read behind the small pickle in front of a tensor moves up to 18 bytes more or less (see test_dcp).
    assert sum((ours - seen).values()) == sum((seen - ours).values()) <= 2 * RANK_COUNT


def test_refused_where_it_is_not_what_writes(storm):
    """Where PyTorch is missing, or is not what writes the layout, the engine is refused by name."""
    from tests.storm.test_layouts import TINY

    ended = storm("--set", "io.engine=torch", "--set", "layout.name=safetensors", job=TINY)
    assert ended.code == 2
    assert "PyTorch" in ended.said
