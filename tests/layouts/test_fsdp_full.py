"""FULL_STATE_DICT on rank 0: the contract, who reads, and what is refused."""

import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.fsdp_full import FsdpFullLayout, FsdpFullOptions
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, plan, totals
from ckptstorm.program import Kind
from ckptstorm.steps import Facts, Meet, Run
from ckptstorm.testing.layouts import LayoutContract, programs
from ckptstorm.units import Bytes
from tests.test_plan import count

TINY = ModelTable(architecture="llama", layers=2, hidden=64, ffn=40, heads=4, kv_heads=2, vocab=33)


def job(model=TINY, sharding="fsdp2", tensor=1, **options):
    """A job with a full state dict."""
    parallel = ParallelTable(sharding=sharding, tensor=tensor)
    return Job(model=model, parallel=parallel, layout=LayoutTable(name="fsdp_full", options=options))


class TestContract(LayoutContract):
    """Rank 0 reads and broadcasts."""

    def make(self, rank_count):
        """A small model."""
        return FsdpFullLayout(Scene(resolve(TINY), ParallelSpec(data=rank_count), "fsdp2"), FsdpFullOptions())


class TestContractOfAllReaders(LayoutContract):
    """Every rank reads everything."""

    def make(self, rank_count):
        """The same model, never gathered because every rank has it."""
        scene = Scene(resolve(TINY), ParallelSpec(data=rank_count), "ddp")
        return FsdpFullLayout(scene, FsdpFullOptions(readers="all"))


@pytest.mark.parametrize("rank_count", [1, 3, 4, 7, 64])
@pytest.mark.parametrize("readers", ["rank0", "all"])
def test_totals_are_the_sum_of_all_plans(readers, rank_count):
    """Closed form equals brute force: every op kind, size class and byte, save and restore."""
    asked, world = job(readers=readers), World(rank_count, 3)
    for facts in (Facts(4096), Facts(1 << 20, "fsync", 5000)):
        sums = totals(asked, world, facts)
        for phase in ("save", "restore"):
            ops = getattr(sums, phase)
            assert (ops.by_kind, ops.data_by_size, ops.data_bytes) == count(world, asked, facts, phase)


def test_rank_0_writes_alone():
    """Two files of one rank: 12 bytes a parameter; all others only meet."""
    asked, world = job(ModelTable(name="gpt2-1.5b")), World(8, 8)
    sums = totals(asked, world, Facts(4096))
    assert sums.data_bytes == pytest.approx(12 * 1_557_611_200, rel=1e-3)
    assert (sums.file_count, sums.bytes_per_rank_least, sums.bytes_per_rank_median) == (2, 0, 0)
    assert plan(asked, world, 0).created == ("model.pt", "optimizer.pt")
    assert all(isinstance(step, Meet) for step in plan(asked, world, 5).save)
    (_, model, optimizer) = programs(plan(asked, world, 0).save, Facts(4096))
    assert {Kind(kind) for kind in model.ops["kind"]} >= {Kind.STAT, Kind.OPEN, Kind.WRITEV, Kind.WRITE, Kind.CLOSE}
    assert int(optimizer.ops["length_bytes"][optimizer.ops["kind"] == Kind.WRITEV].max()) < 400e6


@pytest.mark.parametrize(("readers", "multiplier"), [("rank0", 1), ("all", 8)])
def test_who_reads(readers, multiplier):
    """Rank 0 reads once and broadcasts, or every rank reads all of it."""
    sums = totals(job(ModelTable(name="gpt2-124m"), readers=readers), World(8, 8), Facts(4096))
    assert sums.read_multiplier == pytest.approx(multiplier, rel=0.01)
    meets = [step.kind for step in plan(job(readers=readers), World(8, 8), 1).restore if isinstance(step, Meet)]
    assert meets == (["bcast", "bcast", "barrier"] if readers == "rank0" else ["barrier"])
    runs = [step for step in plan(job(readers=readers), World(8, 8), 1).restore if isinstance(step, Run)]
    assert len(runs) == (0 if readers == "rank0" else 2)


REFUSED = {
    'sharding = "zero1" is not planned for [layout] name = "fsdp_full"': job(sharding="zero1"),
    '[model] shard_bytes means nothing to [layout] name = "fsdp_full"': job(ModelTable(shard_bytes=Bytes(9))),
    '[parallel] tensor = 2 is not planned for [layout] name = "fsdp_full"': job(tensor=2),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused(sentence):
    """What cannot be is refused with its key, its value and a next step."""
    with pytest.raises(JobError) as caught:
        check_plan(REFUSED[sentence], World(4))
    assert sentence in str(caught.value)
    assert caught.value.hint
