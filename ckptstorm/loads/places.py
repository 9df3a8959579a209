"""The names of a metadata load: a tree of directories, and in it the files of each rank.

A file has an index among its rank's; its names follow from it: as made, as renamed, as linked, and that of
the directory that `mkdir` makes. So no rank has to be told what another one made.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ckptstorm.errors import JobError
from ckptstorm.load_tables import MetadataLoad, name_of
from ckptstorm.program import STEP, Path

#: More directories than this in one tree are a mistake in depth or branch.
_DIRECTORIES_MOST = 1 << 20
#: How a file's other names end: renamed, linked, a directory instead, never made.
SUFFIXES = {"file": "", "renamed": ".r", "link": ".l", "directory": ".d", "absent": ".x"}


@dataclass(frozen=True)
class Places:
    """The names of one rank's files.

    Attributes:
        load: whose.
        rank: whose files.
        item_count: names of a rank: the files at the start, and as many again where more can be made.
    """

    load: MetadataLoad
    rank: int
    item_count: int

    @cached_property
    def directories(self) -> tuple[str, ...]:
        """The tree's directories, parents before children; the first is its top, "" for the load's own."""
        top = "" if self.load.directory == "shared" else f"rank-{self.rank:05d}"
        found = level = [top]
        for _ in range(self.load.depth):
            level = [f"{parent}/d{number}".lstrip("/") for parent in level for number in range(self.load.branch)]
            found = found + level
        return tuple(found)

    def name(self, item: int, form: str = "file") -> str:
        """One of the names of a file; files are dealt to the directories in turn."""
        directory = self.directories[item % len(self.directories)]
        return f"{directory}/f{self.rank:05d}-{item:07d}{SUFFIXES[form]}".lstrip("/")

    @property
    def log(self) -> Path:
        """The rank's log file."""
        return Path(STEP, f"log-{self.rank:05d}", self.rank)

    def directory_of(self, item: int) -> int:
        """Index into `directories` of a file's."""
        return item % len(self.directories)

    def path(self, item: int, form: str, size_bytes: int) -> Path:
        """A file's name for a program."""
        return Path(STEP, self.name(item, form), self.rank, size_bytes)


def directory_count(load: MetadataLoad) -> int:
    """Directories of one tree.

    Raises:
        JobError: more than a million.
    """
    count: int = sum(load.branch**level for level in range(load.depth + 1))
    if count > _DIRECTORIES_MOST:
        raise JobError(
            f"[[load]] {name_of(load)} depth = {load.depth}, branch = {load.branch}: {count:,} directories a tree",
            f"allowed: up to {_DIRECTORIES_MOST:,}",
        )
    return count
