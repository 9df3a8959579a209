"""The zip archive that `torch.save` makes of many tensors: its write calls, and the read calls of `torch.load`.

Found by handing PyTorch 2.13 file objects that note every call, up to members beyond 4 GiB; tests/real
compares both ways with strace. `torch.save(path)` makes the same calls of a C++ stream (api "ofstream")
that `torch.save(file object)` makes of the object (api "python"); names in the archive start with the
file's own name in the first case and with "archive" in the second. `torch.load` always reads through a
Python file object. One tensor by itself, as DCP stores it, is `torch_zip`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ckptstorm.steps import ReadRecord, Record, Seek

#: What names start with when a file object is saved to.
OBJECT_STEM = "archive"

_ALIGNMENT = 64
_LOCAL_HEADER, _CENTRAL_HEADER, _PADDING_HEADER = 30, 46, 4
_END = (56, 20, 22)
#: Sizes and offsets from here on need the zip64 fields.
_ZIP64 = 0xFFFFFFFF
_ZIP64_HEADER, _ZIP64_SIZES, _ZIP64_OFFSET = 4, 16, 8
_DESCRIPTOR, _DESCRIPTOR_64 = 16, 24

#: (name, bytes) of the members between the pickle and the tensors, and of those after them.
_BEFORE = (("/.format_version", 1), ("/.storage_alignment", 2), ("/byteorder", 6))
_AFTER = (("/version", 2), ("/.data/serialization_id", 40))


@dataclass(frozen=True, slots=True)
class Archive:
    """What is in a file of `torch.save`.

    Attributes:
        stem_bytes: length of the name that members start with: the file's, without its suffix.
        pickle_bytes: size of the pickle that holds everything but the tensors' bytes.
        data_bytes: bytes of each tensor's storage, in the order of the pickle.
    """

    stem_bytes: int
    pickle_bytes: int
    data_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Member:
    """Where a member of the archive lies: header, data, and the pieces that it is written in."""

    header_at: int
    data_at: int
    data_bytes: int
    pieces: tuple[int, ...]
    central_bytes: int


def stem_bytes(file_name: str) -> int:
    """Length of what member names start with when `torch.save` is given this path."""
    base = file_name.rsplit("/", 1)[-1]
    return len(base.rsplit(".", 1)[0].encode())


def size_bytes(archive: Archive) -> int:
    """Size of the file."""
    return record(archive).size_bytes


@lru_cache(maxsize=256)
def record(archive: Archive) -> Record:
    """The calls that write it; one record, for nothing is flushed before its end."""
    members = _members(archive)
    pieces = [piece for member in members for piece in member.pieces]
    central = sum(member.central_bytes for member in members)
    return Record((*pieces, central, *_END), tensor_count=len(archive.data_bytes), data=_data(members))


@lru_cache(maxsize=256)
def read(archive: Archive) -> ReadRecord:
    """The calls of `torch.load` on it; a tensor without elements is not read."""
    members = _members(archive)
    size, central = record(archive).size_bytes, sum(member.central_bytes for member in members)
    pickle, version, alignment, order, *data, saved_by, identity = members
    tail, end = min(size, 4096), size - sum(_END)
    seeks = [
        Seek(0, 4, "read"),  # is it a zip?
        Seek(size, 0),  # how long is it?
        Seek(0, 8),  # is it an archive of the older kind?
        Seek(size - tail, tail),  # find the end of the central directory
        Seek(size - 22, 22), Seek(size - 42, 20), Seek(end, 56), Seek(end - central, central),
    ]  # fmt: skip
    for member in (identity, saved_by, version, order, alignment, pickle, *data):
        if member.data_bytes:
            seeks += [Seek(member.header_at, _LOCAL_HEADER), Seek(member.data_at, member.data_bytes)]
    return ReadRecord(size, tuple(seeks), _data(members))


def _data(members: list[_Member]) -> tuple[tuple[int, int], ...]:
    """Where the tensors' bytes lie: members behind the pickle's own and before the last two."""
    return tuple((member.data_at, member.data_bytes) for member in members[1 + len(_BEFORE) : -len(_AFTER)])


def _members(archive: Archive) -> list[_Member]:
    told = [("/data.pkl", archive.pickle_bytes), *_BEFORE]
    told += [(f"/data/{index}", size) for index, size in enumerate(archive.data_bytes)]
    members: list[_Member] = []
    at = 0
    for name, size in (*told, *_AFTER):
        members.append(_member(at, archive.stem_bytes + len(name), size))
        at += sum(members[-1].pieces)
    return members


def _member(at: int, name_bytes: int, data_bytes: int) -> _Member:
    zip64 = _ZIP64_SIZES * (data_bytes >= _ZIP64) + _ZIP64_OFFSET * (at >= _ZIP64)
    zip64 += _ZIP64_HEADER * (zip64 > 0)
    start = at + _LOCAL_HEADER + name_bytes + zip64 + _PADDING_HEADER
    padding = _PADDING_HEADER + -start % _ALIGNMENT
    head = tuple(piece for piece in (_LOCAL_HEADER, name_bytes, zip64, padding) if piece)
    body = (data_bytes, _DESCRIPTOR_64 if zip64 else _DESCRIPTOR) if data_bytes else ()
    return _Member(at, at + sum(head), data_bytes, head + body, _CENTRAL_HEADER + name_bytes + zip64)
