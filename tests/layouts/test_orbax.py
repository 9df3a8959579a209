"""The approximation of Orbax: the contract, the traced syncs and renames, and a save that is read back."""

import itertools

import numpy as np
import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.formats import orbax_io
from ckptstorm.layouts.orbax import OrbaxLayout, OrbaxOptions
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, plan, totals
from ckptstorm.program import READS, Kind
from ckptstorm.scene import layout_of
from ckptstorm.steps import Facts, ReadFile, WriteFile
from ckptstorm.testing.layouts import LayoutContract, items, programs
from ckptstorm.units import Bytes
from tests.layouts.whole_world import Disk, assert_saves_and_restores, assert_totals_are_the_sum

#: On 64 ranks some hold nothing: no tensor has more than 60 rows.
TINY = ModelTable(architecture="llama", layers=2, hidden=48, ffn=60, heads=4, kv_heads=2, vocab=50)


def job(model=TINY, **options):
    """Gathered writes of 20,000 bytes: several of them in a file."""
    return Job(model=model, layout=LayoutTable(name="orbax", options={"write_size": 20_000} | options))


def written_items(layout, rank):
    """The files that a rank writes, in order."""
    return [item for item in items(layout.save(rank)) if isinstance(item, WriteFile)]


class TestContract(LayoutContract):
    """The contract, with what renames of locked files and gathered writes mean for it."""

    def make(self, rank_count):
        """A model with fewer rows than the largest world has ranks."""
        scene = Scene(resolve(TINY), ParallelSpec(data=rank_count), "fsdp2")
        return OrbaxLayout(scene, OrbaxOptions(write_size=20_000))

    @pytest.mark.parametrize("rank_count", (1, 3, 4, 7, 64))
    def test_no_two_ranks_write_one_file(self, rank_count):
        """Every file, locked and renamed ones too, is created by one rank, which says so beforehand."""
        layout, seen = self.make(rank_count), []
        for rank in range(rank_count):
            calls = [item for item in items(layout.save(rank)) if not isinstance(item, WriteFile)]
            calls += [call for item in written_items(layout, rank) for call in item.closing]
            made = {item.path.name for item in written_items(layout, rank)}
            made |= {call.target.name for call in calls if call.kind is Kind.RENAME}
            assert made == set(layout.created(rank))
            seen += layout.created(rank)
        assert len(seen) == len(set(seen))

    @pytest.mark.parametrize("block_size_bytes", (4096, 1 << 20))
    @pytest.mark.parametrize("rank_count", (1, 3, 4, 7, 64))
    def test_reads_find_what_was_written(self, rank_count, block_size_bytes):
        """A restore opens files that a save made, under their final names, of the same size and writer."""
        layout = self.make(rank_count)
        made = {
            (item.path.content_name, item.path.rank, item.path.size_bytes)
            for rank in range(rank_count)
            for item in written_items(layout, rank)
        }
        for rank in range(rank_count):
            for program in programs(layout.restore(rank), Facts(block_size_bytes)):
                assert (program.expected_bytes()[np.isin(program.ops["kind"], READS)] > 0).all()
                for path in program.paths:
                    assert not path.name or (path.name, path.rank, path.size_bytes) in made

    @pytest.mark.parametrize("rank_count", (1, 3, 4, 7, 64))
    def test_reads_are_of_whole_records(self, rank_count):
        """The reads of a rank's data files are its arrays, one by one, and tile each file that was written."""
        layout = self.make(rank_count)
        for rank in range(rank_count):
            data = {item.path.name: item.path.size_bytes for item in written_items(layout, rank) if is_data(item)}
            places = {name: [(0, 0)] for name in data}
            for item in items(layout.restore(rank)):
                if isinstance(item, ReadFile) and is_data(item):
                    (at,), (record,) = item.offsets_bytes, item.records
                    places[item.path.name].append((at, at + record.size_bytes))
            for name, found in places.items():
                assert all(low[1] == high[0] for low, high in itertools.pairwise(found))
                assert found[-1][1] == data[name]


def is_data(item):
    """Whether a file holds arrays."""
    return ".d." in item.path.name and ".index-" not in item.path.name


@pytest.mark.parametrize(("index_rounds", "syncs", "renames"), [(4, 34, 10), (17, 86, 23)])
def test_traced_syncs_and_renames(index_rounds, syncs, renames):
    """One process makes the syncs (half of them of directories), locks and renames of the two traces."""
    sums = totals(job(index_rounds=index_rounds), World(1), Facts(4096)).save.by_kind
    assert sums["fsync"] == sums["fsync_dir"] == syncs // 2
    assert sums["rename"] == renames
    # The last rename stands for that of the directory, which nobody locks.
    assert sums["lock"] == sums["unlock"] == renames - 1


def test_sizes_around_the_arrays():
    """The laws give what one process wrote for 66 arrays in four chunks each."""
    assert orbax_io.node_bytes(66, 4) == 30_882
    assert [orbax_io.manifest_bytes(version) for version in (0, 1)] == [113, 158]
    assert abs(orbax_io.manifest_bytes(6) - 387) <= 10
    assert orbax_io.arrays_bytes(66) == 8513
    assert (orbax_io.metadata_bytes(66), orbax_io.sharding_bytes(66)) == (14_215, 17_115)


def test_the_merged_index_knows_every_chunk():
    """All ranks read the merged index, which grows with arrays and ranks."""
    sizes = {}
    for rank_count in (1, 4):
        paths = programs(layout_of(job(), World(rank_count)).restore(0), Facts(4096))[0].paths
        sizes[rank_count] = next(path.size_bytes for path in paths if path.name == "d.merged")
    arrays = 3 * resolve(TINY).tensor_count
    assert sizes == {1: orbax_io.node_bytes(arrays, 1), 4: orbax_io.node_bytes(arrays, 4)}
    assert sizes[4] > 2 * sizes[1]


def test_every_array_is_an_open_and_a_read():
    """A restore opens, looks at, reads and closes the data file once for each array, and three files of the index."""
    asked = job()
    arrays = 3 * resolve(TINY).tensor_count
    kinds = [
        Kind(kind)
        for program in programs(plan(asked, World(2, 2), 1).restore, Facts(4096))
        for kind in program.ops["kind"].tolist()
    ]
    assert kinds[:2] == [Kind.STAT, Kind.READDIR]
    assert kinds[2:] == [Kind.OPEN, Kind.FSTAT, Kind.READ, Kind.CLOSE] * (arrays + 3)


def test_writes_are_gathered():
    """A rank's data goes out in writes of the size asked for, in two files of about as many bytes."""
    asked = job(ModelTable(name="llama3-8b"), write_size="60MB")
    (program,) = programs(layout_of(asked, World(64)).save(9), Facts(4096))
    lengths: dict[str, list[int]] = {}
    for row in program.ops[program.ops["kind"] == Kind.WRITE]:
        lengths.setdefault(program.paths[int(row["file"])].name, []).append(int(row["length_bytes"]))
    first, second = lengths["ocdbt.process_9.d.0"], lengths["ocdbt.process_9.d.1"]
    assert sum(first) + sum(second) == 12 * resolve(ModelTable(name="llama3-8b")).parameter_count // 64
    assert {*first[:-1], *second[:-1]} == {60_000_000}
    assert abs(sum(first) - sum(second)) < 60_000_000


def test_a_file_is_replaced_under_its_lock():
    """The manifest: open, lock, write, sync, rename, sync of the directory, unlock, close."""
    (program,) = programs(layout_of(job(), World(2)).save(1), Facts(4096))
    kinds = [Kind(kind) for kind in program.ops["kind"].tolist()]
    at = kinds.index(Kind.LOCK)
    assert kinds[at - 1 : at + 7] == [
        Kind.OPEN, Kind.LOCK, Kind.WRITE, Kind.FSYNC, Kind.RENAME, Kind.FSYNC_DIR, Kind.UNLOCK, Kind.CLOSE,
    ]  # fmt: skip


@pytest.mark.parametrize("rank_count", [1, 3, 4, 7, 64])
def test_totals(rank_count):
    """Totals of any world are the sum of all ranks' programs; files are those that stay."""
    assert_totals_are_the_sum(job(), World(rank_count, 4))


@pytest.mark.parametrize("model", [TINY, ModelTable(shard_bytes=Bytes(50_000))])
def test_every_byte_comes_back(model, tmp_path):
    """Five ranks save on a real file system, and each reads its arrays; no lock and no mark is left over."""
    asked, world = job(model), World(5)
    disk = Disk(asked, world, tmp_path)
    disk.run("save")
    assert len(disk.names()) == totals(asked, world, Facts(4096)).file_count
    assert not [name for name in disk.names() if name.endswith(("__lock", "-tmp"))]
    for path in (tmp_path / "step-0").iterdir():
        path.unlink()
    (tmp_path / "step-0").rmdir()
    assert_saves_and_restores(asked, world, tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"data_files": 0}, r"data_files = 0 is not what layout \"orbax\" takes"),
        ({"index_rounds": -1}, r"index_rounds = -1 is not what layout \"orbax\" takes"),
        ({"write_size": "much"}, r'write_size = "much": expected a size'),
    ],
)
def test_refuses_what_is_too_little(options, says):
    """Counts and sizes that make no checkpoint are refused by their key."""
    with pytest.raises(JobError, match=rf"\[layout\] {says}"):
        check_plan(job(**options), World(2))


def test_refuses_an_overwrite():
    """Orbax saves into new directories only."""
    asked = Job(model=TINY, layout=LayoutTable(name="orbax", overwrite=True))
    with pytest.raises(JobError, match=r"\[layout\] overwrite = true is not planned"):
        check_plan(asked, World(2))


def test_refuses_copies():
    """Of copies Orbax saves one: only FSDP's cut is planned."""
    asked = Job(model=TINY, layout=LayoutTable(name="orbax"), parallel=ParallelTable(sharding="ddp"))
    with pytest.raises(JobError, match=r'sharding = "ddp" is not planned for .* "orbax"'):
        check_plan(asked, World(2))
