"""What passed the wire in a phase, beside what the ranks moved: the server-side join."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record.record import PhaseRecord
from ckptstorm.record.words import percent
from ckptstorm.units import bytes_text

#: Counters may miss this share of what passed (inline data, the last page); a cache that served more is told.
WIRE_MISS_SHARE = 0.01

#: A client that compresses what it sends, or counts late, may send this much less than it was given.
HELD_BACK_SHARE = 0.2

_PLACES = {
    "network": "through the clients' networks",
    "client's wire": "over the clients' wires",
    "servers": "at the servers",
    "device": "at the device",
}


@dataclass(frozen=True, slots=True)
class Wire:
    """A phase's counters taken together.

    Attributes:
        at: where they count: "client's wire", "servers", "device".
        bytes: that passed in the phase's direction (written in a save, read in a restore).
        due_bytes: the least that had to pass.
        seconds: between the two readings, the longest of all sources.
    """

    at: str
    bytes: int
    due_bytes: int
    seconds: float

    @property
    def share(self) -> float:
        """What passed, for each byte that had to."""
        return self.bytes / self.due_bytes if self.due_bytes else 1.0

    @property
    def bytes_per_s(self) -> float:
        """The rate at the counters."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def is_short(self) -> bool:
        """Whether less passed than had to."""
        return self.bytes < (1 - WIRE_MISS_SHARE) * self.due_bytes

    @property
    def holds_back(self) -> bool:
        """Whether a save's bytes had not left the client: only a wire that carries nothing else can tell."""
        return self.at == "client's wire" and self.bytes < (1 - HELD_BACK_SHARE) * self.due_bytes

    def sentence(self) -> str:
        """ "31 MiB (48 %) of at least 64 MiB over the clients' wires"."""
        missing = f" ({percent(self.share)})" if self.is_short else ""
        place = _PLACES.get(self.at, f"past the {self.at}")
        return f"{bytes_text(self.bytes)}{missing} of at least {bytes_text(self.due_bytes)} {place}"


def wire(phase: PhaseRecord) -> Wire | None:
    """What passed; None when nothing was counted in that direction, or a node is missing."""
    traffic = phase.traffic
    counted = [each.read_bytes if phase.phase == Phase.RESTORE else each.write_bytes for each in traffic]
    if not counted or min(counted) < 0 or phase.due_bytes < 0:
        return None
    longest_ns = max(each.ended_ns - each.begun_ns for each in traffic)
    return Wire(traffic[0].at, sum(counted), phase.due_bytes, longest_ns / NS_PER_S)


def shortest(phases: Iterable[PhaseRecord]) -> Wire | None:
    """Of several rounds the one in which the smallest share passed; None when one of them was not counted."""
    found = [wire(phase) for phase in phases]
    known = [each for each in found if each is not None]
    return min(known, key=lambda each: each.share) if known and len(known) == len(found) else None
