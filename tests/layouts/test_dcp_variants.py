"""DCP's other ways: HSDP and DDP deals against PyTorch's algorithm, threads, a file for each tensor."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.dcp import DcpLayout, DcpOptions
from ckptstorm.layouts.dcp_items import Items
from ckptstorm.layouts.dcp_replicas import Grid, deal_replicas
from ckptstorm.layouts.formats.dcp_buckets import deal_by_size
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.shard import chunk_rows
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, totals
from ckptstorm.steps import Facts, Run, WriteFile
from ckptstorm.testing.layouts import LayoutContract, items, programs, runs
from tests.layouts.test_dcp import REFERENCE, TINY
from tests.layouts.test_dcp_dedup import BLOBS, dedup_save_plans


def replicas_of(rank_count):
    """A divisor of the ranks that is no trivial one where there is one."""
    return next((divisor for divisor in (2, 3, 7) if rank_count % divisor == 0 and divisor < rank_count), 1)


def layout(rank_count, sharding="fsdp2", **options):
    """DCP for a small model."""
    parallel = ParallelSpec(data=rank_count)
    scene = Scene(resolve(TINY), parallel, sharding, replicas=replicas_of(rank_count))
    return DcpLayout(scene, DcpOptions(**options))


class Wide(LayoutContract):
    """The contract, and its sums for 4 and 64 ranks."""

    @pytest.mark.parametrize("rank_count", [4, 64])
    def test_census_of_many(self, rank_count):
        """Closed form equals brute force on more ranks than the model has rows."""
        self.test_census_is_the_sum_of_all_plans(rank_count)
        self.test_reads_are_of_whole_records(rank_count)

    @pytest.mark.parametrize("rank_count", [1, 3, 4, 7, 64])
    def test_ops_are_those_of_all_plans(self, rank_count):
        """Ops of a save in closed form are the ops of all ranks' programs, by kind."""
        made = self.make(rank_count)
        census, counted = made.census(), Counter()
        for rank in range(rank_count):
            for program in programs(made.save(rank), Facts(4096)):
                counted.update(program.ops["kind"].tolist())
        by_class = Counter()
        for rank, count in made.save_classes():
            files = [item for item in items(made.save(rank)) if isinstance(item, WriteFile)]
            by_class["files"] += len(files) * count
        assert by_class["files"] == census.file_count + census.commit_files
        assert sum(count for _, count in made.save_classes()) == rank_count
        assert sum(count for _, count in made.restore_classes()) == rank_count


class TestHsdp(Wide):
    """Shards with replicas."""

    def make(self, rank_count):
        """Two or three replicas."""
        return layout(rank_count, "hsdp")


class TestHsdpBySize(Wide):
    """Shards with replicas, as with a GPU."""

    def make(self, rank_count):
        """Ascending."""
        return layout(rank_count, "hsdp", order="size")


class TestDdp(Wide):
    """One shard with as many replicas as ranks."""

    def make(self, rank_count):
        """Every rank holds all."""
        return layout(rank_count, "ddp")


class TestThreads(Wide):
    """Several files a rank."""

    def make(self, rank_count):
        """Three threads."""
        return layout(rank_count, threads=3)


class TestHsdpThreads(Wide):
    """Several files a rank, and replicas."""

    def make(self, rank_count):
        """Two threads."""
        return layout(rank_count, "hsdp", threads=2)


class TestFilePerTensor(Wide):
    """A file an item."""

    def make(self, rank_count):
        """Fully sharded."""
        return layout(rank_count, file_per_tensor=True)


class TestHsdpFilePerTensor(Wide):
    """A file an item, and replicas."""

    def make(self, rank_count):
        """Two or three replicas."""
        return layout(rank_count, "hsdp", file_per_tensor=True)


def plan_of(rank, tensors, grid):
    """The local save plan of `rank`, for (rows, bytes of a row) tensors on a mesh, with AdamW."""

    def shard(name, row_count, row_bytes):
        most, index = -(-row_count // grid.shard_count), rank % grid.shard_count
        has_rows = chunk_rows(row_count, grid.shard_count, index) > 0
        return (name, index * most if has_rows else row_count), row_count * row_bytes

    plan = [shard(("weight", at), *tensor) for at, tensor in enumerate(tensors)]
    for at, tensor in enumerate(tensors):
        plan.append((("step", at), 4))
        plan += [shard((state, at), *tensor) for state in ("exp_avg", "exp_avg_sq")]
    return plan + [(("blob", at), 0) for at in range(BLOBS)]


@given(
    tensors=st.lists(st.tuples(st.integers(1, 40), st.sampled_from([1, 4, 4, 4, 32, 400])), min_size=1, max_size=10),
    shard_count=st.integers(1, 24),
    replica_count=st.integers(1, 12),
)
@example(tensors=[(3, 4000), (2, 2000), (1, 4)], shard_count=5, replica_count=3)
@example(tensors=[(1, 4)] * 9, shard_count=24, replica_count=11)
def test_deal_is_that_of_torch(tensors, shard_count, replica_count):
    """Every shard, scalar, blob and empty record goes to the rank that `dedup_save_plans` chooses, ties included."""
    grid, count = Grid(shard_count, replica_count), len(tensors)
    kept = dedup_save_plans([plan_of(rank, tensors, grid) for rank in range(grid.rank_count)])
    names = [("weight", at) for at in range(count)]
    names += [(state, at) for at in range(count) for state in ("step", "exp_avg", "exp_avg_sq")]
    sizes = np.array([4 if name == "step" else tensors[at][0] * tensors[at][1] for name, at in names])
    used = np.array(
        [0 if name == "step" else -(-tensors[at][0] // -(-tensors[at][0] // shard_count)) for name, at in names]
    )
    dealt = deal_replicas(sizes, used, BLOBS, grid)
    assert dealt.blob_rank.tolist() == [kept["blob", at] for at in range(BLOBS)]
    writers = [dealt.writers(shard) for shard in range(shard_count)]
    for slot, (name, at) in enumerate(names):
        row_count = tensors[at][0]
        if name == "step":
            assert dealt.shared_rank[slot] == kept[name, at]
            continue
        assert dealt.shared_rank[slot] == kept.get(((name, at), row_count), -1)
        for shard in range(used[slot]):
            assert writers[shard][slot] == kept[(name, at), shard * -(-row_count // shard_count)]


def test_a_deal_serves_many_shards():
    """A thousand shards of Llama 3 70B fall into a few deals: a plan does not walk them all."""
    held = Items(resolve(ModelTable(name="llama3-70b")), 1024 * 8, "plan", 8)
    assert len(held.replica_deal.places) < 30


@given(sizes=st.lists(st.integers(1, 50), max_size=30), bin_count=st.integers(1, 6))
def test_files_are_dealt_as_in_torch(sizes, bin_count):
    """Each item goes to the first of the least full buckets (`_split_by_size_and_type`)."""
    bins, expected = [0] * bin_count, []
    for size in sizes:
        expected.append(bins.index(min(bins)))
        bins[expected[-1]] += size
    assert deal_by_size(sizes, bin_count).tolist() == expected


def reference(sharding="fsdp2", replicas=1, **options):
    """The model of the reference traces, saved in another way."""
    return Job(
        model=REFERENCE.model,
        parallel=ParallelTable(sharding=sharding, replicas=replicas),
        layout=LayoutTable(options=options),
    )


def test_reference_of_hsdp_and_ddp():
    """Traced on four ranks: 2 x 2 replicas write 169.2 to 169.5 MB each, DDP 201, 201, 138 and 138."""
    hsdp, ddp = totals(reference("hsdp", 2), World(4)), totals(reference("ddp"), World(4))
    assert 169.2e6 <= hsdp.bytes_per_rank_least <= hsdp.bytes_per_rank_most <= 169.55e6
    assert ddp.bytes_per_rank_least == pytest.approx(138e6, rel=0.01)
    assert ddp.bytes_per_rank_most == pytest.approx(201e6, rel=0.01)


def test_reference_of_threads():
    """Traced with four threads: 16 files of 42.35 to 42.43 MB, as many writes as with one, 56 files opened to load."""
    sums = totals(reference(threads=4), World(4), Facts(4096))
    assert (sums.file_count, sums.save.by_kind["write"], sums.save.by_kind["fsync"]) == (17, 2383, 17)
    assert sums.restore.by_kind["open"] == 56
    made = DcpLayout(Scene(resolve(REFERENCE.model), ParallelSpec(data=4), "fsdp2"), DcpOptions(threads=4))
    drafts = [run.drafts for rank in range(4) for run in runs(made.save(rank)) if len(run.drafts) == 4]
    sizes = [file.path.size_bytes for thread in drafts for (file,) in thread]
    assert len(sizes) == 16
    assert 42.34e6 <= min(sizes) <= max(sizes) <= 42.44e6


def test_reference_of_files_by_tensor():
    """Traced: 988 files made and synced, 1252 opens to load, as many writes as with one file a rank."""
    sums = totals(reference(file_per_tensor=True), World(4), Facts(4096))
    assert (sums.file_count, sums.save.by_kind["fsync"], sums.save.by_kind["write"]) == (988, 988, 2383)
    assert sums.restore.by_kind["open"] == 1252


@pytest.mark.parametrize(
    ("sharding", "replicas", "multiplier"), [("fsdp2", 1, 1), ("hsdp", 2, 2), ("hsdp", 4, 4), ("ddp", 1, 8)]
)
def test_read_multiplier(sharding, replicas, multiplier):
    """A restore reads each byte once a replica (r x for HSDP, N x for DDP), and tails of small records twice."""
    sums = totals(reference(sharding, replicas), World(8), Facts(4096))
    read = sums.restore.data_bytes - 8 * sums.commit_bytes
    assert read / sums.data_bytes == pytest.approx(multiplier, rel=0.09)


def test_threads_are_threads():
    """Each file of a rank is a draft of its own, in one run."""
    (run,) = (step for step in layout(2, threads=3).save(1) if isinstance(step, Run) and len(step.drafts) > 1)
    assert [file.path.name for (file,) in run.drafts] == ["__1_0.distcp", "__1_1.distcp", "__1_2.distcp"]


REFUSED = {
    "replicas = 3 does not divide the 4 ranks": reference("hsdp", 3),
    "threads = 2 beside file_per_tensor = true: which thread takes": reference(threads=2, file_per_tensor=True),
    'order = "size" means nothing beside [layout] threads = 2': reference(threads=2, order="size"),
    "threads = 0 is not what": reference(threads=0),
}


@pytest.mark.parametrize("said", REFUSED)
def test_refuses_by_name(said):
    """What DCP cannot do, or no plan can say, is refused with its key."""
    with pytest.raises(JobError) as refused:
        check_plan(REFUSED[said], World(4))
    assert said in str(refused.value)
