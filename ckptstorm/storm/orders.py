"""What rank 0 tells all ranks before a storm: everything they need and cannot see for themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ckptstorm.filesystems.mount import Mount
from ckptstorm.job import Job, to_builtins
from ckptstorm.jobfile import from_builtins


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

    def to_message(self) -> dict[str, Any]:
        """JSON-ready; `from_message` is the way back."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return fields | {"job": to_builtins(self.job), "mount": asdict(self.mount)}

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Orders:
        """What `to_message` made."""
        return cls(**message | {"job": from_builtins(message["job"], "orders"), "mount": Mount(**message["mount"])})


@dataclass(frozen=True, slots=True)
class Ending:
    """How the storm is over for all ranks: the exit code, which rank 0 decides."""

    exit_code: int

    def to_message(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)
