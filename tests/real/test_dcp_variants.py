"""DCP's other ways beside what is planned for them: HSDP, DDP, threads, a file for each tensor.

One start of four gloo ranks under strace saves and restores the same small model in each way; every
call on every file is compared, in order, with its bytes. With threads the calls of one rank on
different files interleave, so they are compared file by file. The laws are those of `test_dcp`.
"""

import os
from collections import defaultdict
from dataclasses import replace

import pytest

from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, facts_of, plan, totals
from ckptstorm.program import Kind, open_flags
from ckptstorm.testing.layouts import programs
from tests.real import test_dcp as default
from tests.real.strace_log import THREAD, trace

RANK_COUNT = 4
# Three rows of vocabulary: on four shards one of two tensors is empty, on two the second is short.
MODEL = ModelTable(architecture="llama", layers=1, hidden=192, ffn=512, heads=4, kv_heads=2, vocab=3)
#: name: [parallel], [layout] options
VARIANTS = {
    "hsdp": ({"sharding": "hsdp", "replicas": 2}, {}),
    "ddp": ({"sharding": "ddp"}, {}),
    "threads": ({"sharding": "fsdp2"}, {"threads": 3}),
    "hsdp_threads": ({"sharding": "hsdp", "replicas": 2}, {"threads": 2}),
    "file_per_tensor": ({"sharding": "fsdp2"}, {"file_per_tensor": True}),
    "hsdp_file_per_tensor": ({"sharding": "hsdp", "replicas": 2}, {"file_per_tensor": True}),
}


def job_of(name):
    """What we plan."""
    parallel, options = VARIANTS[name]
    return Job(model=MODEL, parallel=ParallelTable(**parallel), layout=LayoutTable(options=options))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the real checkpoints and the logs lie."""
    return tmp_path_factory.mktemp("dcp-variants")


#: An interpreter with torch, and strace.
python = default.python


@pytest.fixture(scope="module")
def traced(python, folder):
    """By rank: the calls of a save and a restore in each way."""
    (folder / "checkpoint").mkdir()
    tensors = [(tensor.name, tensor.shape) for tensor in resolve(MODEL).tensors()]
    variants = [
        {"name": name, "saves": 1, "threads": 1} | parallel | options for name, (parallel, options) in VARIANTS.items()
    ]
    return trace(python, folder, {"rank_count": RANK_COUNT, "tensors": tensors, "variants": variants})


@pytest.fixture(scope="module")
def block_size_bytes(folder):
    """What the real one found."""
    return (folder / "task.json").stat().st_blksize


def real(calls, name, phase):
    """The calls of one way in one phase, worker threads' behind the main one's, names relative to its directory."""
    index = list(VARIANTS).index(name)
    mine = [replace(call, file=call.file[len(name) + 1 :]) for call in calls if call.file.split("/")[0] == name]
    found = default.real(mine, f"{phase} {index}")
    return found + (default.real(mine, THREAD) if phase == "save" else [])


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
            calls.append((word, path.name, moved))
    return calls


def by_file(calls):
    """Calls of each file in their order; the order among files is left out."""
    sorted_in = defaultdict(list)
    for call in default.without_directory_look(default.without_metadata_bytes(calls)):
        sorted_in[call[1]].append(call)
    return sorted_in


@pytest.mark.real
@pytest.mark.parametrize("name", VARIANTS)
def test_save(traced, block_size_bytes, name):
    """Every rank's save: each call on each file, in order and to the byte."""
    for rank in range(RANK_COUNT):
        found, expected = real(traced[rank], name, "save"), planned(name, rank, "save", block_size_bytes)
        assert by_file(found) == by_file(expected)
        if not VARIANTS[name][1].get("threads"):
            assert default.without_directory_look(default.without_metadata_bytes(found)) == (
                default.without_directory_look(default.without_metadata_bytes(expected))
            )


@pytest.mark.real
@pytest.mark.parametrize("name", VARIANTS)
def test_restore(traced, block_size_bytes, name):
    """Every rank's restore: each read of each file, in order and to the byte (but for the two laws)."""
    for rank in range(RANK_COUNT):
        found = default.without_metadata_bytes(real(traced[rank], name, "restore"))
        expected = default.without_metadata_bytes(planned(name, rank, "restore", block_size_bytes))
        assert [call[:2] for call in found] == [call[:2] for call in expected]
        differing = [(ours[2], theirs[2]) for ours, theirs in zip(expected, found, strict=True) if ours != theirs]
        assert all(max(pair) < block_size_bytes and abs(pair[0] - pair[1]) <= 18 for pair in differing), differing
        assert len(differing) <= len({call[1] for call in found}) * 2


@pytest.mark.real
@pytest.mark.parametrize("name", VARIANTS)
def test_sizes_on_disk(traced, folder, name):
    """The very files, each of its planned size; `.metadata` within 5 %."""
    assert traced
    there = {path.name: path.stat().st_size for path in (folder / "checkpoint" / name).iterdir()}
    job, sizes = job_of(name), {}
    for rank in range(RANK_COUNT):
        for program in programs(plan(job, World(RANK_COUNT, RANK_COUNT), rank).save, facts_of(job, 4096)):
            sizes |= {path.content_name: path.size_bytes for path in program.paths if path.name}
    assert sizes.pop(".metadata") == pytest.approx(there.pop(".metadata"), rel=0.05)
    assert sizes == there
    assert totals(job, World(RANK_COUNT)).data_bytes == sum(there.values())
