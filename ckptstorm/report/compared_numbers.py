"""The numbers that two storms are compared by: a phase's own, a load's rate, and the latencies of their ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ckptstorm.measure.rows import Phase
from ckptstorm.record.summary import PhaseSummary

Unit = Literal["seconds", "bytes_per_s", "per_s", "ratio", "ns"]
#: The phases whose times decide, by their words.
PHASES = (Phase.SAVE.word, Phase.RESTORE.word)


@dataclass(frozen=True, slots=True)
class Number:
    """A number that each round has.

    Attributes:
        name: as in storm.json, or "<op kind> p99".
        unit: of its values; times and ratios are better when small, rates when large.
        of: takes it from a round; None where the round has none.
        grows_with_bytes: cannot be set against that of another amount of bytes.
    """

    name: str
    unit: Unit
    of: Callable[[PhaseSummary], float | None]
    grows_with_bytes: bool = False

    @property
    def is_better_small(self) -> bool:
        """Whether less is better."""
        return self.unit not in ("bytes_per_s", "per_s")


def numbers(phase: str, rounds: tuple[PhaseSummary, ...]) -> tuple[Number, ...]:
    """What can be compared: the phase's own numbers (a load's rate), then latencies of the op kinds that there are."""
    kinds = dict.fromkeys(kind for each in rounds for kind in each.latency_ns)
    own = PHASE_NUMBERS if phase in PHASES else LOAD_NUMBERS
    return (*own, *(_latency(kind, part) for kind in kinds for part in ("p50", "p99", "max")))


def _latency(kind: str, part: str) -> Number:
    def of(summary: PhaseSummary) -> float | None:
        tree = summary.latency_ns.get(kind)
        return float(getattr(tree["all"], part)) if tree else None

    return Number(f"{kind} {part}", "ns", of)


PHASE_NUMBERS = (
    Number("seconds", "seconds", lambda s: s.seconds, grows_with_bytes=True),
    Number("committed_seconds", "seconds", lambda s: s.committed_seconds or None, grows_with_bytes=True),
    Number("first_done_s", "seconds", lambda s: s.first_done_s, grows_with_bytes=True),
    Number("median_done_s", "seconds", lambda s: s.median_done_s, grows_with_bytes=True),
    Number(
        "blocked_seconds", "seconds", lambda s: s.staged.blocked_seconds if s.staged else None, grows_with_bytes=True
    ),
    Number("straggler_ratio", "ratio", lambda s: s.straggler_ratio),
    Number("bytes_per_s", "bytes_per_s", lambda s: s.bytes_per_s),
    Number("iops", "per_s", lambda s: s.iops),
)


def _ops_per_s(summary: PhaseSummary) -> float | None:
    """Of any kind; a load that moves no byte has no bandwidth."""
    count = summary.data_op_count + summary.metadata_op_count
    return count / summary.seconds if summary.seconds and count else None


#: Of a load's stage its time is the window's: no answer.
LOAD_NUMBERS = (Number("ops_per_s", "per_s", _ops_per_s),)
