"""Reads through a mapping, and truncate, by the posix engine: op by op, with what can go wrong."""

import errno
import os

import numpy as np
import pytest

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.posix import PosixEngine
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program, op, open_length, table
from ckptstorm.sinks import KeepTimes

SIZE = 70_001
FILE = Path(1, "shard", 3, SIZE)
READ = op(Kind.OPEN, 0, length_bytes=open_length(os.O_RDONLY))
CLOSE = op(Kind.CLOSE, 0)
#: Unaligned, across pages, aligned, and to the end.
RANGES = ((0, 10), (4090, 20_000), (40_960, 4096), (60_000, SIZE - 60_000))


@pytest.fixture
def root(tmp_path):
    """The storm's directory, open, with the shard in it."""
    (tmp_path / "step-1").mkdir()
    write_shard(tmp_path / "step-1" / "shard")
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def write_shard(path, round_index=1):
    """The whole shard, as a save would leave it."""
    content = np.empty(SIZE, dtype=np.uint8)
    Payload(77, round_index).image(FILE).fill(content, 0)
    path.write_bytes(content.tobytes())


class Running:
    """A program prepared by the posix engine, run in spans."""

    def __init__(self, root, rows, on_error="continue"):
        program = Program(table(rows), (FILE,), ("", "step-1"))
        self.prepared = PosixEngine(Setup(root, on_error=on_error)).prepare(program, Payload(77, 1))
        self.sink, self.at, self.count = KeepTimes(len(rows)), 0, len(rows)

    def on(self, count):
        """Run the next ops; their results."""
        first, self.at = self.at, self.at + count
        self.prepared.run(self.sink, first, self.at)
        return self.sink.times.result[first : self.at].tolist()

    def rest(self):
        """Run what is left; its results, and the notes."""
        return self.on(self.count - self.at), self.prepared.finish()


def test_ranges_are_read_and_verified(root):
    """Each range comes whole, and every byte of it is compared."""
    reads = [op(Kind.MMAP_READ, 0, at, length) for at, length in RANGES]
    results, notes = Running(root, [READ, *reads, CLOSE]).rest()
    assert results == [0, *(length for _, length in RANGES), 0]
    assert (notes.mismatch_count, notes.verified_bytes) == (0, sum(length for _, length in RANGES))


def test_a_flipped_bit_is_named(root, tmp_path):
    """A wrong byte on disk is a mismatch at its place in the file."""
    shard = tmp_path / "step-1" / "shard"
    content = bytearray(shard.read_bytes())
    content[4095] ^= 8
    shard.write_bytes(content)
    _, notes = Running(root, [READ, *(op(Kind.MMAP_READ, 0, at, length) for at, length in RANGES), CLOSE]).rest()
    assert [(one.file, one.offset_bytes) for one in notes.mismatches] == [("step-1/shard", 4095)]


@pytest.mark.parametrize(("at", "moved"), [(SIZE - 5, 5), (SIZE, 0), (SIZE + 5, 0)])
def test_the_end_of_the_file(root, at, moved):
    """A range that reaches past the end is short, one beyond it is empty."""
    results, _ = Running(root, [READ, op(Kind.MMAP_READ, 0, at, 100), CLOSE]).rest()
    assert results == [0, moved, 0]


def test_an_empty_file(root, tmp_path):
    """The kernel maps no empty file: a read of one moves nothing."""
    (tmp_path / "step-1" / "shard").write_bytes(b"")
    assert Running(root, [READ, op(Kind.MMAP_READ, 0, 0, 100), CLOSE]).rest()[0] == [0, 0, 0]


def test_a_file_that_is_not_open(root):
    """Nor does it map one that is not open: EBADF."""
    assert Running(root, [op(Kind.MMAP_READ, 0, 0, 100)]).rest()[0] == [-errno.EBADF]


def test_a_page_that_cannot_be_had(root, tmp_path):
    """Where a page is gone from under the mapping the op answers EIO, and the process lives."""
    running = Running(root, [READ, op(Kind.MMAP_READ, 0, 0, 10), op(Kind.MMAP_READ, 0, 40_960, 100), CLOSE])
    assert running.on(2) == [0, 10]
    os.truncate(tmp_path / "step-1" / "shard", 4096)
    assert running.rest()[0] == [-errno.EIO, 0]


def test_a_close_ends_the_mapping(root, tmp_path):
    """A file that is opened again is mapped again: what stands under its name by then is read."""
    rows = [READ, op(Kind.MMAP_READ, 0, 0, SIZE), CLOSE]
    running = Running(root, [*rows, *rows])
    assert running.on(3) == [0, SIZE, 0]
    write_shard(tmp_path / "step-1" / "new", round_index=2)
    (tmp_path / "step-1" / "new").rename(tmp_path / "step-1" / "shard")
    results, notes = running.rest()
    assert results == [0, SIZE, 0]
    assert notes.mismatch_count == 1
    assert "this storm, round 2" in notes.mismatches[0].stamp


def test_nothing_stays_open(root):
    """No descriptor and no mapping of the file outlives a program that never closed it."""
    before = len(os.listdir("/proc/self/fd"))
    Running(root, [READ, op(Kind.MMAP_READ, 0, 0, SIZE)]).rest()
    assert len(os.listdir("/proc/self/fd")) == before
    with open("/proc/self/maps") as maps:
        assert "step-1/shard" not in maps.read()


def test_truncate(root, tmp_path):
    """An open file gets the size that the op says."""
    opened = op(Kind.OPEN, 0, length_bytes=open_length(os.O_RDWR))
    assert Running(root, [opened, op(Kind.TRUNCATE, 0, length_bytes=100_000), CLOSE]).rest()[0] == [0, 0, 0]
    assert (tmp_path / "step-1" / "shard").stat().st_size == 100_000
