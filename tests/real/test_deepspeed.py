"""ZeRO as planned beside ZeRO as it is: DeepSpeed under strace, two gloo ranks on CPU.

Every open, write, writev, mkdir, stat, chmod, read and directory listing of both ranks, in order, with its
file and the bytes that it moved. The sizes of pickles are laws (`deepspeed_files`), so a call may move a
few hundred bytes more or less; the calls themselves, and the bytes of all tensors, are compared as facts.
"""

import os
import shutil
import subprocess
import sys

import pytest

from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, facts_of, plan
from ckptstorm.program import ROOT, Kind, open_flags
from ckptstorm.testing.layouts import programs
from tests.real.strace_log import trace
from tests.require import missing

RANK_COUNT = 2
MODEL = ModelTable(architecture="llama", layers=3, hidden=192, ffn=512, heads=4, kv_heads=2, vocab=3)
MOE = ModelTable(architecture="mixtral", layers=2, hidden=192, ffn=256, heads=4, kv_heads=2, vocab=3, experts=4)
TAG = "global_step1"
WORDS = {"openat": "open", "newfstatat": "stat", "pread64": "read", "sendfile": "write"}
DATA = ("read", "write", "writev")
#: How far a pickle's law may be off, and a read that ends behind a pickle with it.
PICKLE_SLACK_BYTES = 400


@pytest.fixture(scope="module")
def python():
    """An interpreter with deepspeed, and strace."""
    interpreter = os.environ.get("CKPTSTORM_DEEPSPEED_PYTHON") or sys.executable
    if shutil.which("strace") is None:
        missing("deepspeed", "no strace here")
    found = subprocess.run([interpreter, "-c", "import deepspeed"], capture_output=True, check=False)
    if found.returncode:
        missing("deepspeed", f"{interpreter} has no deepspeed: set CKPTSTORM_DEEPSPEED_PYTHON to one that has it")
    return interpreter


@pytest.fixture(scope="module", params=[1, 3, "pipeline", "experts"])
def stage(request):
    """ZeRO's stage, or stage 1 with two pipeline stages or two expert-parallel ranks."""
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory, stage):
    """Where the real checkpoint and the logs lie."""
    return tmp_path_factory.mktemp(f"zero{stage}")


@pytest.fixture(scope="module")
def traced(python, folder, stage):
    """By rank: the calls of a save and a restore, into a save directory that is there as from the second save on."""
    (folder / "checkpoint").mkdir()
    held = list(resolve(MOE if stage == "experts" else MODEL).tensors())
    tensors = [(tensor.name, tensor.shape) for tensor in held]
    task = {"rank_count": RANK_COUNT, "tensors": tensors, "stage": stage, "script": "deepspeed_reference.py"}
    if stage == "pipeline":
        task |= {"stage": 1, "stages": 2, "layers": layers(tensors)}
    if stage == "experts":
        one = [
            (tensor.name.split(".experts.0.")[1], tensor.shape)
            for tensor in held
            if ".0.block_sparse_moe.experts.0." in tensor.name
        ]
        task |= {
            "stage": 1,
            "experts": {"at": "block_sparse_moe", "tensors": one, "hidden": 192, "count": 4, "parallel": 2},
        }
    return trace(python, folder, task)


def layers(tensors):
    """The tensors of each layer, under their names in it: embedding, three layers, norm, head."""
    ends = [[("weight", shape)] for name, shape in tensors if ".layers." not in name]
    middle = [
        [(name.split(f".layers.{at}.")[1], shape) for name, shape in tensors if f".layers.{at}." in name]
        for at in range(3)
    ]
    return [ends[0], *middle, *ends[1:]]


def job(stage):
    """What the reference does."""
    if stage == "pipeline":
        parallel = ParallelTable(sharding="zero1", pipeline=2)
        return Job(model=MODEL, parallel=parallel, layout=LayoutTable(name="deepspeed"))
    if stage == "experts":
        return Job(model=MOE, parallel=ParallelTable(sharding="zero1", expert=2), layout=LayoutTable(name="deepspeed"))
    return Job(model=MODEL, parallel=ParallelTable(sharding=f"zero{stage}"), layout=LayoutTable(name="deepspeed"))


def planned(stage, rank, phase):
    """(call, file, bytes moved) of our programs for one rank, in order."""
    calls, asked = [], job(stage)
    for program in programs(getattr(plan(asked, World(RANK_COUNT, RANK_COUNT), rank), phase), facts_of(asked, 4096)):
        for row, moved in zip(program.ops, program.expected_bytes().tolist(), strict=True):
            word, path = Kind(row["kind"]).word, program.paths[int(row["file"])]
            if word == "open" and open_flags(int(row["length_bytes"]))[0] & os.O_WRONLY:
                word = "open to write"
            calls.append((word, path.name or ("save directory" if path.directory_index == ROOT else TAG), moved))
    return calls


def real(calls, phase):
    """The same of a trace, without fstat of open files and reads at the end of one."""
    found, open_files = [], set()
    for call in (call for call in calls if call.phase == phase):
        word, name = WORDS.get(call.name, call.name), call.file.removeprefix(f"{TAG}/") or "save directory"
        if name == TAG and word in ("open", "getdents64", "close"):
            found += [("readdir", TAG, 0)] if word == "open" else []
            continue
        if (word == "stat" and name in open_files) or (word in DATA and call.result == 0):
            continue
        open_files = (open_files | {name}) if word == "open" else open_files - ({name} if word == "close" else set())
        word = "open to write" if word == "open" and call.is_write else word
        found.append((word, name, call.result if word in DATA else 0))
    return found


def looks(calls):
    """Stats of the tag directory: which rank made it, and so need not look at it, is a race."""
    return [call for call in calls if call[:2] == ("stat", TAG)]


@pytest.mark.real
@pytest.mark.parametrize("phase", ["save", "restore"])
@pytest.mark.parametrize("rank", range(RANK_COUNT))
def test_calls(traced, stage, rank, phase):
    """A rank's save and restore: each call on each file, in order; bytes to the size of a pickle."""
    found, expected = real(traced[rank], f"{phase} 0"), planned(stage, rank, phase)
    found = [call for call in found if call not in looks(found)]
    expected = [call for call in expected if call not in looks(expected)]
    assert [call[:2] for call in found] == [call[:2] for call in expected]
    off = [abs(ours[2] - theirs[2]) for ours, theirs in zip(expected, found, strict=True)]
    assert max(off) <= PICKLE_SLACK_BYTES
    assert sum(call[2] for call in found) == pytest.approx(sum(call[2] for call in expected), rel=0.01)


@pytest.mark.real
def test_losers_of_the_mkdir_look(traced, stage):
    """All ranks make the tag directory; all but one find it there and look."""
    theirs = [call for calls in traced for call in looks(real(calls, "save 0"))]
    ours = [call for rank in range(RANK_COUNT) for call in looks(planned(stage, rank, "save"))]
    assert len(theirs) == len(ours)


@pytest.mark.real
def test_sizes_on_disk(traced, folder, stage):
    """Every file is there with its planned size, but for its pickle; and no other file."""
    assert traced
    sizes = {path.name: path.stat().st_size for path in (folder / "checkpoint").rglob("*") if path.is_file()}
    for rank in range(RANK_COUNT):
        for program in programs(plan(job(stage), World(RANK_COUNT), rank).save, facts_of(job(stage), 4096)):
            for path in (path for path in program.paths if path.name):
                assert path.size_bytes == pytest.approx(sizes[path.name], abs=PICKLE_SLACK_BYTES)
    created = {name for rank in range(RANK_COUNT) for name in plan(job(stage), World(RANK_COUNT), rank).created}
    assert set(sizes) == created
