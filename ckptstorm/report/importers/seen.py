"""What another tool measured, in our words; None where it did not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RankSeen:
    """One process, thread or job of the other tool; seconds as it took them itself."""

    rank: int
    seconds: float
    host: str = ""
    bytes: int | None = None
    error_count: int = 0


@dataclass(frozen=True, slots=True)
class BinSeen:
    """Ops of one histogram bin; nanoseconds, both ends inclusive."""

    low_ns: int
    high_ns: int
    count: int


@dataclass(frozen=True, slots=True)
class LatencySeen:
    """The latencies of one kind of op.

    Attributes:
        kind: the op kind's word.
        bins: those that are not empty.
        max_ns: exact, when the tool keeps it.
    """

    kind: str
    bins: tuple[BinSeen, ...]
    max_ns: int


@dataclass(frozen=True, slots=True)
class PhaseSeen:
    """One phase of one round.

    Attributes:
        phase: save, restore, or the other tool's own word for what is neither.
        round: from 1.
        seconds: until the last one was done; None when the tool does not know.
        basis: how `seconds` was found, and what it leaves out.
        tool_seconds: what the tool's own headline divides by; None when it tells none.
        tool_bytes_per_s: the tool's own headline bandwidth.
        tool_per_s: the tool's own headline rate of ops, files or items.
        bytes, data_op_count, metadata_op_count: moved and done.
        first_done_s: when the first one was done.
        error_count: as far as told.
        ranks: what each took, where told.
        latencies: histograms, where told.
    """

    phase: str
    round: int
    seconds: float | None
    basis: str
    tool_seconds: float | None = None
    tool_bytes_per_s: float | None = None
    tool_per_s: float | None = None
    bytes: int | None = None
    data_op_count: int | None = None
    metadata_op_count: int | None = None
    first_done_s: float | None = None
    error_count: int = 0
    ranks: tuple[RankSeen, ...] = ()
    latencies: tuple[LatencySeen, ...] = ()

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes over the time of the last one."""
        return self.bytes / self.seconds if self.bytes is not None and self.seconds else None

    @property
    def iops(self) -> float | None:
        """Data ops over the same time."""
        return self.data_op_count / self.seconds if self.data_op_count is not None and self.seconds else None


@dataclass(frozen=True, slots=True)
class Seen:
    """One run of another tool.

    Attributes:
        tool, version: which.
        name: of the run: it stands where a storm's name stands.
        path: of what was read.
        rank_count, node_count: of the world; None when not told.
        started: time of day as the tool writes it.
        phases: in the order they ran.
        notes: what the reader of the numbers must know.
    """

    tool: str
    version: str
    name: str
    path: str
    rank_count: int | None
    node_count: int | None
    started: str
    phases: tuple[PhaseSeen, ...]
    notes: tuple[str, ...] = ()
