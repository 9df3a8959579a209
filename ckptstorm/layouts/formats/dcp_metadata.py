"""DCP's `.metadata`: how large the pickle of all plans is, and how Python writes and reads it."""

from __future__ import annotations

from functools import lru_cache

from ckptstorm.steps import ReadRecord, Record, Seek

# Measured by pickling PyTorch 2.13's own Metadata for 2 to 256 ranks and names of 40 to 64 letters:
# a name costs its properties, shape and path; a stored item its index (with the name again), place
# and chunk. Offsets take two to five bytes by magnitude, hence within 4 % and not to the byte.
_NAME_BYTES, _NAME_SHARE = 105, 1.45
_ITEM_BYTES = 128

# A plan that is gathered, and the results of its writes, by item; the name comes on top.
PLAN_ITEM_BYTES = 142
RESULT_ITEM_BYTES = 80

#: A frame of pickle protocol 4 is closed by the first opcode that brings it to 64 KiB; four frames
#: traced had 65,537 to 65,552 bytes. Each has an opcode and a length before it.
_FRAME_BYTES, _FRAME_HEAD_BYTES = 65_541, 9
_PROTOCOL_BYTES = 2


def metadata_bytes(name_count: int, name_bytes: int, item_count: int, item_name_bytes: int) -> int:
    """Size of `.metadata`.

    Args:
        name_count: names in the state dict.
        name_bytes: length of all of them together.
        item_count: stored items: shards, scalars, blobs.
        item_name_bytes: length of the items' names together.
    """
    of_names = _NAME_BYTES * name_count + int(_NAME_SHARE * name_bytes)
    return of_names + _ITEM_BYTES * item_count + item_name_bytes


def _frames(size_bytes: int) -> tuple[int, int]:
    """(full frames, bytes of the last one with its head) of a pickle of `size_bytes`."""
    return divmod(max(size_bytes - _PROTOCOL_BYTES, 0), _FRAME_BYTES + _FRAME_HEAD_BYTES)


def write_records(size_bytes: int) -> tuple[Record, ...]:
    """The pickler's write calls: one a frame, the first with the protocol before it."""
    full, rest = _frames(size_bytes)
    frame = _FRAME_BYTES + _FRAME_HEAD_BYTES
    if full == 0:
        return (_piece(_PROTOCOL_BYTES + rest, 1),)
    records = [_piece(_PROTOCOL_BYTES + frame, 1), _piece(frame, full - 1), _piece(rest, 1)]
    return tuple(record for record in records if record.count and record.size_bytes)


def _piece(size_bytes: int, count: int) -> Record:
    return Record((size_bytes,), is_flushed=False, count=count, tensor_count=0)


def reads(size_bytes: int) -> tuple[tuple[int, ...], tuple[ReadRecord, ...]]:
    """(offsets, calls) of the unpickler, frame by frame."""
    full, rest = _frames(size_bytes)
    frame = _FRAME_BYTES + _FRAME_HEAD_BYTES
    sizes = [_PROTOCOL_BYTES] + [frame] * full + ([rest] if rest else [])
    offsets = [0] + [_PROTOCOL_BYTES + frame * index for index in range(len(sizes) - 1)]
    return tuple(offsets), tuple(map(_frame_read, sizes))


@lru_cache(maxsize=64)
def _frame_read(size_bytes: int) -> ReadRecord:
    """The unpickler peeks at the buffer before it reads a frame's head, and again before its body."""
    head = min(size_bytes, _FRAME_HEAD_BYTES)
    seeks = [Seek(0, 0, "peek"), Seek(0, head, "read")]
    if size_bytes > head:
        seeks += [Seek(head, 0, "peek"), Seek(head, size_bytes - head, "read")]
    return ReadRecord(size_bytes, tuple(seeks))
