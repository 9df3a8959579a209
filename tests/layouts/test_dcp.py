"""DCP with FSDP2: the contract, the reference traces, and the sizes at scale."""

import numpy as np
import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.dcp import DcpLayout, DcpOptions
from ckptstorm.layouts.dcp_items import Items
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, facts_of, plan, totals
from ckptstorm.program import Kind
from ckptstorm.sizes import SIZE_CLASS_NAMES, size_class
from ckptstorm.steps import Call, Facts, WriteFile
from ckptstorm.testing.layouts import LayoutContract, items, programs

# 56,369,664 parameters in 75 tensors: the model of the reference traces.
REFERENCE = Job(
    model=ModelTable(architecture="llama", layers=8, hidden=512, ffn=1408, heads=8, kv_heads=4, vocab=32000)
)
TINY = ModelTable(architecture="llama", layers=1, hidden=12, ffn=10, heads=2, kv_heads=1, vocab=5)


def layout(rank_count, order="plan", model=TINY):
    """DCP for a small model."""
    return DcpLayout(Scene(resolve(model), ParallelSpec(data=rank_count), "fsdp2"), DcpOptions(order=order))


class TestContract(LayoutContract):
    """DCP as on CPU."""

    def make(self, rank_count):
        """A model with fewer rows than the largest world has ranks."""
        return layout(rank_count)


class TestContractBySize(LayoutContract):
    """DCP as with a GPU."""

    def make(self, rank_count):
        """The same model in ascending order of size."""
        return layout(rank_count, "size")


class TestContractOfPlainBytes(LayoutContract):
    """DCP with one opaque tensor."""

    def make(self, rank_count):
        """Two buffers' worth a rank."""
        return layout(rank_count, model=ModelTable(shard_bytes=8192))


# st_blksize: (writes, reads, bytes read out of data files), traced with PyTorch 2.13.0 on Python 3.11
# over an fstat that lies about st_blksize.
TRACED = {
    4096: (2383, 8781, 706_850_316),
    65536: (2383, 4450, 874_372_620),
    1 << 20: (1036, 740, 1_085_318_668),
    4 << 20: (1036, 340, 1_483_777_548),
}
TRACED_DATA_BYTES = 677_991_939
TRACED_METADATA_BYTES = 234_883


@pytest.mark.parametrize("block_size_bytes", TRACED)
def test_reference_trace(block_size_bytes):
    """Four ranks make the traced number of calls, and move the traced bytes but for the law of `.metadata`."""
    sums = totals(REFERENCE, World(4), Facts(block_size_bytes))
    writes, reads, read_bytes = TRACED[block_size_bytes]
    assert (sums.save.by_kind["write"], sums.restore.by_kind["read"]) == (writes, reads)
    assert sums.data_bytes == sums.save.data_bytes - sums.commit_bytes == TRACED_DATA_BYTES
    assert sums.restore.data_bytes - 4 * sums.commit_bytes == read_bytes


def test_reference_histogram():
    """The traced sizes: 1682 up to 4 KiB, 2 up to 64 KiB, 675 up to 1 MiB, 24 up to 16 MiB."""
    sums = totals(REFERENCE, World(4), Facts(4096))
    used = {name: count for name, count in sums.save.data_by_size.items() if count}
    assert used == {"4K": 1682, "64K": 2, "1M": 675, "16M": 24}
    used = {name: count for name, count in sums.restore.data_by_size.items() if count}
    assert used == {"64": 8, "512": 4, "4K": 8057, "64K": 16, "1M": 672, "16M": 24}


def test_reference_calls():
    """mkdir on all, five files opened and synced, one rename; the losers of the mkdir look at the directory."""
    sums = totals(REFERENCE, World(4), Facts(4096))
    del sums.save.by_kind["write"]
    assert sums.save.by_kind == {"mkdir": 4, "open": 5, "fsync": 5, "close": 5, "rename": 1, "stat": 8}
    assert sums.restore.by_kind["open"] == 17
    assert abs(sums.commit_bytes - TRACED_METADATA_BYTES) < TRACED_METADATA_BYTES / 50


@pytest.mark.parametrize(("rank_count", "rank_0_bytes"), [(2, 338_572_809), (4, 169_463_817)])
def test_size_of_the_first_file(rank_count, rank_0_bytes):
    """Rank 0 holds no scalar and no blob, so its file is known to the byte."""
    assert int(DcpLayout(Scene(resolve(REFERENCE.model), ParallelSpec(data=rank_count), "fsdp2"), DcpOptions())
               .census().file_bytes[0]) == rank_0_bytes  # fmt: skip


# model, ranks: MB of rank 0 and of the last rank, items a rank, of those up to 4K, 64K, 1M, 4M, more.
AT_SCALE = {
    ("llama3-8b", 64): (1506, 1506, 873, (195, 0, 384, 288, 6)),
    ("llama3-8b", 1024): (94.2, 81.8, 873, (195, 384, 288, 6, 0)),
    ("llama3-70b", 256): (3307, 3307, 2169, (483, 0, 960, 720, 6)),
    ("llama3-70b", 1024): (827, 802, 2169, (483, 480, 1200, 6, 0)),
    ("llama3-70b", 8192): (125, 43, 2169, (483, 960, 726, 0, 0)),
    ("llama3-405b", 1024): (4756, 4707, 3411, (759, 756, 756, 1134, 6)),
    ("llama3-405b", 8192): (663, 260, 3411, (759, 756, 1896, 0, 0)),
    ("llama3-405b", 16384): (381, 130, 3411, (759, 1512, 1140, 0, 0)),
}


@pytest.mark.parametrize(("name", "rank_count"), AT_SCALE)
def test_sizes_at_scale(name, rank_count):
    """What each rank holds, computed independently from the tensor lists."""
    first, last, item_count, classes = AT_SCALE[name, rank_count]
    held = Items(resolve(ModelTable(name=name)), rank_count, "plan")
    sizes = [held.data_bytes(rank)[~held.is_scalar] for rank in (0, rank_count - 1)]
    assert [float(np.sum(size)) / 1e6 for size in sizes] == pytest.approx([first, last], rel=0.01)
    assert len(sizes[0]) == item_count
    counts = dict(zip(SIZE_CLASS_NAMES, np.bincount(size_class(sizes[0]), minlength=10).tolist(), strict=True))
    up_to_4k = counts["64"] + counts["512"] + counts["4K"]
    above_4m = counts["16M"] + counts["64M"] + counts["256M"] + counts["more"]
    assert (up_to_4k, counts["64K"], counts["1M"], counts["4M"], above_4m) == classes


def test_one_empty_record_stands_for_all_empty_shards():
    """All 12 tensors have ranks without rows here, on 7 ranks one and on 16 many: 36 empty records either way."""
    for rank_count in (7, 16):
        counts = {record.size_bytes: count for record, count in layout(rank_count).census().records.items()}
        assert counts[1513] == 36


def test_order_by_size():
    """With a GPU tensors ascend by their global size, scalars first; blobs stay in front."""
    file = next(item for item in items(layout(2, "size").save(1)) if isinstance(item, WriteFile))
    sizes = [record.pieces[23] for record in file.records if record.tensor_count]
    assert sizes == sorted(sizes)
    assert [record.tensor_count for record in file.records][:2] == [0, 0]


def test_metadata_is_committed_by_rename():
    """Rank 0 alone writes `.metadata.tmp`, whose bytes are those of the name that it gets."""
    saves = [items(layout(3).save(rank)) for rank in range(3)]
    renames = [[item for item in save if isinstance(item, Call) and item.kind is Kind.RENAME] for save in saves]
    assert [len(found) for found in renames] == [1, 0, 0]
    (rename,) = renames[0]
    assert rename.path.content_name == rename.target.name == ".metadata"


def test_metadata_is_synced_before_it_is_written():
    """With blocks larger than `.metadata` DCP's fsync finds an empty file (traced at 1 MiB): planned as it is."""
    orders = {}
    for block_size_bytes in (4096, 1 << 20):
        program = programs(plan(REFERENCE, World(4), 0).save, Facts(block_size_bytes))[-1]
        kinds = [Kind(kind) for kind in program.ops["kind"].tolist()]
        orders[block_size_bytes] = kinds[kinds.index(Kind.WRITE) - 1 : kinds.index(Kind.CLOSE)]
    assert orders[4096] == [Kind.OPEN, *[Kind.WRITE] * 4, Kind.FSYNC]
    assert orders[1 << 20] == [Kind.FSYNC, Kind.WRITE]


def test_overwriting_unlinks_first():
    """An overwrite is unlink and rename, as DCP does, not an atomic replace."""
    job = Job(model=TINY, layout=LayoutTable(overwrite=True))
    kinds = [item.kind for item in items(plan(job, World(2), 0).save) if isinstance(item, Call)]
    assert kinds[-3:] == [Kind.STAT, Kind.UNLINK, Kind.RENAME]


def test_every_scalar_is_read_by_every_rank():
    """A restore opens its own file and every file that holds a scalar or a blob; `.metadata` first."""
    job = Job(model=TINY)
    opened = [
        program.paths[int(row["file"])].name
        for program in programs(plan(job, World(4, 4), 1).restore, facts_of(job, 4096))
        for row in program.ops[program.ops["kind"] == Kind.OPEN]
    ]
    assert opened == [".metadata", "__1_0.distcp", "__2_0.distcp", "__3_0.distcp"]


@pytest.mark.parametrize("key", ["tensor", "pipeline"])
def test_refuses_what_is_not_planned_yet(key):
    """Tensor and pipeline parallelism are refused by name."""
    with pytest.raises(JobError, match=rf"\[parallel\] {key} = 2 is not planned for \[layout\] name = \"dcp\""):
        check_plan(Job(model=ModelTable(name="llama3-8b"), parallel=ParallelTable(**{key: 2})), World(4))


def test_refuses_other_shardings():
    """So is a sharding that is not FSDP2's."""
    with pytest.raises(JobError, match='sharding = "zero1" is not planned'):
        check_plan(Job(model=TINY, parallel=ParallelTable(sharding="zero1")), World(4))
