"""Restores in another world: what the framework would read, where it lies, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable, RestoreParallelTable, RestoreTable
from ckptstorm.plan import World, check_plan, plan, sides_of, totals
from ckptstorm.program import READS
from ckptstorm.scene import layout_of, reader_of
from ckptstorm.steps import Meet, ReadFile
from ckptstorm.testing.layouts import items, programs
from ckptstorm.units import Bytes
from tests.layouts.whole_world import FACTS, Disk

TINY = ModelTable(architecture="llama", layers=2, hidden=24, ffn=40, heads=4, kv_heads=2, vocab=19)
MOE = ModelTable(architecture="mixtral", layers=2, hidden=24, ffn=40, heads=4, kv_heads=2, vocab=19, experts=4)


def job(layout="dcp", save=None, restore=None, model=TINY, **options):
    """A job that saves in one world and restores in another."""
    return Job(
        model=model,
        parallel=ParallelTable(**(save or {})),
        layout=LayoutTable(name=layout, options=options),
        restore=RestoreTable(parallel=RestoreParallelTable(**(restore or {}))),
    )


def world_of(asked):
    """The MPI world that a job needs."""
    return World(max(asked.parallel.ranks, asked.restore.parallel.ranks or 0), 2)


MEGATRON = {"sharding": "distributed_optimizer"}
CASES = {
    "dcp 4 to 2": job(save={"ranks": 4}, restore={"ranks": 2}),
    "dcp 2 to 5": job(save={"ranks": 2}, restore={"ranks": 5}),
    "dcp 7 to 3": job(save={"ranks": 7}, restore={"ranks": 3}),
    "dcp threads": job(save={"ranks": 4}, restore={"ranks": 3}, threads=2),
    "dcp file per tensor": job(save={"ranks": 4}, restore={"ranks": 3}, file_per_tensor=True),
    "dcp hsdp to fsdp": job(
        save={"ranks": 6, "sharding": "hsdp", "replicas": 2}, restore={"ranks": 4, "sharding": "fsdp2"}
    ),
    "dcp fsdp to ddp": job(save={"ranks": 3}, restore={"ranks": 4, "sharding": "ddp"}),
    "dcp ddp to fsdp": job(save={"ranks": 4, "sharding": "ddp"}, restore={"ranks": 3, "sharding": "fsdp2"}),
    "dcp plain bytes": job(save={"ranks": 4}, restore={"ranks": 3}, model=ModelTable(shard_bytes=Bytes(100_003))),
    "file per rank": job("file_per_rank", {"ranks": 4}, {"ranks": 3}),
    "file per rank, cut anew": job(
        "file_per_rank", {"ranks": 8, "tensor": 2, "pipeline": 2}, {"ranks": 4, "tensor": 4, "pipeline": 1}
    ),
    "file per rank, experts": job(
        "file_per_rank", {"ranks": 4, "expert": 2}, {"ranks": 8, "expert": 4, "tensor": 2}, model=MOE
    ),
    "file per rank, ddp": job("file_per_rank", {"ranks": 4}, {"ranks": 2, "sharding": "ddp"}),
    "file per rank, plain bytes": job(
        "file_per_rank", {"ranks": 4}, {"ranks": 3}, model=ModelTable(shard_bytes=Bytes(1001))
    ),
    "fsdp_full, rank 0": job("fsdp_full", {"ranks": 4}, {"ranks": 2}),
    "fsdp_full, all": job("fsdp_full", {"ranks": 2}, {"ranks": 4}, readers="all"),
    "safetensors": job("safetensors", {"ranks": 2}, {"ranks": 4}, shard_size="10KiB"),
    "megatron_dist 4 to 2": job("megatron_dist", {"ranks": 8, "tensor": 2, **MEGATRON}, {"ranks": 4}),
    "megatron_dist 2 to 3": job("megatron_dist", {"ranks": 4, "pipeline": 2, **MEGATRON}, {"ranks": 6}, workers=2),
    "megatron_dist, parallel load": job(
        "megatron_dist", {"ranks": 4, **MEGATRON}, {"ranks": 3}, fully_parallel_load=True
    ),
    "megatron_legacy": job("megatron_legacy", {"ranks": 8, "tensor": 2, **MEGATRON}, {"ranks": 4}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_another_world_reads_what_was_written(name, tmp_path):
    """All ranks of the save write, all ranks of the restore read, every byte verified; sums are those of the plans."""
    asked = CASES[name]
    world = world_of(asked)
    check_plan(asked, world)
    sides = sides_of(asked, world)
    for rank in range(world.rank_count):
        planned = plan(asked, world, rank)
        assert bool(planned.save) == (rank < sides.save.rank_count)
        assert bool(planned.restore) == (rank < sides.restore.rank_count)
        assert not planned.created or planned.save
    disk = Disk(asked, world, tmp_path)
    disk.run("save")
    notes = disk.run("restore")
    assert sum(note.mismatch_count for note in notes) == 0
    assert sum(note.verified_bytes for note in notes) == totals(asked, world, FACTS).restore.data_bytes > 0


@pytest.mark.parametrize("name", CASES)
def test_classes_stand_for_all_ranks(name):
    """Classes of readers add up to the world that restores."""
    world = world_of(CASES[name])
    classes = reader_of(CASES[name], world).restore_classes()
    assert sum(count for _, count in classes) == sides_of(CASES[name], world).restore.rank_count


@pytest.mark.parametrize("name", CASES)
def test_the_same_world_by_the_other_way(name):
    """A restore in the world that saved is the layout's own restore."""
    asked = CASES[name]
    world = World(asked.parallel.ranks, 2)
    same = Job(model=asked.model, parallel=asked.parallel, layout=asked.layout)
    layout = layout_of(same, world)
    scene = layout._scene
    reader = layout.resharded(scene)
    for rank in range(world.rank_count):
        if asked.layout.name == "file_per_rank":
            own, other = (_bytes(each.restore(rank)) for each in (layout, reader))
            assert own == other
        else:
            assert reader.restore(rank) == layout.restore(rank)


def _bytes(steps):
    return sum(int(program.expected_bytes()[[kind in READS for kind in program.ops["kind"]]].sum())
               for program in programs(steps, FACTS))  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(saved=st.integers(1, 40), restored=st.integers(1, 40))
def test_dcp_readers_cover_every_row(saved, restored):
    """Every rank reads exactly the stored shards that its rows lie in: together they cover all rows of all tensors."""
    asked = job(save={"ranks": saved}, restore={"ranks": restored})
    world = World(max(saved, restored), 8)
    reader, rows = reader_of(asked, world), layout_of(asked, world)._items.rows
    stored, held = rows.most_rows(saved), rows.most_rows(restored)
    if saved == restored:
        return
    for rank in range(restored):
        wanted = reader.wanted(rank)
        for tensor in range(rows.tensor_count):
            low = rank * held[tensor]
            high = min(low + held[tensor], rows.row_count[tensor])
            parts = wanted.parts[wanted.slots == tensor].tolist()
            expected = (
                [p for p in range(saved) if p * stored[tensor] < high and (p + 1) * stored[tensor] > low]
                if high > low
                else []
            )
            assert parts == expected  # fmt: skip


def test_dcp_read_amplification():
    """4 to 2 ranks reads each record once; 4 to 3 one and a half times and more; replicas read all of it each."""
    model = ModelTable(architecture="llama", layers=8, hidden=512, ffn=1408, heads=8, kv_heads=4, vocab=32000)

    def times(restore):
        asked = job(save={"ranks": 4}, restore=restore, model=model)
        sums = totals(asked, World(4), FACTS)
        return sums.restore.data_bytes / sums.data_bytes

    assert times({"ranks": 2}) == pytest.approx(706.3 / 678.2, abs=0.01)
    assert times({"ranks": 3}) == pytest.approx(1059.4 / 678.2, abs=0.02)
    assert times({"ranks": 2, "sharding": "ddp"}) == pytest.approx(2 * 1.04, abs=0.02)


def test_file_per_rank_reads_no_byte_twice():
    """Where rows are cut, plain tensors are read without amplification, in any world."""
    for ranks in (1, 3, 5):
        asked = job("file_per_rank", {"ranks": 5}, {"ranks": ranks})
        sums = totals(asked, World(5), FACTS)
        assert sums.restore.data_bytes == sums.data_bytes


REFUSED = {
    "there are only 4 ranks": (job(restore={"ranks": 8}), 4),
    "this job needs 8 ranks (the larger of save and restore), and there are 4": (
        job(save={"ranks": 8}, restore={"ranks": 2}), 4,
    ),
    "ZeRO loads another data-parallel size only from a universal checkpoint": (
        job("deepspeed", {"ranks": 4, "sharding": "zero1"}, {"ranks": 2}), 4,
    ),
    "DLIO has no restore in another world": (job("mlperf", {"ranks": 4, "sharding": "zero3"}, {"ranks": 2}), 4),
    "no restore in another one is planned": (job("orbax", {"ranks": 4}, {"ranks": 2}), 4),
    "is one stream of blocks a rank": (job("shared_file", {"ranks": 4}, {"ranks": 2}), 4),
    "is one stream a node": (job("file_per_node", {"ranks": 4}, {"ranks": 2}, ranks_per_node=2), 4),
    "tensor = 2 cannot be restored with tensor = 1": (
        job("megatron_dist", {"ranks": 4, "tensor": 2, **MEGATRON}, {"ranks": 4, "tensor": 1}), 4,
    ),
    "Megatron loads only equal ones": (
        job("megatron_dist", {"ranks": 4, **MEGATRON}, {"ranks": 64}, model=ModelTable(name="llama3-8b")), 64,
    ),
    '[restore.parallel] sharding = "zero1" is not planned': (job(restore={"sharding": "zero1"}), 4),
    "[restore.parallel] tensor = 3 does not divide the 4 ranks": (job(restore={"tensor": 3}), 4),
    '"other-node" cannot be promised beside [restore.parallel]': (
        Job(model=TINY, restore=RestoreTable(from_="other-node", parallel=RestoreParallelTable(ranks=2))), 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused(sentence):
    """What the framework cannot load is refused by name before anything is written."""
    asked, ranks = REFUSED[sentence]
    with pytest.raises(JobError) as caught:
        check_plan(asked, World(ranks, 2))
    assert sentence in str(caught.value)
    assert caught.value.hint


def test_readers_meet_alike():
    """All ranks that restore meet in the same order."""
    for asked in CASES.values():
        world = world_of(asked)
        ranks = range(sides_of(asked, world).restore.rank_count)
        orders = {tuple(step for step in plan(asked, world, rank).restore if isinstance(step, Meet)) for rank in ranks}
        assert len(orders) == 1


def test_files_of_other_nodes_are_opened_by_their_writers_name():
    """A reader beyond the world that saved opens files of ranks that did."""
    asked = job(save={"ranks": 2}, restore={"ranks": 4})
    names = {
        item.path.name for item in items(plan(asked, World(4), 3).restore) if isinstance(item, ReadFile)
    }  # fmt: skip
    assert "__1_0.distcp" in names
    assert not any(name.startswith("__3_") for name in names)
