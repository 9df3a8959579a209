"""The zip archive that `torch.save` makes of one tensor or one small object, as write and read calls.

Found by handing PyTorch 2.13 a file object that notes every call; tests/real compares both with
strace. A tensor's archive is a head (the pickle, three small members, the header of the data
member), the bytes, and a tail (version, serialization id, central directory). Every member's data
starts at a multiple of 64, so the size depends on the tensor's bytes alone.
"""

from __future__ import annotations

from functools import lru_cache

from ckptstorm.steps import ReadRecord, Record, Seek

_ALIGNMENT = 64
# Calls that write the head: per member the local header, name and padding, data, data descriptor.
# The pickle (here the 160 bytes of a large matrix; 142 to 166 by the digits of the shape) and the
# padding after it make up 187 bytes together, so the head is 704 bytes whatever the shape. Nothing
# depends on the pickle but where the reader finds the next header, by as many bytes.
_HEAD = (30, 16, 18, 160, 16, 30, 23, 27, 1, 16, 30, 26, 55, 2, 16, 30, 17, 63, 6, 16, 30, 14, 62)
HEAD_BYTES = sum(_HEAD)
assert HEAD_BYTES == 704
_TAIL_AFTER_PADDING = (2, 16, 30, 30, 50, 40, 16, 463, 56, 20, 22)
_DIRECTORY = (463, 56, 20, 22)
#: A tensor without elements has no data call and two calls less: 1513 bytes.
_EMPTY_TAIL = (30, 15, 19, *_TAIL_AFTER_PADDING)
_SMALL_ARCHIVE_BYTES = 1069
_SMALL_PICKLE_AT_BYTES = 137


@lru_cache(maxsize=4096)
def tensor_record(data_bytes: int) -> Record:
    """The archive of a tensor of `data_bytes`, as `torch.save` writes it to a file object."""
    if data_bytes == 0:
        return Record((*_HEAD, *_EMPTY_TAIL), data=((HEAD_BYTES, 0),))
    # Descriptor, header and name after the data take 61 bytes; the padding field has at least 4.
    padding = _ALIGNMENT + 3 - data_bytes % _ALIGNMENT
    return Record((*_HEAD, data_bytes, 16, 30, 15, padding, *_TAIL_AFTER_PADDING), data=((HEAD_BYTES, data_bytes),))


def tensor_record_bytes(data_bytes: int) -> int:
    """Size of that archive: 1513 for an empty tensor, else the bytes down to 64 and 1577 more."""
    return 1513 if data_bytes == 0 else data_bytes - data_bytes % _ALIGNMENT + 1577


@lru_cache(maxsize=4096)
def tensor_read(data_bytes: int) -> ReadRecord:
    """The calls of `torch.load(..., weights_only=True)` on that archive, in a file view."""
    size = tensor_record_bytes(data_bytes)
    directory_at = size - sum(_DIRECTORY)
    tail_at = min(size, 4096)
    seeks = [
        Seek(0, 4, "read"),  # is it a zip?
        Seek(size, 0),  # how long is it?
        Seek(0, 8),  # is it an archive of the older kind?
        Seek(size - tail_at, tail_at),  # find the end of the central directory
        Seek(size - 22, 22), Seek(size - 42, 20), Seek(size - 98, 56), Seek(directory_at, 463),
        Seek(directory_at - 166, 30), Seek(directory_at - 56, 40),  # serialization id
        *_version_seeks(data_bytes, directory_at),
        Seek(240, 30), Seek(320, 1),  # format version: its header follows the pickle at once
        Seek(466, 30), Seek(576, 6),  # byte order
        Seek(337, 30), Seek(448, 2),  # storage alignment
        Seek(0, 30), Seek(64, 160),  # the pickle
    ]  # fmt: skip
    if data_bytes:
        seeks += [Seek(598, 30), Seek(HEAD_BYTES, data_bytes)]
    return ReadRecord(size, tuple(seeks), ((HEAD_BYTES, data_bytes),))


def _version_seeks(data_bytes: int, directory_at: int) -> tuple[Seek, Seek]:
    version_at = directory_at - 184
    # The header of the version member follows the data and its 16 byte descriptor at once.
    header_at = HEAD_BYTES + (data_bytes + 16 if data_bytes else 0)
    return Seek(header_at, 30), Seek(version_at, 2)


def names_pickle_bytes(name_bytes: int, name_count: int) -> int:
    """Size of the pickle (protocol 2) of a list of names, as in an optimizer's parameter group.

    Args:
        name_bytes: length of all names together.
        name_count: how many.
    """
    # A name is an opcode, its length in four bytes, itself, and a memo entry: two bytes while the
    # memo's index fits in one (the list itself took index 0), then five. Appended 1000 at a time.
    short = min(name_count, 255)
    full, rest = divmod(name_count, 1000)
    appends = 2 * full + min(rest, 2)
    return 2 + 1 + 2 + name_bytes + 5 * name_count + 2 * short + 5 * (name_count - short) + appends + 1


def blob_bytes(pickle_bytes: int) -> int:
    """Size of the archive of an object without tensors whose pickle has `pickle_bytes`."""
    return -(-(_SMALL_PICKLE_AT_BYTES + pickle_bytes) // _ALIGNMENT) * _ALIGNMENT + _SMALL_ARCHIVE_BYTES


@lru_cache(maxsize=64)
def blob_record(size_bytes: int) -> Record:
    """A ready-made archive written in one call."""
    return Record((size_bytes,), tensor_count=0)


@lru_cache(maxsize=64)
def blob_read(size_bytes: int) -> ReadRecord:
    """An archive read in one call, to be taken apart in memory."""
    return ReadRecord(size_bytes, (Seek(0, size_bytes, "read"),))
