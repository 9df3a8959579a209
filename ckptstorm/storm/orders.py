"""What rank 0 tells all ranks before a storm: everything they need and cannot see for themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ckptstorm.filesystems.mount import Mount
from ckptstorm.job import Job, to_builtins
from ckptstorm.jobfile import from_builtins
from ckptstorm.storm.tested import Spread, Tested, index_of

#: What of a storm is run: all of it, or one half.
Half = Literal["both", "save", "restore", "recover"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a restore on its own must know of the save.

    Attributes:
        mark: the storm whose mark stands in the directory.
        indices: the saves whose checkpoints are there.
        sources: whose shards each rank restores.
        machines, writers: who wrote each file ("step-2/__0_0.distcp"), as indices of `machines`.
    """

    mark: str
    indices: tuple[int, ...]
    sources: tuple[int, ...]
    machines: tuple[str, ...]
    writers: dict[str, list[int]]

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Reading:
        """What `asdict` made, after its way through JSON."""
        lists = {name: tuple(message[name]) for name in ("indices", "sources", "machines")}
        return cls(**message | lists)


@dataclass(frozen=True, slots=True)
class Orders:
    """One storm.

    Attributes:
        storm_id: its name.
        seed: 64 bits that its payload is made from.
        job: the resolved job.
        directory: the directory under test, absolute.
        block_size_bytes: st_blksize that shapes buffered writers and readers.
        engine: the engine chosen ("auto" resolved).
        keeps_files: whether the last checkpoints stay after the storm.
        mount: rank 0's mount of the directory: every node must have the same.
        host: rank 0's, for whoever must name it.
        partial: rank 0's journal, absolute: whoever ends the storm in its place leaves last words there.
        half, reading: what of the storm is run here, and for a restore on its own, of what.
        started: of a recovery: the last round whose save was begun; lost_ns: when the loss was noticed, on rank 0's
            clock, 0 when nobody knows.
        more: further directories under test; spread: how ranks are dealt to all of them.
    """

    storm_id: str
    seed: int
    job: Job
    directory: str
    block_size_bytes: int
    engine: str
    keeps_files: bool
    mount: Mount
    host: str
    partial: str
    half: Half = "both"
    reading: Reading | None = None
    started: int = 0
    lost_ns: int = 0
    more: tuple[Tested, ...] = ()
    spread: Spread = "rank"

    @property
    def tested(self) -> tuple[Tested, ...]:
        """All directories under test, in the order of the command line."""
        return (Tested(self.directory, self.mount), *self.more)

    def own_index(self, rank: int, node: int) -> int:
        """Which of them a rank writes into."""
        return index_of(rank, node, 1 + len(self.more), self.spread)

    def to_message(self) -> dict[str, Any]:
        """JSON-ready; `from_message` is the way back."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        reading = asdict(self.reading) if self.reading is not None else None
        mounts = {"mount": asdict(self.mount), "more": [asdict(one) for one in self.more]}
        return fields | {"job": to_builtins(self.job), "reading": reading} | mounts

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Orders:
        """What `to_message` made."""
        reading = Reading.from_message(message["reading"]) if message["reading"] is not None else None
        job, mount = from_builtins(message["job"], "orders"), Mount(**message["mount"])
        more = tuple(Tested(one["directory"], Mount(**one["mount"])) for one in message["more"])
        return cls(**message | {"job": job, "mount": mount, "reading": reading, "more": more})


@dataclass(frozen=True, slots=True)
class Ending:
    """How the storm is over for all ranks: the exit code, which rank 0 decides."""

    exit_code: int

    def to_message(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)
