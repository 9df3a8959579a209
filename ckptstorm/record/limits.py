"""The limits of `[slo]`: what was asked, what was found in the worst measured round, and the margin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.latency import LatencyTable, select
from ckptstorm.measure.rows import Phase
from ckptstorm.program import READS, WRITES, Kind
from ckptstorm.record import settings
from ckptstorm.record.latencies import percentiles
from ckptstorm.record.record import StormRecord
from ckptstorm.record.rounds import RoundsSummary, over_rounds
from ckptstorm.record.summary import PhaseSummary
from ckptstorm.units import count_text, rate_text, time_text

Unit = Literal["seconds", "bytes_per_s", "iops", "ratio", "ns"]


@dataclass(frozen=True, slots=True)
class Limit:
    """One key of `[slo]`, judged.

    Attributes:
        key: as in the job.
        bound: "at most" or "at least".
        limit: what the job asks, in `unit`.
        found: in the worst measured round (the median round for `…_median`); None when no round
            could tell, which counts as missed.
        unit: of both.
    """

    key: str
    bound: Literal["at most", "at least"]
    limit: float
    found: float | None
    unit: Unit

    @property
    def is_met(self) -> bool:
        """Whether it held."""
        if self.found is None:
            return False
        return self.found <= self.limit if self.bound == "at most" else self.found >= self.limit

    @property
    def margin(self) -> float | None:
        """Room as a share of the limit: 0.1 is a tenth to spare, -0.1 a tenth beyond; None when unknown."""
        if self.found is None:
            return None
        room = self.limit - self.found if self.bound == "at most" else self.found - self.limit
        return room / self.limit

    def text(self, value: float) -> str:
        """A value in the limit's unit, as people read it."""
        if self.unit == "seconds":
            return time_text(value * NS_PER_S)
        if self.unit == "ns":
            return time_text(value)
        if self.unit == "bytes_per_s":
            return rate_text(value)
        return f"{count_text(value)}/s" if self.unit == "iops" else f"{value:.2f}"

    def sentence(self) -> str:
        """What was asked, what came, and by how much."""
        asked = f"{self.key}: {self.bound} {self.text(self.limit)} was asked"
        if self.found is None or self.margin is None:
            return f"{asked}, and no measured round could tell"
        beyond = f"{abs(self.margin) * 100:.1f} % {'to spare' if self.is_met else 'beyond'}"
        return f"{asked}, {self.text(self.found)} was found ({beyond})"


@dataclass(frozen=True, slots=True)
class _Judged:
    """What limits are judged on: the record's measured rounds."""

    save: RoundsSummary | None
    restore: RoundsSummary | None
    record: StormRecord


def judge(record: StormRecord, summaries: tuple[PhaseSummary, ...]) -> tuple[Limit, ...]:
    """Every limit that the job sets, in the order of `[slo]`; a key that is not known counts as missed."""
    judged = _Judged(over_rounds(summaries, Phase.SAVE), over_rounds(summaries, Phase.RESTORE), record)
    return tuple(_limit(key, limit, judged) for key, limit in settings.limits(record).items())


def _limit(key: str, limit: float, judged: _Judged) -> Limit:
    if key not in _FOUND:
        return Limit(key, "at most", limit, None, "ratio")
    unit, find = _FOUND[key]
    return Limit(key, "at least" if unit in ("bytes_per_s", "iops") else "at most", limit, find(judged), unit)


def _of(rounds: RoundsSummary | None, number: Callable[[RoundsSummary], float]) -> float | None:
    return None if rounds is None else number(rounds)


def _either(judged: _Judged, number: Callable[[RoundsSummary], float]) -> float | None:
    found = [number(rounds) for rounds in (judged.save, judged.restore) if rounds is not None]
    return max(found) if found else None


def _p99(*kinds: Kind) -> Callable[[_Judged], float | None]:
    """The worst 99th percentile of these kinds in any measured save or restore."""

    def find(judged: _Judged) -> float | None:
        phases = (p for p in judged.record.phases if p.round >= 1 and p.phase in (Phase.SAVE, Phase.RESTORE))
        found = [p99 for phase in phases if (p99 := _p99_of(phase.latency, kinds)) is not None]
        return max(found) if found else None

    return find


def _p99_of(table: LatencyTable, kinds: tuple[Kind, ...]) -> float | None:
    found = percentiles(*select(table, kinds))
    return float(found.p99) if found.count else None


#: What each key of `[slo]` is compared with. Times and ratios are upper limits, rates lower ones.
_FOUND: dict[str, tuple[Unit, Callable[[_Judged], float | None]]] = {
    "save_seconds": ("seconds", lambda j: _of(j.save, lambda r: r.seconds.most)),
    "save_seconds_median": ("seconds", lambda j: _of(j.save, lambda r: r.seconds.median)),
    "restore_seconds": ("seconds", lambda j: _of(j.restore, lambda r: r.seconds.most)),
    "restore_seconds_median": ("seconds", lambda j: _of(j.restore, lambda r: r.seconds.median)),
    "commit_seconds": ("seconds", lambda j: _of(j.save, lambda r: r.committed_seconds.most)),
    "save_bytes_per_s": ("bytes_per_s", lambda j: _of(j.save, lambda r: r.bytes_per_s.least)),
    "restore_bytes_per_s": ("bytes_per_s", lambda j: _of(j.restore, lambda r: r.bytes_per_s.least)),
    "save_iops": ("iops", lambda j: _of(j.save, lambda r: r.iops.least)),
    "restore_iops": ("iops", lambda j: _of(j.restore, lambda r: r.iops.least)),
    "straggler_ratio": ("ratio", lambda j: _either(j, lambda r: r.straggler_ratio.most)),
    "round_spread": ("ratio", lambda j: _of(j.save, lambda r: r.seconds.spread)),
    "write_p99": ("ns", _p99(*WRITES)),
    "read_p99": ("ns", _p99(*READS)),
    "fsync_p99": ("ns", _p99(Kind.FSYNC, Kind.FDATASYNC)),
    "open_p99": ("ns", _p99(Kind.OPEN)),
}
KEYS = tuple(_FOUND)
