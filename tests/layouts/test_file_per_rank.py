"""One file a rank: the contract, and any parallelism."""

import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.file_per_rank import FilePerRankLayout, FilePerRankOptions
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, plan, totals
from ckptstorm.program import Kind
from ckptstorm.steps import Facts
from ckptstorm.testing.layouts import LayoutContract, programs
from ckptstorm.units import Bytes

TINY = ModelTable(architecture="mixtral", layers=4, hidden=12, ffn=10, heads=2, kv_heads=1, vocab=5, experts=4)
LAYOUT = LayoutTable(name="file_per_rank")


class TestContract(LayoutContract):
    """With as much parallelism as the world allows."""

    def make(self, rank_count):
        """Two ways each of tensor, expert and pipeline parallelism where they fit."""
        left, sizes = rank_count, []
        for _ in range(3):
            sizes.append(2 if left % 2 == 0 else 1)
            left //= sizes[-1]
        parallel = ParallelSpec(tensor=sizes[0], expert=sizes[1], data=left, pipeline=sizes[2])
        return FilePerRankLayout(Scene(resolve(TINY), parallel, "fsdp2"), FilePerRankOptions())


class TestContractOfPlainBytes(LayoutContract):
    """With shards of a stated size."""

    def make(self, rank_count):
        """5000 bytes a rank."""
        scene = Scene(resolve(ModelTable(shard_bytes=Bytes(5000))), ParallelSpec(data=rank_count), "fsdp2")
        return FilePerRankLayout(scene, FilePerRankOptions())


def test_one_write_and_one_read_a_tensor():
    """A shard of plain bytes is open, write, fsync, close, then the directory; and one read back."""
    job = Job(model=ModelTable(shard_bytes=Bytes(5000)), layout=LAYOUT)
    save, restore = (
        [Kind(kind) for program in programs(steps, Facts(4096)) for kind in program.ops["kind"].tolist()]
        for steps in (plan(job, World(2, 2), 1).save, plan(job, World(2, 2), 1).restore)
    )
    assert save == [Kind.MKDIR, Kind.OPEN, Kind.WRITE, Kind.FSYNC, Kind.CLOSE, Kind.FSYNC_DIR]
    assert restore == [Kind.OPEN, Kind.READ, Kind.CLOSE]


def test_ddp_copies_and_fsdp_cuts():
    """A model of P parameters takes 12 P bytes when it is cut, and 12 P a rank when it is copied."""
    parameters = resolve(TINY).parameter_count
    for sharding, copies in (("fsdp2", 1), ("ddp", 4)):
        job = Job(model=TINY, layout=LAYOUT, parallel=ParallelTable(sharding=sharding))
        assert totals(job, World(4), Facts(4096)).data_bytes == 12 * parameters * copies


def test_refuses_shardings_that_are_no_cut():
    """Optimizer shardings are refused by name."""
    with pytest.raises(JobError, match=r'sharding = "zero1" is not planned for .* "file_per_rank"'):
        check_plan(Job(model=TINY, layout=LAYOUT, parallel=ParallelTable(sharding="zero1")), World(4))
