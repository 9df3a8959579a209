"""Resharding as planned beside resharding as it is: PyTorch saves on 4 ranks and loads on 2 and 3, and the reverse."""

from collections import Counter

import pytest

from ckptstorm.job import Job, ParallelTable, RestoreParallelTable, RestoreTable
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, facts_of, plan
from ckptstorm.testing.layouts import programs
from tests.real.strace_log import trace
from tests.real.test_dcp import MODEL, python  # noqa: F401 - a fixture

RANK_COUNT = 4
WORLDS = {"4-2": (4, 2), "2-4": (2, 4), "4-3": (4, 3)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the real checkpoints and the logs lie."""
    return tmp_path_factory.mktemp("reshard")


@pytest.fixture(scope="module")
def traced(python, folder):  # noqa: F811
    """By rank: the calls of all saves and restores."""
    tensors = [(tensor.name, tensor.shape) for tensor in resolve(MODEL).tensors()]
    variants = [{"name": name, "save": save, "restore": restore} for name, (save, restore) in WORLDS.items()]
    return trace(python, folder, {"rank_count": RANK_COUNT, "tensors": tensors, "variants": variants})


def planned(name, rank, block_size_bytes):
    """(opens in order, reads by file and bytes) of our restore for one rank."""
    save, restore = WORLDS[name]
    job = Job(
        model=MODEL,
        parallel=ParallelTable(ranks=save),
        restore=RestoreTable(parallel=RestoreParallelTable(ranks=restore)),
    )
    opens, reads = [], []
    for program in programs(plan(job, World(RANK_COUNT, RANK_COUNT), rank).restore, facts_of(job, block_size_bytes)):
        for row, moved in zip(program.ops, program.expected_bytes().tolist(), strict=True):
            file = program.paths[int(row["file"])].name
            if moved:
                reads.append((file, moved))
            elif file not in opens:
                opens.append(file)
    return opens, reads


@pytest.mark.real
@pytest.mark.parametrize("rank", range(RANK_COUNT))
@pytest.mark.parametrize("name", WORLDS)
def test_restore_in_another_world(traced, folder, name, rank):
    """The same files in the same order, and the same reads of them, to the byte (but for the size of `.metadata`)."""
    at = list(WORLDS).index(name)
    calls = [call for call in traced[rank] if call.phase == f"restore {at}" and call.file.startswith(f"{name}/")]
    if rank >= WORLDS[name][1]:
        assert not calls
        return
    block_size_bytes = (folder / "task.json").stat().st_blksize
    opens = [call.file.partition("/")[2] for call in calls if call.name == "openat"]
    reads = [(call.file.partition("/")[2], call.result) for call in calls if call.name == "read"]
    our_opens, our_reads = planned(name, rank, block_size_bytes)
    assert opens == our_opens
    assert [file for file, _ in reads] == [file for file, _ in our_reads]
    data, our_data = (Counter(read for read in found if read[0] != ".metadata") for found in (reads, our_reads))
    # A read behind the small pickle in front of a tensor moves up to 18 bytes more or less (see test_dcp).
    ours, theirs = our_data - data, data - our_data
    assert sum(theirs.values()) <= 2 * len(opens)
    assert all(moved < block_size_bytes for _, moved in [*ours, *theirs])
    assert abs(
        sum(n * moved for (_, moved), n in ours.items()) - sum(n * moved for (_, moved), n in theirs.items())
    ) <= (18 * max(sum(theirs.values()), 1))


@pytest.mark.real
def test_files_on_disk(traced, folder):
    """As many data files as ranks that saved."""
    assert traced
    for name, (save, _) in WORLDS.items():
        assert len(list((folder / "checkpoint" / name).glob("*.distcp"))) == save
