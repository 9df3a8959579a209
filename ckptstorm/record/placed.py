"""Where files lay, as a record tells it, read so that a stranger's record cannot surprise its reader.

`environment["placement"]` is plain values from a file: what has another shape than `storm.placing` writes is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckptstorm.record import settings
from ckptstorm.record.record import StormRecord


@dataclass(frozen=True, slots=True)
class Target:
    """A storage target and what it holds of the files that were looked at."""

    name: str
    file_count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file, the rank that told of it, and the targets that it lies on."""

    rank: int
    name: str
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """What is known of the placement of one step.

    Attributes:
        file_count: files of the step; asked_count: those that were looked at.
        targets: all that were seen; their number of the whole file system is `there_count`, where it tells.
        files: one a file that was looked at.
    """

    file_count: int
    asked_count: int
    targets: tuple[Target, ...]
    there_count: int
    files: tuple[PlacedFile, ...]


def placed(record: StormRecord) -> Placed:
    """What the record tells; nothing known is no target and no file."""
    told = settings.table(record.environment, "placement")
    table = settings.table(told, "targets")
    targets = tuple(
        Target(name, settings.count(table, name, "files"), settings.count(table, name, "bytes")) for name in table
    )
    names = [target.name for target in targets]
    entries = told.get("map")
    found = (
        [_file(entry, names, len(record.node_of_rank)) for entry in entries]
        if isinstance(entries, list | tuple)
        else []
    )
    there = settings.table(record.environment, "file_system").get("targets")
    there_count = max(len(there) if isinstance(there, list | tuple) else 0, len(targets))
    files = tuple(each for each in found if each is not None)
    return Placed(settings.count(told, "file_count"), settings.count(told, "asked_count"), targets, there_count, files)


def _file(entry: object, names: list[str], rank_count: int) -> PlacedFile | None:
    if not isinstance(entry, list | tuple) or len(entry) != 3:
        return None
    rank, name, indices = entry
    if not _is_index(rank, rank_count) or not isinstance(name, str) or not isinstance(indices, list | tuple):
        return None
    on = tuple(names[index] for index in indices if _is_index(index, len(names)))
    return PlacedFile(rank, name, on)


def _is_index(value: object, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count
