"""One file a node: the contract for both kinds of writers, who writes what, and a save that is read back."""

import os

import numpy as np
import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.file_per_node import FilePerNodeLayout, FilePerNodeOptions
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, created_files, plan, totals
from ckptstorm.program import READS, WRITES, Kind, open_flags
from ckptstorm.steps import Facts
from ckptstorm.testing.layouts import LayoutContract, programs
from ckptstorm.units import Bytes
from tests.layouts.shared_contract import SharedFileContract, ranges
from tests.layouts.whole_world import assert_saves_and_restores, assert_totals_are_the_sum

TINY = ModelTable(architecture="llama", layers=2, hidden=48, ffn=60, heads=4, kv_heads=2, vocab=50)
WRITERS = ("one", "all")


def job(writers, model=TINY, ranks_per_node=3, **parallel):
    """Three ranks a node, which divides few worlds."""
    options = {"writers": writers, "ranks_per_node": ranks_per_node}
    return Job(
        model=model,
        layout=LayoutTable(name="file_per_node", options=options),
        parallel=ParallelTable(**parallel),
    )


def layout(rank_count, writers):
    """The layout under test."""
    scene = Scene(resolve(TINY), ParallelSpec(data=rank_count), "fsdp2")
    return FilePerNodeLayout(scene, FilePerNodeOptions(ranks_per_node=3, writers=writers))


class TestContractOfOneWriter(LayoutContract):
    """The node's first rank writes: nothing is shared."""

    def make(self, rank_count):
        """Three ranks a node."""
        return layout(rank_count, "one")

    @pytest.mark.parametrize("rank_count", (1, 3, 4, 7, 64))
    def test_census_of_more_worlds(self, rank_count):
        """The contract's census in the worlds that the contract does not try."""
        self.test_census_is_the_sum_of_all_plans(rank_count)


class TestContractOfAllWriters(SharedFileContract):
    """Every rank writes into its node's file."""

    def make(self, rank_count):
        """Three ranks a node."""
        return layout(rank_count, "all")


def places(writers, rank, phase, kinds):
    """(file, start, stop) of the ops of a rank of five, with 5000 bytes each."""
    steps = getattr(plan(job(writers, ModelTable(shard_bytes=Bytes(5000))), World(5, 5), rank), phase)
    return [place for program in programs(steps, Facts(4096)) for place in ranges(program, kinds)]


def test_who_writes_what():
    """Of nodes of 3 and 2 ranks: the first writes all their shards, or each writes its own."""
    first, second = "step-0/node-00000.ckpt", "step-0/node-00001.ckpt"
    assert places("one", 3, "save", WRITES) == [(second, 0, 5000), (second, 5000, 10_000)]
    assert places("one", 4, "save", WRITES) == []
    assert places("all", 2, "save", WRITES) == [(first, 10_000, 15_000)]
    assert places("all", 4, "save", WRITES) == [(second, 5000, 10_000)]


@pytest.mark.parametrize("writers", WRITERS)
def test_each_reads_its_own(writers):
    """A restore reads the rank's range, whoever wrote it."""
    assert places(writers, 4, "restore", READS) == [("step-0/node-00001.ckpt", 5000, 10_000)]


@pytest.mark.parametrize(
    ("writers", "rank", "extra"), [("one", 3, os.O_TRUNC), ("all", 3, 0), ("all", 4, 0), ("one", 4, None)]
)
def test_calls(writers, rank, extra):
    """Writers make the directory, write and sync; a node's first rank then syncs the directory; others do nothing."""
    found = programs(plan(job(writers, ModelTable(shard_bytes=Bytes(5000))), World(5, 5), rank).save, Facts(4096))
    if extra is None:
        assert found == []
        return
    ops = np.concatenate([program.ops for program in found])
    kinds = [Kind(kind) for kind in ops["kind"].tolist()]
    writes = 2 if writers == "one" else 1
    expected = [Kind.MKDIR, Kind.OPEN, *[Kind.WRITE] * writes, Kind.FSYNC, Kind.CLOSE]
    assert kinds == expected + [Kind.FSYNC_DIR] * (rank == 3)
    assert open_flags(int(ops["length_bytes"][1]))[0] == os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | extra


@pytest.mark.parametrize("rank_count", [1, 3, 4, 7, 64])
@pytest.mark.parametrize("writers", WRITERS)
@pytest.mark.parametrize("sharding", ["fsdp2", "ddp"])
def test_totals(rank_count, writers, sharding):
    """Totals of any world are the sum of all ranks' programs."""
    assert_totals_are_the_sum(job(writers, sharding=sharding), World(rank_count, 4))


@pytest.mark.parametrize("writers", WRITERS)
def test_a_files_worth_of_a_large_world(writers):
    """128 nodes of 8 ranks make 128 files that hold 12 bytes a parameter."""
    sums = totals(job(writers, ModelTable(name="llama3-70b"), ranks_per_node=8), World(1024, 8), Facts(4096))
    assert sums.data_bytes == 12 * resolve(ModelTable(name="llama3-70b")).parameter_count
    assert sums.file_count == 128
    assert sums.save.by_kind["fsync_dir"] == 128
    assert sums.save.by_kind["fsync"] == (128 if writers == "one" else 1024)


@pytest.mark.parametrize("writers", WRITERS)
@pytest.mark.parametrize("sharding", ["fsdp2", "ddp"])
def test_every_byte_comes_back(writers, sharding, tmp_path):
    """Seven ranks on three nodes save into three files on a real file system, and each reads its shard."""
    assert_saves_and_restores(job(writers, sharding=sharding), World(7, 3), tmp_path)


def test_clean_up_needs_no_nodes():
    """`ckptstorm clean` does not know where ranks ran, and still finds every file."""
    asked = job("all")
    for world in (World(7, 7), World(7, 1), World(7, (0, 1, 0, 1, 0, 1, 0))):
        names = [name for rank in range(7) for name in created_files(asked, world, rank)]
        assert names == ["node-00000.ckpt", "node-00001.ckpt", "node-00002.ckpt"]


def test_a_node_must_be_known():
    """Without ranks_per_node the job is refused, with what to do."""
    with pytest.raises(JobError, match=r"\[layout\] ranks_per_node is missing: .* must know a node") as refused:
        check_plan(Job(model=TINY, layout=LayoutTable(name="file_per_node")), World(4))
    assert "give [layout] ranks_per_node" in refused.value.hint


def test_a_node_has_ranks():
    """A count that is none is refused by its key."""
    with pytest.raises(JobError, match=r"\[layout\] ranks_per_node = -8 is not what layout \"file_per_node\" takes"):
        check_plan(job("one", ranks_per_node=-8), World(4))


def test_refuses_other_shardings():
    """So is a sharding that is no plain cut."""
    with pytest.raises(JobError, match=r'sharding = "zero1" is not planned for .* "file_per_node"'):
        check_plan(job("one", sharding="zero1"), World(2))
