"""DCP as planned beside DCP as it is: PyTorch under strace, four gloo ranks, FSDP2 on CPU.

Compared call by call: every open, write, fsync, rename, unlink, mkdir and read of every rank, in
order, with its file and the bytes that it moved. Two things are laws and not facts:

* the size of `.metadata` (a pickle): its calls are compared in number, its size within 4 %;
* the size of the small pickle in front of each tensor (142 to 166 bytes by the digits of the shape;
  planned as 160). One read of each tensor starts behind it, so it moves up to 18 bytes more or less
  where the end of the file cuts it short, and the same number elsewhere.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptstorm.job import Job, LayoutTable, ModelTable
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, facts_of, plan
from ckptstorm.program import Kind, open_flags
from ckptstorm.testing.layouts import programs
from tests.real.strace_log import trace
from tests.require import missing

RANK_COUNT = 4
# Three rows of vocabulary on four ranks: one shard of two tensors is empty. Shards of 1.5 KiB to
# 100 KiB lie on both sides of the buffer.
MODEL = ModelTable(architecture="llama", layers=3, hidden=192, ffn=512, heads=4, kv_heads=2, vocab=3)
JOB = Job(model=MODEL, layout=LayoutTable(overwrite=True))
WORDS = {"openat": "open", "newfstatat": "stat", "pread64": "read"}


@pytest.fixture(scope="module")
def python():
    """An interpreter with torch, and strace."""
    interpreter = os.environ.get("CKPTSTORM_TORCH_PYTHON", sys.executable)
    if shutil.which("strace") is None:
        missing("torch", "no strace here")
    found = subprocess.run([interpreter, "-c", "import torch.distributed.fsdp"], capture_output=True, check=False)
    if found.returncode:
        missing("torch", f"{interpreter} has no torch: set CKPTSTORM_TORCH_PYTHON to an interpreter that has it")
    return interpreter


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the real checkpoint and the logs lie."""
    return tmp_path_factory.mktemp("dcp")


@pytest.fixture(scope="module")
def traced(python, folder):
    """By rank: the calls of two saves into one directory and a restore."""
    tensors = [(tensor.name, tensor.shape) for tensor in resolve(MODEL).tensors()]
    return trace(python, folder, {"rank_count": RANK_COUNT, "tensors": tensors, "threads": 1, "saves": 2})


@pytest.fixture(scope="module")
def block_size_bytes(folder):
    """What the real one found."""
    return (folder / "task.json").stat().st_blksize


def planned(rank, phase, block_size_bytes):
    """(call, file, bytes moved) of our programs for one rank, in order."""
    calls = []
    for program in programs(
        getattr(plan(JOB, World(RANK_COUNT, RANK_COUNT), rank), phase), facts_of(JOB, block_size_bytes)
    ):
        for row, moved in zip(program.ops, program.expected_bytes().tolist(), strict=True):
            word, name = Kind(row["kind"]).word, program.paths[int(row["file"])].name
            if word == "open" and open_flags(int(row["length_bytes"]))[0] & os.O_WRONLY:
                word = "open to write"
            calls.append((word, name, moved))
    return calls


def real(calls, phase):
    """The same of a trace; the fstat of an open file object is left out, as it asks a server nothing new."""
    found = []
    for call in calls:
        if call.phase != phase or (
            call.name == "newfstatat" and not call.errno and call.file.endswith((".distcp", ".tmp"))
        ):
            continue
        word = WORDS.get(call.name, call.name)
        if word == "stat" and phase.startswith("restore"):
            continue
        if word == "open" and call.is_write:
            word = "open to write"
        moved = call.result if word in ("read", "write") else 0
        found.append((word, call.file, moved))
    return found


def without_metadata_bytes(calls):
    """The size of `.metadata` is a law; the number of calls on it is not."""
    return [(word, name, 0 if name.startswith(".metadata") else moved) for word, name, moved in calls]


def without_directory_look(calls):
    """Which rank made the directory, and so need not look at it, is a race."""
    return [call for call in calls if call[:2] != ("stat", "")]


@pytest.mark.real
@pytest.mark.parametrize("rank", range(RANK_COUNT))
def test_save(traced, block_size_bytes, rank):
    """A rank's save: each call on each file, in order and to the byte."""
    expected = planned(rank, "save", block_size_bytes)
    # The first save finds nothing to unlink; our overwrite plan is that of the second.
    first = [call for call in expected if call[0] != "unlink"]
    assert without_directory_look(without_metadata_bytes(real(traced[rank], "save 0"))) == without_directory_look(
        without_metadata_bytes(first)
    )
    assert without_directory_look(without_metadata_bytes(real(traced[rank], "save 1"))) == without_directory_look(
        without_metadata_bytes(expected)
    )


@pytest.mark.real
@pytest.mark.parametrize("rank", range(RANK_COUNT))
def test_restore(traced, block_size_bytes, rank):
    """A rank's restore: each read of each file, in order and to the byte (but for the two laws)."""
    expected = without_metadata_bytes(planned(rank, "restore", block_size_bytes))
    found = without_metadata_bytes(real(traced[rank], "restore 1"))
    assert [call[:2] for call in found] == [call[:2] for call in expected]
    differing = [(ours[2], theirs[2]) for ours, theirs in zip(expected, found, strict=True) if ours != theirs]
    assert all(max(pair) < block_size_bytes and abs(pair[0] - pair[1]) <= 18 for pair in differing), differing
    assert len(differing) <= 2


@pytest.mark.real
def test_losers_of_the_mkdir_look(traced, block_size_bytes):
    """All ranks make the directory; all but one fail, and look at it."""
    looks = [call for calls in traced for call in real(calls, "save 0") if call[:2] == ("stat", "")]
    ours = [
        call
        for rank in range(RANK_COUNT)
        for call in planned(rank, "save", block_size_bytes)
        if call[:2] == ("stat", "")
    ]
    assert len(looks) == len(ours) == RANK_COUNT - 1


@pytest.mark.real
def test_sizes_on_disk(traced, folder):
    """Every file has its planned size, blobs included; `.metadata` within 4 %."""
    assert traced
    for rank in range(RANK_COUNT):
        for program in programs(plan(JOB, World(RANK_COUNT), rank).restore, facts_of(JOB, 4096)):
            for path in program.paths:
                size = (folder / "checkpoint" / Path(path.name)).stat().st_size
                assert path.size_bytes == (pytest.approx(size, rel=0.04) if path.name == ".metadata" else size)
