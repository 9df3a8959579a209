"""One file for all ranks: the contract, who writes where, and a save that is read back."""

import os
from collections import Counter

import numpy as np
import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.shared_file import SharedFileLayout, SharedFileOptions
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, plan, totals
from ckptstorm.program import WRITES, Kind, open_flags
from ckptstorm.steps import Facts
from ckptstorm.testing.layouts import programs
from ckptstorm.units import Bytes
from tests.layouts.shared_contract import SharedFileContract, ranges
from tests.layouts.whole_world import Disk, assert_saves_and_restores, assert_totals_are_the_sum

#: On 64 ranks some hold nothing: no tensor has more than 60 rows.
TINY = ModelTable(architecture="llama", layers=2, hidden=48, ffn=60, heads=4, kv_heads=2, vocab=50)
PATTERNS = ("segmented", "strided")


def job(pattern, model=TINY, block_size=5000, **parallel):
    """A job with blocks that do not divide a shard."""
    options = {"pattern": pattern, "block_size": block_size}
    return Job(
        model=model,
        layout=LayoutTable(name="shared_file", options=options),
        parallel=ParallelTable(**parallel),
    )


class TestContractOfSegments(SharedFileContract):
    """One rank's bytes after the other's."""

    pattern = "segmented"

    def make(self, rank_count):
        """Blocks of 5000 bytes."""
        scene = Scene(resolve(TINY), ParallelSpec(data=rank_count), "fsdp2")
        return SharedFileLayout(scene, SharedFileOptions(pattern=self.pattern, block_size=5000))


class TestContractOfStrides(TestContractOfSegments):
    """Block by block in turns."""

    pattern = "strided"
    is_dense = False


class TestContractOfPlainBytes(SharedFileContract):
    """Equal shards of whole blocks, in turns: a file without holes."""

    def make(self, rank_count):
        """Two blocks a rank."""
        scene = Scene(resolve(ModelTable(shard_bytes=Bytes(8192))), ParallelSpec(data=rank_count), "fsdp2")
        return SharedFileLayout(scene, SharedFileOptions(pattern="strided", block_size=4096))


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("segmented", [(12_000, 16_096), (16_096, 20_192), (20_192, 24_000)]),
        ("strided", [(4096, 8192), (16_384, 20_480), (28_672, 32_480)]),
    ],
)
def test_where_a_rank_writes(pattern, places):
    """Rank 1 of 3 with 12,000 bytes in blocks of 4 KiB: side by side from 12,000, or every third block."""
    asked = job(pattern, ModelTable(shard_bytes=Bytes(12_000)), "4KiB")
    found = [ranges(program, WRITES) for program in programs(plan(asked, World(3), 1).save, Facts(4096))]
    assert [place[1:] for one in found for place in one] == places


def test_neighbours_are_two_ranks():
    """Strided, each block's neighbours in the file belong to other ranks: the pattern that contends for locks."""
    asked = job("strided", ModelTable(shard_bytes=Bytes(8192)), "4KiB")
    owner = {}
    for rank in range(4):
        for program in programs(plan(asked, World(4), rank).save, Facts(4096)):
            owner |= {start: rank for _, start, _ in ranges(program, WRITES)}
    assert [owner[start] for start in sorted(owner)] == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("rank", [0, 2])
def test_calls(rank):
    """All make the directory, open without truncating, sync their own; rank 0 alone syncs the directory."""
    asked = job("strided", ModelTable(shard_bytes=Bytes(8192)), "4KiB")
    ops = np.concatenate([program.ops for program in programs(plan(asked, World(3), rank).save, Facts(4096))])
    kinds = [Kind(kind) for kind in ops["kind"].tolist()]
    data = [Kind.MKDIR, Kind.OPEN, Kind.WRITE, Kind.WRITE, Kind.FSYNC, Kind.CLOSE]
    assert kinds == data + [Kind.FSYNC_DIR] * (rank == 0)
    assert open_flags(int(ops["length_bytes"][1]))[0] == os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC


def test_transfer_splits_blocks_where_they_stand():
    """[io] transfer cuts each block into smaller writes, and moves none of them."""
    asked = job("strided", ModelTable(shard_bytes=Bytes(8192)), "4KiB")
    (program,) = programs(plan(asked, World(2), 1).save[2:3], Facts(4096, transfer_bytes=3000))
    assert [place[1:] for place in ranges(program, WRITES)] == [
        (4096, 7096), (7096, 8192), (12_288, 15_288), (15_288, 16_384),
    ]  # fmt: skip


@pytest.mark.parametrize("rank_count", [1, 3, 4, 7, 64])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("sharding", ["fsdp2", "ddp"])
def test_totals(rank_count, pattern, sharding):
    """Totals of any world are the sum of all ranks' programs."""
    assert_totals_are_the_sum(job(pattern, sharding=sharding), World(rank_count, 4))


def test_totals_of_a_large_world():
    """A hundred thousand ranks in closed form: 12 bytes a parameter in one file."""
    sums = totals(job("segmented", ModelTable(name="llama3-405b"), "16MiB"), World(100_000, 8), Facts(4096))
    assert sums.data_bytes == 12 * resolve(ModelTable(name="llama3-405b")).parameter_count
    assert sums.file_count == 1


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("sharding", ["fsdp2", "ddp"])
def test_every_byte_comes_back(pattern, sharding, tmp_path):
    """Five ranks write into one file on a real file system, and each reads its own back."""
    assert_saves_and_restores(job(pattern, sharding=sharding), World(5), tmp_path)


def test_saving_again_overwrites(tmp_path):
    """A second save into the file of the first leaves one image of the same size."""
    disk = Disk(job("strided"), World(3), tmp_path)
    disk.run("save")
    size = (tmp_path / "step-0" / "shared.ckpt").stat().st_size
    disk.run("save")
    assert (tmp_path / "step-0" / "shared.ckpt").stat().st_size == size
    assert sum(note.mismatch_count for note in disk.run("restore")) == 0


def test_a_rank_that_wrote_elsewhere_is_found(tmp_path):
    """Two blocks that changed places are mismatches at both: the image proves the place, not only the bytes."""
    disk = Disk(job("strided", ModelTable(shard_bytes=Bytes(8192)), "4KiB"), World(3), tmp_path)
    disk.run("save")
    file = tmp_path / "step-0" / "shared.ckpt"
    content = file.read_bytes()
    file.write_bytes(content[4096:8192] + content[:4096] + content[8192:])
    found = {one.offset_bytes // 4096: one.stamp for note in disk.run("restore") for one in note.mismatches}
    assert sorted(found) == [0, 1]
    assert "this file, offset 4096" in found[0]


@pytest.mark.parametrize("value", ["big", 0])
def test_refuses_what_is_no_size(value):
    """A block that is no size is refused by its key."""
    with pytest.raises(JobError, match=r"\[layout\] block_size = "):
        check_plan(job("strided", block_size=value), World(2))


def test_refuses_other_shardings():
    """So is a sharding that is no plain cut."""
    with pytest.raises(JobError, match=r'sharding = "zero1" is not planned for .* "shared_file"'):
        check_plan(job("strided", sharding="zero1"), World(2))


@pytest.mark.parametrize("calls", ["mpi", "mpi_all", "h5", "h5_all"])
@pytest.mark.parametrize("pattern", ["segmented", "strided"])
def test_library_calls_are_counted(calls, pattern):
    """Through MPI-IO or HDF5: totals are the sum of all plans, and collective calls are equally many on all ranks."""
    world, facts = World(7, 7), Facts(4096, transfer_bytes=2048, calls=calls)
    asked = job(pattern)
    sums = totals(asked, world, facts)
    for phase in ("save", "restore"):
        by_kind, per_rank = Counter(), set()
        for rank in range(7):
            kinds = [
                Kind(kind).word
                for program in programs(getattr(plan(asked, world, rank), phase), facts)
                for kind in program.ops["kind"].tolist()
            ]
            by_kind.update(kinds)
            per_rank.add(sum(kind.startswith(("mpi_write", "mpi_read", "h5_")) for kind in kinds))
        assert getattr(sums, phase).by_kind == dict(sorted(by_kind.items()))
        assert (len(per_rank) == 1) == calls.endswith("_all")
