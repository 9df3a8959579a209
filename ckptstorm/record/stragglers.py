"""Who everybody waited for, by name, and what that rank's time went into."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure import pace
from ckptstorm.measure.histogram import order_statistic
from ckptstorm.program import Kind
from ckptstorm.record.record import PhaseRecord, StormRecord

Int64s = NDArray[np.int64]

#: A rank is a straggler when its time exceeds the median's by this factor …
STRAGGLER_MULTIPLE = 2.0
#: … and by this much: in phases of milliseconds a factor of two is the scheduler's doing.
STRAGGLER_EXCESS_NS = 10_000_000
#: How many are named; all are counted by their rows.
STRAGGLERS_KEPT = 32
#: What takes at least this share of the excess is named as its cause.
CAUSE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank whose phase time exceeds the stated multiple of the median.

    Attributes:
        rank, host: who.
        seconds: from its own planned release until it was durable.
        times_median: seconds ÷ the median rank's.
        cause: the op kind or wait that most of its excess over a median rank went into; "" unknown.
        cause_seconds: how much more of it than a median rank.
    """

    rank: int
    host: str
    seconds: float
    times_median: float
    cause: str = ""
    cause_seconds: float = 0.0


def stragglers(phase: PhaseRecord, record: StormRecord) -> tuple[Straggler, ...]:
    """The stragglers of a phase, slowest first."""
    rows = phase.rows
    if not len(rows):
        return ()
    times = own_times_ns(phase)
    median = _median_ns(phase)
    slowest = sorted(np.flatnonzero(late(phase)).tolist(), key=lambda index: -int(times[index]))[:STRAGGLERS_KEPT]
    spent = time_by_cause(phase) if slowest else {}
    return tuple(
        Straggler(
            int(rows["rank"][index]),
            host_of(record, int(rows["node"][index])),
            int(times[index]) / NS_PER_S,
            int(times[index]) / median,
            *_cause(spent, index, int(times[index]) - median),
        )
        for index in slowest
    )


def late(phase: PhaseRecord) -> NDArray[np.bool_]:
    """Which rows are those of stragglers; a rank that was never durable is none: it has no time."""
    if not len(phase.rows):
        return np.zeros(0, dtype=np.bool_)
    times = own_times_ns(phase)
    median = _median_ns(phase)
    is_late = (times > STRAGGLER_MULTIPLE * median) & (times - median > STRAGGLER_EXCESS_NS)
    return np.asarray(is_late & (phase.rows["durable_ns"] >= 0))


def own_times_ns(phase: PhaseRecord) -> Int64s:
    """How long each rank took from its own planned release, in the order of the rows; of no meaning if not durable."""
    rows = phase.rows
    delays = pace.delays_ns(phase.pace, len(rows))
    return np.maximum(np.asarray(rows["durable_ns"] - rows["release_ns"].min() - delays, dtype=np.int64), 0)


def durable_times_ns(phase: PhaseRecord) -> Int64s:
    """The same, of the ranks that were durable only."""
    return own_times_ns(phase)[phase.rows["durable_ns"] >= 0] if len(phase.rows) else np.zeros(0, dtype=np.int64)


def _median_ns(phase: PhaseRecord) -> int:
    """The median rank's time, of those that were durable; at least 1."""
    return max(order_statistic(durable_times_ns(phase), 0.5), 1)


def host_of(record: StormRecord, node: int) -> str:
    """The host's name, or "node 3" when the record does not know it."""
    return record.nodes[node].host if 0 <= node < len(record.nodes) else f"node {node}"


def time_by_cause(phase: PhaseRecord) -> dict[str, Int64s]:
    """What ranks' time can go into (op kinds, waits): nanoseconds of each rank, in the order of the rows."""
    rows = phase.rows
    spent = {
        "making bytes": np.asarray(rows["generate_wait_ns"], dtype=np.int64),
        "comparing bytes": np.asarray(rows["verify_wait_ns"], dtype=np.int64),
        "the framework's collectives": np.asarray(rows["coordination_ns"], dtype=np.int64),
        "a late start": np.asarray(rows["release_ns"] - pace.delays_ns(phase.pace, len(rows)), dtype=np.int64),
    }
    if len(phase.kind_ns) == len(rows):
        spent |= {kind.word: phase.kind_ns[:, kind] for kind in Kind if phase.kind_ns[:, kind].any()}
    return spent


def _cause(spent: dict[str, Int64s], row: int, excess_ns: int) -> tuple[str, float]:
    """What most of one rank's excess went into, and how many seconds more than a median rank's."""
    more = {name: int(each[row]) - order_statistic(each, 0.5) for name, each in spent.items()}
    name, most = max(more.items(), key=lambda pair: pair[1])
    return (name, most / NS_PER_S) if most >= CAUSE_SHARE * excess_ns else ("", 0.0)
