"""Megatron-LM's own checkpoint code, on CPU under strace, beside what is planned for it.

Four gloo ranks (two tensor-parallel, two data-parallel) run `save_checkpoint` and both passes of
`_load_base_checkpoint`, in the default format with both ways to load, and in the legacy one.
Every call on every file is compared, in order, with its bytes, but for:

* the sizes of the arguments and of the random state, which the job's own objects decide: the plan is
  given those of the stand-ins;
* `.metadata`: its calls in number, its size within 5 %;
* a small text file: Python reads it twice, the second time in vain;
* a directory's listing: open, getdents twice and close are one op here;
* legacy: who of all members makes a directory, which is a race.

CKPTSTORM_MEGATRON names the directories to import it from (its source tree, or the wheel of megatron-core 0.19.2
unpacked, as .ci/run does; and what it needs beside torch: packaging, einops, psutil, pyyaml), joined by colons.
"""

import os

import pytest

from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts import megatron_groups, megatron_legacy
from ckptstorm.layouts.megatron_shard import parameters
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, facts_of, plan
from ckptstorm.program import Kind, open_flags
from ckptstorm.testing.layouts import programs
from tests.real import test_dcp as default
from tests.real.strace_log import trace
from tests.require import missing

RANK_COUNT, TENSOR, LAYERS, BUCKET = 4, 2, 2, 60_000
MODEL = ModelTable(architecture="llama", layers=LAYERS, hidden=192, ffn=512, heads=4, kv_heads=2, vocab=320)
#: name: way of the load ("own" is --ckpt-fully-parallel-load)
VARIANTS = {"all": "all", "own": "own", "legacy": "legacy"}
#: What the reference stores in place of a job's random state and arguments.
RANDOM_STATE_BYTES, ARGUMENTS_BYTES = 6633, 28269
LEGACY = {"_STATES_BYTES": 388, "_ARGUMENTS_BYTES": 27925, "_ENTRY_BYTES": 0, "_RANDOM_BYTES": (5056,)}
TEXTS = ("metadata.json", "latest_checkpointed_iteration.txt")
ITERATION = "iter_0001000"

#: An interpreter with torch, and strace.
python = default.python


@pytest.fixture(scope="module")
def source():
    """Where Megatron-LM is imported from."""
    told = os.environ.get("CKPTSTORM_MEGATRON", "")
    if not told:
        missing("megatron", "CKPTSTORM_MEGATRON does not say where Megatron-LM is")
    return told.split(":")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the real checkpoints and the logs lie."""
    return tmp_path_factory.mktemp("megatron")


@pytest.fixture(scope="module")
def traced(python, source, folder):
    """By rank: the calls of a save and a load in each way."""
    for name in VARIANTS:
        (folder / "checkpoint" / name).mkdir(parents=True)
    held = parameters(resolve(MODEL), ParallelSpec(tensor=TENSOR, data=RANK_COUNT // TENSOR), 0, 0)
    task = {
        "script": "megatron_reference.py", "source": source, "rank_count": RANK_COUNT, "tensor": TENSOR,
        "data": RANK_COUNT // TENSOR, "layers": LAYERS, "bucket": BUCKET, "variants": VARIANTS,
        "parameters": [(item.key, item.layer, item.parts, item.is_copied) for item in held],
    }  # fmt: skip
    return trace(python, folder, task)


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    """Buckets as small as the reference's, objects as large."""
    monkeypatch.setattr(megatron_groups, "bucket_limit", lambda _: BUCKET)
    monkeypatch.setattr(megatron_groups, "_RANDOM_STATE_BYTES", RANDOM_STATE_BYTES)
    monkeypatch.setattr(megatron_groups, "_ARGUMENTS_BYTES", ARGUMENTS_BYTES)
    for name, value in LEGACY.items():
        monkeypatch.setattr(megatron_legacy, name, value)


def job_of(name):
    """What we plan."""
    dist = LayoutTable(name="megatron_dist", options={"fully_parallel_load": VARIANTS[name] == "own"})
    return Job(
        model=MODEL,
        parallel=ParallelTable(tensor=TENSOR, sharding="distributed_optimizer"),
        layout=LayoutTable(name="megatron_legacy") if name == "legacy" else dist,
    )


def real(calls, name, phase):
    """(call, file, bytes moved), files relative to the iteration's directory, whose parent is "..".

    Left out: the look at an open file object, and the read behind the end of a text.
    """
    found, listing = [], False
    for call in calls:
        if call.phase != f"{phase} {list(VARIANTS).index(name)}" or call.file.split("/")[0] != name:
            continue
        file, word = call.file[len(name) + 1 :], default.WORDS.get(call.name, call.name)
        file = file[len(ITERATION) + 1 :] if file.startswith(ITERATION) else file or ".."
        if listing:
            listing = word != "close"
        elif word == "open" and file == "":
            listing = True
            found.append(("readdir", "", 0))
        elif word == "stat" and is_open(found, file):
            continue
        elif word != "read" or file not in TEXTS or call.result:
            word = "open to write" if word == "open" and call.is_write else word
            found.append((word, file, call.result if word in ("read", "write", "writev") else 0))
    return found


def is_open(found, file):
    """Whether `file` has been opened and not yet closed."""
    last = next(
        (word for word, name, _ in reversed(found) if name == file and word.split()[0] in ("open", "close")), ""
    )
    return last.startswith("open")


def planned(name, rank, phase, block_size_bytes):
    """The same of our programs."""
    calls, job = [], job_of(name)
    for program in programs(
        getattr(plan(job, World(RANK_COUNT, RANK_COUNT), rank), phase), facts_of(job, block_size_bytes)
    ):
        for row, moved in zip(program.ops, program.expected_bytes().tolist(), strict=True):
            word, path = Kind(row["kind"]).word, program.paths[int(row["file"])]
            if word == "open" and open_flags(int(row["length_bytes"]))[0] & os.O_WRONLY:
                word = "open to write"
            calls.append((word, path.name if path.directory_index else "..", moved))
    return calls


@pytest.mark.real
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("rank", range(RANK_COUNT))
def test_save(traced, folder, name, rank):
    """A rank's save: each call on each file, in order and to the byte."""
    block_size_bytes = (folder / "task.json").stat().st_blksize
    found = default.without_metadata_bytes(real(traced[rank], name, "save"))
    expected = default.without_metadata_bytes(planned(name, rank, "save", block_size_bytes))
    if name == "legacy":
        assert ("mkdir", f"mp_rank_{rank % TENSOR:02d}", 0) in found
        found, expected = without_directories(found), without_directories(expected)
    assert found == expected


def without_directories(calls):
    """All members make the legacy format's directories: who finds which made, and so looks at it, is a race."""
    return [call for call in calls if call[0] not in ("mkdir", "stat")]


@pytest.mark.real
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("rank", range(RANK_COUNT))
def test_load(traced, folder, name, rank):
    """A rank's load, both passes: each look, listing and read, in order and to the byte (but for DCP's two laws)."""
    block_size_bytes = (folder / "task.json").stat().st_blksize
    found = default.without_metadata_bytes(real(traced[rank], name, "restore"))
    expected = default.without_metadata_bytes(planned(name, rank, "restore", block_size_bytes))
    assert [call[:2] for call in found] == [call[:2] for call in expected]
    differing = [(ours[2], theirs[2]) for ours, theirs in zip(expected, found, strict=True) if ours != theirs]
    assert all(max(pair) < block_size_bytes and abs(pair[0] - pair[1]) <= 18 for pair in differing), differing


@pytest.mark.real
def test_sizes_on_disk(traced, folder):
    """Every file has its planned size; `.metadata` within 5 %."""
    assert traced
    root = folder / "checkpoint" / "all"
    there = {path.name: path.stat().st_size for path in (*root.glob("*.txt"), *(root / ITERATION).iterdir())}
    sizes = {}
    for rank in range(RANK_COUNT):
        for program in programs(plan(job_of("all"), World(RANK_COUNT), rank).save, facts_of(job_of("all"), 4096)):
            sizes |= {path.content_name: path.size_bytes for path in program.paths if path.name}
    assert sizes.pop(".metadata") == pytest.approx(there.pop(".metadata"), rel=0.05)
    assert sizes == there
