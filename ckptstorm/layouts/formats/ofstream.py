"""C++ file streams (libstdc++'s `basic_filebuf::xsputn`): which calls of `torch.save(path)` reach the kernel.

Its rules: a buffer of 8191 bytes, whatever the target's block size; a piece of 1024 bytes or more, or one
that does not fit, goes out at once in one `writev` together with what the buffer holds; what is left at
close is a plain `write`. A `writev` that the kernel cuts short is continued with `write`.
"""

from __future__ import annotations

from collections.abc import Iterable

#: BUFSIZ less the place that a filebuf keeps for one overflowing character.
BUFFER_BYTES = 8191
#: From this length on a piece is not copied into the buffer, even if it would fit.
DIRECT_BYTES = 1024
#: Parts of each writev: the buffer, and the piece.
PARTS = 2


def write_calls(pieces: Iterable[int], most: int) -> list[tuple[int, int]]:
    """What a stream hands to the kernel for write calls of these lengths, from open to close.

    Args:
        pieces: bytes of each call.
        most: largest system call; the rest of a longer one follows as plain writes.

    Returns:
        (length, parts) of each system call; parts is 0 for a plain write.
    """
    calls: list[tuple[int, int]] = []
    held = 0
    for piece in pieces:
        if piece < min(DIRECT_BYTES, BUFFER_BYTES - held):
            held += piece
            continue
        calls += _cut(held + piece, most, PARTS)
        held = 0
    return calls + _cut(held, most, 0)


def _cut(length: int, most: int, parts: int) -> list[tuple[int, int]]:
    """One call of `length`, the first `most` bytes of it with these parts."""
    if length == 0:
        return []
    rest = [(min(most, length - at), 0) for at in range(most, length, most)]
    return [(min(most, length), parts), *rest]
