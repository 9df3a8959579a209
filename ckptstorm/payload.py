"""Bytes that prove themselves: content is a pure function of (storm, round, file, offset).

Every file is an image of 4 KiB pages, and any slice of it can be made from its offset alone. So
alignment, coalescing and who reads do not matter, and a single flipped bit has an address.

A page is 512 words of 64 bits. Word j of page p is, modulo 2^64,

    x = K(p) + j * GOLDEN;   x ^= x >> 32;   x *= MIX          (all little-endian)

with K(p) = splitmix64(file_key + p * GOLDEN) and file_key a hash of storm, round and name. It is
counter-based (no state runs through a file), and passes through no table or pool: pages of
different files, offsets, rounds or storms share nothing, so nothing compresses or deduplicates.
The first 40 bytes of each page are then a stamp that names storm, round, rank, file and offset.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.program import Path

try:
    from ckptstorm import _kernels
except ImportError:  # installed where there was no compiler: NumPy makes the same bytes, ten times slower
    HAS_KERNELS = False
else:
    HAS_KERNELS = True

PAGE_BYTES = 4096
_WORDS = PAGE_BYTES // 8
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: Weyl increment of splitmix64 (Steele, Lea, Flood 2014)
MIX = 0xBF58476D1CE4E5B9  # first multiplier of splitmix64's finaliser
_MIX2 = 0x94D049BB133111EB  # its second
_MASK = (1 << 64) - 1

#: The stamp of a page. 40 of 4096 bytes: what of it repeats within a file adds 1 % to what zstd can find.
STAMP_DTYPE = np.dtype(
    [
        ("magic", "<u4"),
        ("rank", "<u4"),
        ("storm", "<u8"),
        ("round", "<i4"),
        ("reserved", "<u4"),
        ("file", "<u8"),
        ("offset_bytes", "<u8"),
    ]
)
STAMP_BYTES = STAMP_DTYPE.itemsize
assert STAMP_BYTES == 40
STAMP_MAGIC = 0x504B4343  # "CCKP"

Bytes8 = NDArray[np.uint8]
#: Pages made at once: 128 KiB of words and as much scratch stay in a core's own cache.
_PAGES_AT_ONCE = 32
_STEPS = np.arange(_WORDS, dtype=np.uint64) * np.uint64(GOLDEN)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A byte that is not what was written.

    Attributes:
        file: the path as the reader knows it, relative to the storm's root.
        offset_bytes: of the first byte that differs, in the file.
        expected, found: that byte.
        differing_bytes: how many bytes of the read differ.
        stamp: what the page found there says of itself ("round 1, rank 3, offset 8192"), or why nothing.
    """

    file: str
    offset_bytes: int
    expected: int
    found: int
    differing_bytes: int
    stamp: str

    def sentence(self) -> str:
        """One line for people."""
        return (
            f"{self.file} at offset {self.offset_bytes}: expected byte 0x{self.expected:02x}, "
            f"found 0x{self.found:02x} ({self.differing_bytes} bytes differ; the page found there {self.stamp})"
        )


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of all files of one round.

    Attributes:
        storm: a 64-bit number drawn for this storm.
        round_index: which round.
    """

    storm: int
    round_index: int

    def image(self, path: Path) -> FileImage:
        """The content of one file."""
        return FileImage(self.storm, self.round_index, path.rank, self.file_key(path.content_name))

    def file_key(self, name: str) -> int:
        """64 bits that no two (storm, round, name) share (BLAKE2b)."""
        seed = f"{self.storm}/{self.round_index}/{name}".encode("utf-8", "surrogateescape")
        return int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class FileImage:
    """The bytes of one file, any slice of which can be made.

    Attributes:
        storm, round_index, rank: for the stamps.
        key: seeds the pages, and names the file in the stamps.
    """

    storm: int
    round_index: int
    rank: int
    key: int

    def fill(self, out: Bytes8, offset_bytes: int) -> None:
        """Write the file's bytes [offset, offset + len(out)) into `out` (contiguous, writable)."""
        if HAS_KERNELS:
            _kernels.fill(self, out, offset_bytes)
        else:
            self.fill_with_numpy(out, offset_bytes)

    def fill_with_numpy(self, out: Bytes8, offset_bytes: int) -> None:
        """The reference that the compiled kernels are held to; see `fill`."""
        for start, stop, made in self._slices(len(out), offset_bytes):
            out[start:stop] = made

    def check(self, found: Bytes8, offset_bytes: int, file: str) -> Mismatch | None:
        """Compare bytes read at `offset_bytes` with what the file should hold there."""
        compare = self.compare_with_kernels if HAS_KERNELS else self.compare_with_numpy
        differing, first, expected = compare(found, offset_bytes)
        if not differing:
            return None
        stamp = self.whose(found, offset_bytes, offset_bytes + first)
        return Mismatch(file, offset_bytes + first, expected, int(found[first]), differing, stamp)

    def compare_with_kernels(self, found: Bytes8, offset_bytes: int) -> tuple[int, int, int]:
        """How many bytes differ, where in `found` the first one is, and what it should be."""
        return _kernels.check(self, found, offset_bytes)

    def compare_with_numpy(self, found: Bytes8, offset_bytes: int) -> tuple[int, int, int]:
        """The reference that the compiled kernels are held to; see `compare_with_kernels`."""
        first, differing, expected = 0, 0, 0
        for start, stop, made in self._slices(len(found), offset_bytes):
            if np.array_equal(found[start:stop], made):
                continue
            differs = np.flatnonzero(found[start:stop] != made)
            if not differing:
                first, expected = start + int(differs[0]), int(made[differs[0]])
            differing += len(differs)
        return differing, first, expected

    def _slices(self, length: int, offset_bytes: int) -> Iterator[tuple[int, int, Bytes8]]:
        """(start, stop, content) of each piece; the content is overwritten by the next one."""
        scratch = _SCRATCH
        done = 0
        while done < length:
            page, within = divmod(offset_bytes + done, PAGE_BYTES)
            span = min(length - done, _PAGES_AT_ONCE * PAGE_BYTES - within)
            count = -(-(within + span) // PAGE_BYTES)
            yield done, done + span, self._pages(scratch, page, count)[within : within + span]
            done += span

    def _pages(self, scratch: _Scratch, first_page: int, count: int) -> Bytes8:
        pages = np.arange(first_page, first_page + count, dtype=np.uint64)
        keys = _splitmix64(np.uint64(self.key) + pages * np.uint64(GOLDEN))
        words, shifted = scratch.words[:count], scratch.shifted[:count]
        np.add(keys[:, None], _STEPS, out=words)
        np.right_shift(words, np.uint64(32), out=shifted)
        np.bitwise_xor(words, shifted, out=words)
        np.multiply(words, np.uint64(MIX), out=words)
        page_bytes = words.view(np.uint8)
        stamps = np.zeros(count, dtype=STAMP_DTYPE)
        stamps["magic"], stamps["rank"], stamps["storm"] = STAMP_MAGIC, self.rank, self.storm
        stamps["round"], stamps["file"] = self.round_index, self.key
        stamps["offset_bytes"] = pages * np.uint64(PAGE_BYTES)
        page_bytes[:, :STAMP_BYTES] = stamps.view(np.uint8).reshape(count, STAMP_BYTES)
        return page_bytes.reshape(-1)

    def whose(self, found: Bytes8, offset_bytes: int, at: int) -> str:
        """What the stamp of the page around file offset `at` says, when the read holds it whole."""
        start = at - at % PAGE_BYTES - offset_bytes
        if start < 0 or start + STAMP_BYTES > len(found):
            return "was not read whole"
        stamp = found[start : start + STAMP_BYTES].view(STAMP_DTYPE)[0]
        if int(stamp["magic"]) != STAMP_MAGIC:
            zeros = not found[start : start + STAMP_BYTES].any()
            return "holds zeros" if zeros else "has no stamp of ours"
        storm = "this storm" if int(stamp["storm"]) == self.storm else "another storm"
        file = "this file" if int(stamp["file"]) == self.key else "another file"
        return (
            f"says: {storm}, round {int(stamp['round'])}, rank {int(stamp['rank'])}, "
            f"{file}, offset {int(stamp['offset_bytes'])}"
        )


def _splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(MIX)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_MIX2)
    return x ^ (x >> np.uint64(31))


class _Scratch(threading.local):
    """A thread's own buffers: fresh ones for each call would cost more in page faults than the making."""

    def __init__(self) -> None:
        self.words = np.zeros((_PAGES_AT_ONCE, _WORDS), dtype="<u8")
        self.shifted = np.zeros((_PAGES_AT_ONCE, _WORDS), dtype="<u8")


_SCRATCH = _Scratch()
