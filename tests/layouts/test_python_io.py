"""The buffer rules against the real classes of this interpreter, over a file that notes its calls."""

import io
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ckptstorm.layouts.formats.python_io import KERNEL_LIMIT_BYTES, Reader, write_calls
from ckptstorm.steps import Seek

BUFFERS = st.sampled_from([64, 100, 4096])


class Noting(io.RawIOBase):
    """A file of zeros that notes (offset, asked) of each read and the length of each write."""

    def __init__(self, file_bytes):
        self.file_bytes, self.at, self.reads, self.writes = file_bytes, 0, [], []

    def readable(self):
        """The reader asks."""
        return True

    def writable(self):
        """The writer asks."""
        return True

    def seekable(self):
        """Both ask."""
        return True

    def tell(self):
        """Where the file stands."""
        return self.at

    def seek(self, offset, whence=0):
        """As lseek."""
        self.at = offset if whence == 0 else self.at + offset if whence == 1 else self.file_bytes + offset
        return self.at

    def readinto(self, buffer):
        """As read, noted as asked."""
        got = min(len(buffer), max(self.file_bytes - self.at, 0))
        self.reads.append((self.at, len(buffer)))
        self.at += got
        return got

    def write(self, data):
        """As write, noted."""
        self.writes.append(len(data))
        self.at += len(data)
        return len(data)


@given(pieces=st.lists(st.integers(0, 9000), max_size=30), buffer_bytes=BUFFERS)
@example(pieces=[100, 1], buffer_bytes=100)
@example(pieces=[40, 24, 1], buffer_bytes=64)
def test_writer(pieces, buffer_bytes):
    """The same system calls, of the same lengths, and the same rest at the flush."""
    raw = Noting(0)
    writer = io.BufferedWriter(raw, buffer_bytes)
    for piece in pieces:
        writer.write(bytes(piece))
    calls, held = write_calls(pieces, buffer_bytes)
    assert calls == raw.writes
    writer.flush()
    assert [*calls, *([held] if held else [])] == raw.writes


SEEKS = st.lists(
    st.builds(Seek, st.integers(0, 9000), st.integers(0, 9000) | st.integers(0, 70),
              st.sampled_from(["readinto", "read", "peek"])),
    max_size=30,
)  # fmt: skip


@given(seeks=SEEKS, buffer_bytes=BUFFERS, file_bytes=st.integers(9000, 20000))
@example(seeks=[Seek(0, 64), Seek(0, 1)], buffer_bytes=64, file_bytes=9000)
@example(seeks=[Seek(0, 10, "read"), Seek(10, 0, "peek"), Seek(10, 300, "read")], buffer_bytes=100, file_bytes=9000)
def test_reader(seeks, buffer_bytes, file_bytes):
    """The same system calls for any seeks and calls, at the end of the file too."""
    raw = Noting(file_bytes)
    reader = io.BufferedReader(raw, buffer_bytes)
    simulated = Reader(buffer_bytes, file_bytes, 0, 0, 0, [])
    for seek in seeks:
        reader.seek(seek.offset_bytes)
        if seek.way == "readinto":
            reader.readinto(bytearray(seek.length_bytes))
        elif seek.way == "read":
            reader.read(seek.length_bytes)
        else:
            reader.peek(1 << 17)
        simulated.follow([seek], 0)
        assert simulated.position == reader.tell()
    # A framework that stays inside its records never asks at the end of the file for nothing.
    assert [call for call in simulated.calls if call[0] < file_bytes] == [
        call for call in raw.reads if call[0] < file_bytes
    ]


def test_a_write_above_the_limit_of_linux_is_finished():
    """2 GiB and more go as one whole call and the rest; the rest is buffered when it fits."""
    assert write_calls([KERNEL_LIMIT_BYTES + 5000], 4096) == ([KERNEL_LIMIT_BYTES, 5000], 0)
    assert write_calls([KERNEL_LIMIT_BYTES + 50], 4096) == ([KERNEL_LIMIT_BYTES], 50)


def test_a_read_above_the_limit_of_linux_is_finished():
    """The second call stands where the first one ended."""
    reader = Reader(4096, 1 << 33, 0, 0, 0, [])
    reader.follow([Seek(0, KERNEL_LIMIT_BYTES + 5000)], 0)
    assert reader.calls == [(0, KERNEL_LIMIT_BYTES), (KERNEL_LIMIT_BYTES, 5000)]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 has another rule for the buffer's size")
def test_the_buffer_of_a_file_is_its_block_size(tmp_path):
    """`open()` takes the buffer's size from st_blksize, which is why lowering asks for it."""
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(file.raw._blksize - 1))
        assert file.raw.tell() == 0
        file.write(b"12")
        assert file.raw.tell() == file.raw._blksize - 1
