"""[[load]]: traffic that is not a checkpoint, one struct a kind; apart from job.py because each kind has its own keys.

A load makes its files below `load-<name>`, runs under its own name as a phase of its own, and removes what
it made. What the keys mean together is checked where the load is planned (`loads/`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from ckptstorm.units import GIB, KIB, Bytes, Duration, bytes_word, parse_bytes

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Weight = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
#: A load's name is part of a directory's name.
Name = Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9-]{0,31}$")]

_RANGE = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+)\s*\Z")
_RATE = re.compile(r"\s*(.+?)\s*/\s*s\s*\Z")
#: No op of a load is larger: a buffer of this size for each op in flight is what a node bears.
LARGEST_BYTES = GIB


class _Written:
    """A value that a job writes in a way of its own (no dataclass: msgspec would expect a table of its fields)."""

    __slots__ = ()

    def plain(self) -> Any:
        """As a job writes it."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.plain() == other.plain()

    def __hash__(self) -> int:
        return hash(str(self.plain()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.plain()!r})"


class Sizes(_Written):
    """Sizes to draw from: one, a range, or a weighted mix of both.

    Attributes:
        parts: (least, most, weight) of each; sizes within a part are equally likely.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[tuple[int, int, float], ...]) -> None:
        self.parts = parts

    @classmethod
    def parse(cls, value: object) -> Sizes:
        """ "4KiB", "4KiB..64KiB", or { "4KiB" = 70, "64KiB..1MiB" = 30 }.

        Raises:
            ValueError: none of these.
        """
        if isinstance(value, Sizes):
            return value
        if not isinstance(value, dict):
            return cls((_part(value, 1.0),))
        if not value:
            raise ValueError("expected sizes with their weights, found an empty table")
        for weight in value.values():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1e9:
                raise ValueError(f"expected a weight above 0, found {weight!r}")
        return cls(tuple(_part(size, float(weight)) for size, weight in value.items()))

    def plain(self) -> Any:
        """The exact way back from `parse`."""
        words = {_part_word(least, most): weight for least, most, weight in self.parts}
        return next(iter(words)) if len(self.parts) == 1 else words

    @property
    def least_bytes(self) -> int:
        """The smallest size there can be."""
        return min(least for least, _, _ in self.parts)

    @property
    def most_bytes(self) -> int:
        """The largest."""
        return max(most for _, most, _ in self.parts)

    @property
    def mean_bytes(self) -> float:
        """The expected size."""
        whole = sum(weight for *_, weight in self.parts)
        return sum((least + most) / 2 * weight for least, most, weight in self.parts) / whole


class Rate(_Written):
    """A limit.

    Attributes:
        per_s: so many a second.
        unit: of what.
    """

    __slots__ = ("per_s", "unit")

    def __init__(self, per_s: int, unit: Literal["ops", "bytes"]) -> None:
        self.per_s, self.unit = per_s, unit

    @classmethod
    def parse(cls, value: object) -> Rate:
        """ "1000/s" or "100MiB/s".

        Raises:
            ValueError: neither.
        """
        says = 'a rate such as "1000/s" or "100MiB/s"'
        match = _RATE.match(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"expected {says}, found {value!r}")
        is_count = match[1].isdigit()
        try:
            per_s = int(match[1][:19]) if is_count else int(parse_bytes(match[1]))
        except ValueError:
            raise ValueError(f"expected {says}, found {value!r}") from None
        if per_s < 1 or per_s > 1 << 50:
            raise ValueError(f"expected {says}, found {value!r}")
        return cls(per_s, "ops" if is_count else "bytes")

    def plain(self) -> str:
        """The exact way back from `parse`."""
        return f"{self.per_s}/s" if self.unit == "ops" else f"{bytes_word(self.per_s)}/s"


def _part(value: object, weight: float) -> tuple[int, int, float]:
    match = _RANGE.match(value) if isinstance(value, str) else None
    least, most = (parse_bytes(match[1]), parse_bytes(match[2])) if match else (parse_bytes(value),) * 2
    if least > most:
        raise ValueError(f"expected a range that rises, found {value!r}")
    if most > LARGEST_BYTES:
        raise ValueError(f"expected sizes up to 1GiB, found {value!r}")
    return int(least), int(most), weight


def _part_word(least: int, most: int) -> str:
    return bytes_word(least) if least == most else f"{bytes_word(least)}..{bytes_word(most)}"


class LoadTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every kind of load has."""

    name: Name | None = None  # of its phases; needed when there are two loads of a kind
    when: Literal["alone", "beside"] = "alone"  # as a phase of its own, or beside save and restore
    ranks: Literal["all"] | tuple[Natural, ...] = "all"  # who runs it
    threads: Count = 1  # per rank
    duration: Duration | None = None  # until this time is over; without it, a fixed amount of work
    ramp: Duration = Duration(0)  # runs before, uncounted
    rate: Rate | None = None  # at most this much, at a steady pace: "1000/s" ops or "100MiB/s"
    rate_per: Literal["cluster", "rank"] = "cluster"  # whose rate that is
    seed: Natural = 0  # of everything that is drawn by lot


class RandomLoad(LoadTable, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="random"):
    """[[load]] kind = "random": reads and writes of pieces of files."""

    access: Literal["read", "write", "mixed"] = "read"
    read_percent: Percent | None = None  # mixed only: of the ops; 50 when left out
    block: Sizes = Sizes(((4 * KIB, 4 * KIB, 1.0),))  # a size, a range "4KiB..64KiB", or sizes with their weights
    #: permutation: every block once before any comes again; uniform: by lot; zipf: some far more often than
    #: others; sequential; gaps: sequential with `gap` bytes left out after each block.
    order: Literal["permutation", "uniform", "zipf", "sequential", "gaps"] = "permutation"
    theta: Annotated[float, msgspec.Meta(gt=0, le=5)] = 0.99  # zipf only: the larger, the more uneven
    gap: Bytes = Bytes(64 * KIB)  # gaps only
    aligned: bool = True  # offsets are multiples of the smallest block; or any byte
    span: Bytes = Bytes(GIB)  # bytes of file for each rank
    file: Literal["rank", "shared"] = "rank"  # a file for each rank, or one for all, in which each roams everywhere
    amount: Bytes | None = None  # to move per rank; without it and without `duration`, the span
    prefilled: bool | None = None  # whether the files hold data before; when left out: where reads need it
    warm: bool = False  # declared: reads may come from memory
    content: Literal["own", "repeated"] = "own"  # bytes that prove themselves, or the same ones again and again
    fsync_every: Natural = 0  # an fsync after so many writes; 0: none
    final_fsync: bool = False  # an fsync when a thread has finished, inside the time
    verify: bool = False  # reads are compared with what was written, and writes are read back afterwards
    mode: Literal["sync", "libaio", "io_uring", "mmap"] = "sync"
    direct: bool = False  # O_DIRECT
    queue_depth: Count = 1  # ops in flight per thread


class MetadataLoad(LoadTable, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="metadata"):
    """[[load]] kind = "metadata": files made, looked at, listed, renamed, locked, removed."""

    #: Each action over all files, as a phase of its own: ["create+write", "stat", "delete"].
    phases: tuple[str, ...] = ()
    mix: dict[str, Weight] = {}  # or: actions drawn by weight, { stat = 60, "open+read" = 30, create = 5, delete = 5 }
    flow: tuple[str, ...] = ()  # or: every thread makes these actions in this order, again and again
    items: Count = 1000  # files per rank
    depth: Annotated[int, msgspec.Meta(ge=0, le=16)] = 0  # levels of directories below the load's own
    branch: Annotated[int, msgspec.Meta(ge=1, le=1 << 16)] = 1  # directories in each of them
    directory: Literal["own", "shared"] = "own"  # a tree for each rank, or one for all
    of: Literal["own", "other-node"] = "own"  # whose files are looked at (stat, exists, open, utime …)
    size: Sizes = Sizes(((0, 0, 1.0),))  # of the files, 0 to 64 KiB and beyond: as `block` of random
    append: Sizes = Sizes(((4 * KIB, 4 * KIB, 1.0),))  # of an append
    count: Count | None = None  # mix and flow: actions (rounds of the flow) per thread; or `duration`
    contended: bool = False  # locks: all ranks lock the same file, instead of each its own


#: Every kind, by its word.
KINDS: dict[str, type[LoadTable]] = {"random": RandomLoad, "metadata": MetadataLoad}
Load = RandomLoad | MetadataLoad


def kind_of(load: LoadTable) -> str:
    """ "random" or "metadata"."""
    return str(type(load).__struct_config__.tag)


def name_of(load: LoadTable) -> str:
    """The word of its phases: its name, or its kind."""
    return load.name or kind_of(load)


def directory_of(load: LoadTable) -> str:
    """The directory below the storm's root that holds all that it makes."""
    return f"load-{name_of(load)}"
