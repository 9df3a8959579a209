"""Safetensors: the contract, the reference traces, published shard counts, and a save that is read back."""

import os
from dataclasses import replace

import numpy as np
import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import Job, LayoutTable, ModelTable
from ckptstorm.layouts.contract import Scene
from ckptstorm.layouts.formats import safetensors_io
from ckptstorm.layouts.safetensors import SafetensorsLayout, SafetensorsOptions
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, check_plan, plan, totals
from ckptstorm.program import READS, WRITES, Kind, open_flags
from ckptstorm.steps import Call, Facts, ReadFile, WriteFile
from ckptstorm.testing.layouts import LayoutContract, items, programs
from ckptstorm.units import Bytes
from tests.layouts.whole_world import Disk, assert_saves_and_restores, assert_totals_are_the_sum

TINY = ModelTable(architecture="llama", layers=3, hidden=48, ffn=40, heads=4, kv_heads=2, vocab=500)
#: 56,369,664 parameters in 75 tensors: the model of the reference traces.
REFERENCE = ModelTable(architecture="llama", layers=8, hidden=512, ffn=1408, heads=8, kv_heads=4, vocab=32000)
WAYS = [{"writer": writer, "read_mode": mode} for writer in ("0.8", "0.7") for mode in ("mmap", "pread")]


def job(model=TINY, **options):
    """A job of a small model in three files and an index."""
    return Job(model=model, layout=LayoutTable(name="safetensors", options={"shard_size": 60_000} | options))


class Contract(LayoutContract):
    """The contract, with what a rename of an open file and a buffer over tensors mean for it."""

    options = SafetensorsOptions(shard_size=60_000)

    def make(self, rank_count):
        """A model in three files."""
        return SafetensorsLayout(Scene(resolve(TINY), ParallelSpec(data=rank_count), "fsdp2"), self.options)

    @pytest.mark.parametrize("rank_count", (1, 3, 64))
    def test_no_two_ranks_write_one_file(self, rank_count):
        """Every file, temporary ones and renamed ones, is created by rank 0, which says so beforehand."""
        layout = self.make(rank_count)
        made = set()
        for item in items(layout.save(0)):
            if isinstance(item, WriteFile):
                made |= {item.path.name} | {call.target.name for call in item.closing}
        assert made == set(layout.created(0))
        for rank in range(1, rank_count):
            assert not list(items(layout.save(rank)))
            assert layout.created(rank) == ()

    @pytest.mark.parametrize("block_size_bytes", (4096, 1 << 20))
    @pytest.mark.parametrize("rank_count", (1, 3, 64))
    def test_reads_find_what_was_written(self, rank_count, block_size_bytes):
        """A restore opens the final names, with the sizes and the content that the temporary ones were written with."""
        layout, facts = self.make(rank_count), Facts(block_size_bytes)
        made = {
            item.path.content_name: item.path.size_bytes
            for item in items(layout.save(0))
            if isinstance(item, WriteFile)
        }
        for program in programs(layout.restore(rank_count - 1), facts):
            assert (program.expected_bytes()[np.isin(program.ops["kind"], READS)] > 0).all()
            assert {path.name: path.size_bytes for path in program.paths} == made
            assert {path.content_name == path.name for path in program.paths} == {True}

    @pytest.mark.parametrize("rank_count", (1, 3))
    def test_reads_are_of_whole_records(self, rank_count):
        """The reads of each file are its header and its tensors: they tile it, in the pieces that were written."""
        layout, written, read = self.make(rank_count), {}, {}
        for item in items(layout.save(0)):
            if isinstance(item, WriteFile):
                pieces = [piece for record in item.records for _ in range(record.count) for piece in record.pieces]
                # Length and header are two writes and one read.
                is_index = item.path.name == safetensors_io.INDEX_NAME
                written[item.path.content_name] = pieces if is_index else [pieces[0] + pieces[1], *pieces[2:]]
        for item in items(layout.restore(rank_count - 1)):
            if isinstance(item, ReadFile):
                read.setdefault(item.path.name, []).extend(
                    (at, record.size_bytes) for at, record in zip(item.offsets_bytes, item.records, strict=True)
                )
        for name, pieces in written.items():
            assert [size for _, size in read[name]] == pieces
            assert [at for at, _ in read[name]] == np.cumsum([0, *pieces[:-1]]).tolist()


class TestContractOf08(Contract):
    """Temporary files and renames."""


class TestContractOf07(Contract):
    """In place, read past the mapping."""

    options = SafetensorsOptions(shard_size=60_000, writer="0.7", read_mode="pread")


class TestContractOfOneFile(Contract):
    """No index."""

    options = SafetensorsOptions()


# Traced with safetensors 0.8.0 and 0.7.0 on tensors named without "model.": sizes of the write calls.
TRACED = {
    "0.8": (45, {"4K": 2, "64K": 1, "1M": 16, "4M": 24, "64M": 2}),
    "0.7": (76, {"4K": 17, "64K": 1, "1M": 32, "4M": 24, "64M": 2}),
}


@pytest.mark.parametrize("writer", TRACED)
def test_reference_trace(writer, monkeypatch):
    """The reference model makes the traced writes, by size, and a file of 112,747,120 bytes."""
    model = resolve(REFERENCE)
    named = [replace(tensor, name=tensor.name.removeprefix("model.")) for tensor in model.tensors()]
    monkeypatch.setattr(type(model), "tensors", lambda _: iter(named))
    layout = SafetensorsLayout(Scene(model, ParallelSpec(data=2), "fsdp2"), SafetensorsOptions(writer=writer))
    (program,) = programs(layout.save(0)[2:], Facts(4096))
    lengths = program.ops["length_bytes"][np.isin(program.ops["kind"], WRITES)].tolist()
    count, by_size = TRACED[writer]
    assert (len(lengths), sum(lengths)) == (count, 112_747_120)
    bounds = {"4K": 4096, "64K": 65536, "1M": 1 << 20, "4M": 4 << 20, "64M": 64 << 20}
    found = [next(word for word, bound in bounds.items() if length <= bound) for length in lengths]
    assert {word: found.count(word) for word in bounds} == by_size


# model: files at 5 GB (as published) and at 50 GB.
FILES = {
    "llama3-8b": (4, 1),
    "llama3-70b": (30, 3),
    "llama3-405b": (191, 17),
    "mixtral-8x7b": (19, 2),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("size", ["5GB", "50GB"])
def test_file_counts(name, size):
    """Models fall into as many files as their published repositories have, and weigh 2 bytes a parameter."""
    sums = totals(job(ModelTable(name=name), shard_size=size), World(1024, 8), Facts(4096))
    count = FILES[name][size == "50GB"]
    assert sums.file_count == count + (count > 1)
    parameters = resolve(ModelTable(name=name)).parameter_count
    assert 0 < sums.data_bytes - 2 * parameters < 200 * sums.tensor_count
    assert sums.restore.data_bytes == 1024 * (sums.data_bytes + sums.commit_bytes)


def test_the_splits_edge():
    """A file takes what just fits; a tensor larger than a file stands alone, ahead of the file under way."""
    tensors = [
        replace(tensor, shape=(size,))
        for tensor, size in zip(resolve(TINY).tensors(), (10, 20, 70, 20, 1), strict=False)
    ]
    sizes = [[tensor.shape[0] for tensor in file] for file in safetensors_io.split(tensors, 100)]
    assert sizes == [[70], [10, 20, 20], [1]]


@pytest.mark.parametrize("rank_count", [1, 3, 4, 7, 64])
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_totals(rank_count, options):
    """Totals of any world are the sum of all ranks' programs."""
    assert_totals_are_the_sum(job(**options), World(rank_count, 4))


@pytest.mark.parametrize("options", [*WAYS, {"shard_size": "5GB"}], ids=str)
def test_every_byte_comes_back(options, tmp_path):
    """Three ranks load what rank 0 has written, on a real file system, through mappings and reads."""
    assert_saves_and_restores(job(**options), World(3), tmp_path)


def test_a_flipped_bit_in_a_mapping_is_found(tmp_path):
    """A byte that is wrong on disk is wrong in the mapping, and named once for each rank."""
    disk = Disk(job(), World(3), tmp_path)
    disk.run("save")
    file = tmp_path / "step-0" / "model-00002-of-00003.safetensors"
    content = bytearray(file.read_bytes())
    content[20_000] ^= 1
    file.write_bytes(content)
    found = [mismatch for note in disk.run("restore") for mismatch in note.mismatches]
    assert [(one.file, one.offset_bytes) for one in found] == [("step-0/model-00002-of-00003.safetensors", 20_000)] * 3


def test_the_result_is_private_and_renamed(tmp_path):
    """Writer 0.8 leaves files of mode 0600 under their final names, and no temporary ones."""
    disk = Disk(job(), World(2), tmp_path)
    disk.run("save")
    files = {f"model-0000{part}-of-00003.safetensors" for part in (1, 2, 3)}
    assert disk.names() == files | {safetensors_io.INDEX_NAME}
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "step-0").glob("model-*")}
    assert modes == {0o600}


def test_an_open_file_is_sized_then_renamed():
    """Between open and close: truncate to the whole size first, the rename last; no sync."""
    program = programs(plan(job(shard_size="5GB"), World(2), 0).save, Facts(4096))[1]
    kinds = [Kind(kind) for kind in program.ops["kind"].tolist()]
    assert kinds[:2] == [Kind.OPEN, Kind.TRUNCATE]
    assert set(kinds[2:-2]) == {Kind.WRITE}
    assert kinds[-2:] == [Kind.RENAME, Kind.CLOSE]
    assert open_flags(int(program.ops[0]["length_bytes"])) == (os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    assert int(program.ops[1]["length_bytes"]) == program.paths[0].size_bytes


def test_asked_for_durability_syncs_before_the_rename():
    """[io] durability = "fsync" adds a sync of each file before its rename, and one of the directory after it."""
    program = programs(plan(job(shard_size="5GB"), World(2), 0).save, Facts(4096, "fsync"))[1]
    kinds = [Kind(kind) for kind in program.ops["kind"].tolist()]
    assert kinds[-4:] == [Kind.FSYNC, Kind.RENAME, Kind.FSYNC_DIR, Kind.CLOSE]


def test_a_load_maps_twice():
    """The header by one mapping, the tensors by another, with the advice to read ahead."""
    program = programs(plan(job(shard_size="5GB"), World(2), 1).restore, Facts(4096))[0]
    kinds = [Kind(kind) for kind in program.ops["kind"].tolist()]
    assert kinds[:6] == [Kind.OPEN, Kind.FSTAT, Kind.MMAP_READ, Kind.CLOSE, Kind.OPEN, Kind.FSTAT]
    assert kinds[6] == Kind.FADVISE
    assert (int(program.ops[6]["flags"]), int(program.ops[6]["length_bytes"])) == (
        os.POSIX_FADV_SEQUENTIAL,
        program.paths[0].size_bytes,
    )


def test_the_index_is_the_commit():
    """The index is written last, by rank 0 alone, and read first by all."""
    steps = plan(job(), World(2), 0).save
    (commit,) = [step for step in steps if getattr(step, "part", "data") == "commit"]
    assert [item.path.name for item in items([commit])] == [safetensors_io.INDEX_NAME]
    first = next(item for item in items(plan(job(), World(2), 1).restore) if not isinstance(item, Call))
    assert first.path.name == safetensors_io.INDEX_NAME


@pytest.mark.parametrize(("value", "says"), [("5 GBit", "expected a size"), (0, "is no size"), ("-1", "expected")])
def test_refuses_what_is_no_size(value, says):
    """A size that is none is refused by its key."""
    with pytest.raises(JobError, match=rf"\[layout\] shard_size = .*{says}"):
        check_plan(job(shard_size=value), World(2))


def test_refuses_plain_bytes():
    """So are shards without tensors."""
    with pytest.raises(JobError, match=r"\[model\] shard_bytes is not planned for .* \"safetensors\""):
        check_plan(job(ModelTable(shard_bytes=Bytes(5000))), World(2))
