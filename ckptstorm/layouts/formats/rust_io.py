"""Rust's `BufWriter` (library/std/src/io/buffered/bufwriter.rs): which of its writes reach the kernel together.

Unlike Python's buffer it never splits a write: what does not fit beside what is held goes after it,
and what is as large as the whole buffer goes past it. So each system call is a run of whole writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: Bytes of the buffer, by the word that a plan uses for it. 8 KiB is BufWriter's default.
BUFFER_BYTES: Final[dict[str, int]] = {"rust_8k": 8 << 10, "rust_1m": 1 << 20}


def buffered(pieces: Iterable[int], buffer_bytes: int) -> list[tuple[int, ...]]:
    """The writes that make up each system call, from an empty buffer to the flush at its end.

    Args:
        pieces: bytes of each write call.
        buffer_bytes: size of the buffer.
    """
    calls: list[tuple[int, ...]] = []
    held: list[int] = []
    size = 0
    for piece in pieces:
        if piece > buffer_bytes - size and held:
            calls.append(tuple(held))
            held, size = [], 0
        if piece >= buffer_bytes:
            calls.append((piece,))
            continue
        held.append(piece)
        size += piece
    if held:
        calls.append(tuple(held))
    return calls
