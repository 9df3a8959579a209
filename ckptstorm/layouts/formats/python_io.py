"""CPython's buffered file objects (Modules/_io/bufferedio.c, 3.11): which calls reach the kernel, and when.

`open()` gives a file object a buffer of the target's `st_blksize`, so one framework makes quite
different requests of ext4 (4 KiB) and of Lustre (4 MiB). These are the rules of that C code and
nothing else; the tests run the real classes over a file that notes its calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ckptstorm.steps import Seek

#: Linux moves at most this many bytes in one read or write (MAX_RW_COUNT: 2 GiB less one page).
KERNEL_LIMIT_BYTES = 0x7FFFF000


def write_calls(pieces: Iterable[int], buffer_bytes: int) -> tuple[list[int], int]:
    """What `BufferedWriter` hands to the kernel for write calls of these lengths, from an empty buffer.

    Args:
        pieces: bytes of each call.
        buffer_bytes: size of the buffer.

    Returns:
        Lengths of the system calls, and the bytes that are still in the buffer.
    """
    calls: list[int] = []
    held = 0
    for piece in pieces:
        if piece <= buffer_bytes - held:
            held += piece
            continue
        # What is held goes first and alone; then whole writes while the rest is larger than the buffer.
        if held:
            calls.append(held)
        rest = piece
        while rest > buffer_bytes:
            calls.append(min(rest, KERNEL_LIMIT_BYTES))
            rest -= calls[-1]
        held = rest
    return calls, held


@dataclass(slots=True)
class Reader:
    """`BufferedReader` over a file of `file_bytes`: call it, and read from `calls` what it asks the kernel.

    Attributes:
        buffer_bytes: size of the buffer.
        file_bytes: size of the file.
        position: where the file object stands.
        low, high: what the buffer holds, as offsets in the file.
        calls: (offset, length) of each system call so far; length as asked, also at the end of the file.
    """

    buffer_bytes: int
    file_bytes: int
    position: int
    low: int
    high: int
    calls: list[tuple[int, int]]

    def follow(self, seeks: Iterable[Seek], start: int) -> None:
        """Seek and call as the framework does; places are relative to `start`."""
        for seek in seeks:
            self._seek(start + seek.offset_bytes)
            if seek.way == "readinto":
                self._readinto(seek.length_bytes)
            elif seek.way == "read":
                self._read(seek.length_bytes)
            elif self.high == self.position:
                self._drop()
                self._fill()

    def _drop(self) -> None:
        self.low = self.high = self.position

    def _seek(self, target: int) -> None:
        # Inside the buffer nothing is asked, but only while there is something left to read ahead.
        if not (self.high > self.position and self.low <= target <= self.high):
            self.low = self.high = target
        self.position = target

    def _raw(self, length: int) -> int:
        length = min(length, KERNEL_LIMIT_BYTES)
        self.calls.append((self.position, length))
        return min(length, max(self.file_bytes - self.position, 0))

    def _fill(self) -> int:
        """Fill what is free behind the buffer's content, which the position has reached."""
        got = self._raw(self.buffer_bytes - (self.high - self.low))
        self.high += got
        return got

    def _take_ahead(self, length: int) -> int:
        """Hand out what is buffered; how much is still missing (the buffer is empty then)."""
        ahead = self.high - self.position
        if length <= ahead:
            self.position += length
            return 0
        self.position = self.high
        self._drop()
        return length - ahead

    def _readinto(self, length: int) -> None:
        rest = self._take_ahead(length)
        while rest > 0:
            if rest > self.buffer_bytes:
                got = self._raw(rest)
                self.position += got
                self._drop()
            else:
                got = min(self._fill(), rest)
                self.position += got
            if got == 0:
                return
            rest -= got

    def _read(self, length: int) -> None:
        rest = self._take_ahead(length)
        whole = rest // self.buffer_bytes * self.buffer_bytes
        while whole > 0:
            got = self._raw(whole)
            if got == 0:
                return
            self.position += got
            self._drop()
            rest -= got
            whole = rest // self.buffer_bytes * self.buffer_bytes
        while rest > 0 and self.high - self.low < self.buffer_bytes:
            got = min(self._fill(), rest)
            if got == 0:
                return
            self.position += got
            rest -= got
