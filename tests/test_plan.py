"""Plans: whose shards are restored, what is refused, and sums that agree with all plans."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptstorm.errors import JobError
from ckptstorm.job import IoTable, Job, LayoutTable, ModelTable, ParallelTable, RestoreTable, SizeOrAuto, SizeOrLayout
from ckptstorm.plan import (
    World,
    check_plan,
    created_files,
    facts_of,
    plan,
    restore_note,
    restore_source,
    totals,
)
from ckptstorm.program import DATA, Kind
from ckptstorm.sizes import SIZE_CLASS_NAMES, size_class
from ckptstorm.steps import Facts
from ckptstorm.testing.layouts import programs
from ckptstorm.units import Bytes

TINY = ModelTable(architecture="llama", layers=2, hidden=24, ffn=40, heads=4, kv_heads=2, vocab=19)
AUTO, OWN, OTHER = (Job(model=TINY, restore=RestoreTable(from_=way)) for way in ("auto", "own", "other-node"))

WORLDS = st.one_of(
    st.builds(World, st.integers(1, 80), st.integers(1, 20)),
    st.lists(st.integers(0, 5), min_size=1, max_size=60).map(lambda nodes: World(len(nodes), tuple(nodes))),
)


@given(world=WORLDS)
def test_restore_is_a_bijection_to_other_nodes(world):
    """Every rank's shard is restored once; on another node by as many ranks as can be."""
    for job in (AUTO, OWN, OTHER):
        sources = [restore_source(job, world, rank) for rank in range(world.rank_count)]
        assert sorted(sources) == list(range(world.rank_count))
    if world.node_count == 1:
        assert [restore_source(AUTO, world, rank) for rank in range(world.rank_count)] == list(range(world.rank_count))
        return
    most = max(Counter(world.node_of(rank) for rank in range(world.rank_count)).values())
    stay = [
        rank for rank in range(world.rank_count)
        if world.node_of(restore_source(AUTO, world, rank)) == world.node_of(rank)
    ]  # fmt: skip
    assert len(stay) == max(2 * most - world.rank_count, 0)
    assert (restore_note(AUTO, world) == "") == (not stay)


def test_other_node_is_refused_on_one_node():
    """ "other-node" is a promise; one node cannot keep it."""
    with pytest.raises(JobError, match='"other-node" needs two nodes; there is one'):
        check_plan(OTHER, World(4, 4))


def test_other_node_is_refused_when_one_node_has_most_ranks():
    """Nor can a world with more than half of its ranks on one node."""
    with pytest.raises(JobError, match="one node has 3 of 5 ranks, more than half"):
        check_plan(OTHER, World(5, (0, 0, 0, 1, 1)))
    check_plan(AUTO, World(5, (0, 0, 0, 1, 1)))
    assert restore_note(AUTO, World(5, (0, 0, 0, 1, 1))).startswith("one node has more than half of the ranks: 1 ")


def test_restore_reads_the_source():
    """Rank 0 of two nodes reads the file of a rank on the other node."""
    names = {
        path.name for program in programs(plan(AUTO, World(4, 2), 0).restore, Facts(4096)) for path in program.paths
    }
    assert "__2_0.distcp" in names
    assert "__0_0.distcp" not in names


REFUSED = {
    'there is no layout "dpc"; did you mean "dcp"?': Job(model=TINY, layout=LayoutTable(name="dpc")),
    '[layout] ordr: layout "dcp" has no such option; did you mean "order"?': Job(
        model=TINY, layout=LayoutTable(options={"ordr": "plan"})
    ),
    '[layout] order = "random"': Job(model=TINY, layout=LayoutTable(options={"order": "random"})),
    '[layout] order: layout "file_per_rank" has no such option': Job(
        model=TINY, layout=LayoutTable(name="file_per_rank", options={"order": "plan"})
    ),
    "[parallel] tensor = 3 does not divide the 8 ranks": Job(model=TINY, parallel=ParallelTable(tensor=3)),
    "[parallel] tensor = 2 x pipeline = 8 does not divide the 8 ranks": Job(
        model=TINY, parallel=ParallelTable(tensor=2, pipeline=8)
    ),
    "[parallel] pipeline = 4 is more than the 2 layers": Job(model=TINY, parallel=ParallelTable(pipeline=4)),
    "[parallel] tensor = 8 does not divide the 4 heads": Job(model=TINY, parallel=ParallelTable(tensor=8)),
    "[parallel] expert = 2 does not divide the 0 experts": Job(model=TINY, parallel=ParallelTable(expert=2)),
    "[parallel] replicas = 2 means nothing": Job(model=TINY, parallel=ParallelTable(replicas=2)),
    "[parallel] tensor = 2 means nothing beside [model] shard_bytes": Job(
        model=ModelTable(shard_bytes=Bytes(9)), parallel=ParallelTable(tensor=2)
    ),
    "[model] is empty": Job(),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused(sentence):
    """What cannot be is refused with its key, its value and a next step."""
    with pytest.raises(JobError) as caught:
        check_plan(REFUSED[sentence], World(8))
    assert sentence in str(caught.value)
    assert caught.value.hint


JOBS = {
    "dcp": Job(model=TINY),
    "dcp by size": Job(model=TINY, layout=LayoutTable(options={"order": "size"})),
    "file per rank": Job(model=TINY, layout=LayoutTable(name="file_per_rank")),
    "plain bytes": Job(model=ModelTable(shard_bytes=Bytes(100_000))),
}


def count(world, job, facts, phase):
    """Ops of all ranks of a phase, by brute force: kinds, size classes, bytes."""
    by_kind, by_size, data_bytes = Counter(), np.zeros(len(SIZE_CLASS_NAMES), dtype=int), 0
    for rank in range(world.rank_count):
        for program in programs(getattr(plan(job, world, rank), phase), facts):
            by_kind.update(Kind(kind).word for kind in program.ops["kind"].tolist())
            moved = program.expected_bytes()[np.isin(program.ops["kind"], DATA)]
            by_size += np.bincount(size_class(moved), minlength=len(by_size))
            data_bytes += int(moved.sum())
    return dict(by_kind), dict(zip(SIZE_CLASS_NAMES, by_size.tolist(), strict=True)), data_bytes


@pytest.mark.parametrize("rank_count", [1, 2, 3, 7, 25, 64])
@pytest.mark.parametrize("name", JOBS)
def test_totals_are_the_sum_of_all_plans(name, rank_count):
    """Closed form equals brute force: every op kind, size class and byte, save and restore."""
    world, job = World(rank_count, 3), JOBS[name]
    for facts in (Facts(4096), Facts(1 << 20, "fdatasync", 50_000)):
        sums = totals(job, world, facts)
        for phase in ("save", "restore"):
            ops = getattr(sums, phase)
            assert (ops.by_kind, ops.data_by_size, ops.data_bytes) == count(world, job, facts, phase)
        assert sums.is_restore_exact


@pytest.mark.parametrize("name", JOBS)
def test_restore_totals_beyond_the_exact(name):
    """One rank of each class comes within 1 % of all ranks' bytes, and 3 % of their reads."""
    world, job, facts = World(67, 8), JOBS[name], Facts(4096)
    sums = totals(job, world, facts)
    by_kind, _, data_bytes = count(world, job, facts, "restore")
    assert not sums.is_restore_exact
    assert sums.restore.data_bytes == pytest.approx(data_bytes, rel=0.01)
    assert sums.restore.by_kind["read"] == pytest.approx(by_kind["read"], rel=0.03)


@pytest.mark.parametrize("rank_count", [1, 3, 1000])
def test_twelve_bytes_a_parameter(rank_count):
    """FSDP2 saves weight and two moments in fp32, once: 12 bytes a parameter and what the archives add."""
    job = Job(model=ModelTable(name="llama3-8b"))
    sums = totals(job, World(rank_count), facts_of(job, 4096))
    assert 0 <= sums.data_bytes - 12 * 8_030_261_248 <= 1577 * sums.record_count + 10**6


def test_created_files():
    """The clean-up knows every name without a plan."""
    job = Job(model=TINY)
    for rank in range(3):
        assert created_files(job, World(3), rank) == plan(job, World(3), rank).created
    assert created_files(job, World(3), 0) == ("__0_0.distcp", ".metadata.tmp", ".metadata")


def test_hundred_thousand_ranks():
    """A 405B model on 100,000 ranks: one rank's plan, and the sums."""
    job, world = Job(model=ModelTable(name="llama3-405b")), World(100_000, 8)
    planned = plan(job, world, 54_321)
    sums = totals(job, world, Facts(4096))
    assert planned.created == ("__54321_0.distcp",)
    assert sums.save.by_kind["open"] == 100_001
    assert sums.save.by_kind["mkdir"] == 100_000
    assert sums.data_bytes > 12 * 405_853_388_800
    assert (sums.bytes_per_rank_least, sums.file_count) == (0, 100_001)


def test_facts_of_a_job():
    """[io] block_size replaces what the target says."""
    assert facts_of(Job(), 4096) == Facts(4096, "layout", 0)
    io = IoTable(block_size=SizeOrAuto(1 << 20), transfer=SizeOrLayout(1 << 16), durability="fsync")
    assert facts_of(Job(io=io), 4096) == Facts(1 << 20, "fsync", 1 << 16)
