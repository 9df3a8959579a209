"""The limits of `[slo]`: what was asked, what was found in the worst measured round, and the margin.

Which key means what is in `slo`; here it is looked up in the record. Numbers of one phase or one stage of a load form a
group over the rounds: the worst round of a group counts (or its median), and the worst of all groups that the
key speaks of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.latency import select
from ckptstorm.measure.rows import Phase
from ckptstorm.program import READS, WRITES, Kind
from ckptstorm.record import settings
from ckptstorm.record.beside import BEFORE_SAVE
from ckptstorm.record.latencies import Percentiles, percentiles
from ckptstorm.record.load import LoadRecord
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.rounds import median_of
from ckptstorm.record.summary import PhaseSummary
from ckptstorm.slo import NUMBERS, PHASES, Meant, Unit
from ckptstorm.slo import limits as limits_of
from ckptstorm.units import count_text, rate_text, time_text


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
        return f"{count_text(value)}/s" if self.unit == "per_s" else f"{value:.2f}"

    def sentence(self) -> str:
        """What was asked, what came, and by how much."""
        asked = f"{self.key}: {self.bound} {self.text(self.limit)} was asked"
        if self.found is None or self.margin is None:
            return f"{asked}, and no measured round could tell"
        beyond = f"{abs(self.margin) * 100:.1f} % {'to spare' if self.is_met else 'beyond'}"
        return f"{asked}, {self.text(self.found)} was found ({beyond})"


Measured = tuple[PhaseSummary, PhaseRecord]


def judge(record: StormRecord, summaries: tuple[PhaseSummary, ...]) -> tuple[Limit, ...]:
    """Every limit that the job sets, in the order of `[slo]`; a key that is not known counts as missed."""
    several = list(zip(summaries, record.phases, strict=True))
    kinds = settings.load_kinds(record)
    asked = limits_of(settings.table(record.job, "slo"), kinds)
    return tuple(_judged(key, meant, limit, several, kinds) for key, meant, limit in asked if limit > 0)


def _judged(key: str, meant: Meant | None, limit: float, several: list[Measured], kinds: dict[str, str]) -> Limit:
    if meant is None:
        return Limit(key, "at most", limit, None, "ratio")
    found: list[float] = []
    for is_meant in (_is_meant_phase, _is_meant_load):  # of nobody in particular: the checkpoint's, if it has such
        groups = _groups([one for one in several if is_meant(meant, *one, kinds)])
        found = found or [value for group in groups if (value := _of_group(meant, group)) is not None]
    worst = (min(found) if meant.bound == "at least" else max(found)) if found else None
    return Limit(key, meant.bound, limit, worst, meant.unit)


def _groups(several: list[Measured]) -> Iterable[list[Measured]]:
    """The measured rounds of each phase, and of each stage of a load."""
    groups: dict[str, list[Measured]] = {}
    for summary, phase in several:
        if summary.is_measured:
            groups.setdefault(phase.word, []).append((summary, phase))
    return groups.values()


def _is_meant_phase(meant: Meant, summary: PhaseSummary, phase: PhaseRecord, kinds: dict[str, str]) -> bool:
    del kinds
    if phase.load is not None or phase.name or phase.phase.word not in PHASES or meant.during:
        return False
    if meant.number and not summary.is_finished:
        return False  # a round in which ops failed has no time
    if meant.whose:
        return phase.phase.word == meant.whose
    if meant.number == "round_spread" or (meant.number and NUMBERS[meant.number].owner in ("save", "staged")):
        return phase.phase == Phase.SAVE
    return phase.phase in (Phase.SAVE, Phase.RESTORE)


def _is_meant_load(meant: Meant, summary: PhaseSummary, phase: PhaseRecord, kinds: dict[str, str]) -> bool:
    """A stage of a load; of one that runs beside the save the window that the key names, else that before the save."""
    load = phase.load
    if load is None or (meant.number and not summary.is_finished):
        return False
    if meant.number.startswith("metadata") and kinds.get(load.load) != "metadata":
        return False
    window = f"during the {meant.during}" if meant.during else BEFORE_SAVE
    is_when = load.beside.window == window if load.beside is not None else not meant.during
    return is_when and meant.whose in ("", load.load)


def _of_group(meant: Meant, group: list[Measured]) -> float | None:
    if meant.number == "round_spread":
        seconds = [summary.seconds for summary, _ in group]
        return (max(seconds) - min(seconds)) / median_of(seconds)
    values = [value for one in group if (value := _value(meant, *one)) is not None]
    if not values:
        return None
    if meant.is_median:
        return median_of(values)
    return min(values) if meant.bound == "at least" else max(values)


def _value(meant: Meant, summary: PhaseSummary, phase: PhaseRecord) -> float | None:
    if meant.number:
        return _NUMBERS[meant.number](summary, phase)
    found = _latency(meant.op, phase)
    return float(getattr(found, meant.quantile)) if found.count else None


def _latency(op: str, phase: PhaseRecord) -> Percentiles:
    """Of an action of a load where it has one by that word (or that begins with it), else of an op kind."""
    words = phase.load.actions if phase.load is not None else ()
    rows = [number for number, word in enumerate(words) if op in (word, word.partition("+")[0])]
    if phase.load is not None and rows:
        table = phase.load.table
        return percentiles(table.counts[rows].sum(axis=0), int(table.max_ns[rows].max()))
    kinds = _KINDS.get(op) or ((Kind[op.upper()],) if op.upper() in Kind.__members__ else ())
    return percentiles(*select(phase.latency, kinds))


def _least_per_node(phase: PhaseRecord, column: str, seconds: float) -> float | None:
    """÷ T of the slowest node that had any."""
    rows = phase.rows
    sums = np.bincount(rows["node"], weights=rows[column]) if len(rows) else np.zeros(0)
    sums = sums[sums > 0]
    return float(sums.min()) / seconds if len(sums) and seconds > 0 else None


def _actions_per_s(summary: PhaseSummary, phase: PhaseRecord) -> float | None:
    """Actions of a load ÷ T; beside a save those that ended in the window."""
    load = phase.load
    if load is None or summary.seconds <= 0:
        return None
    if load.beside is not None:
        return load.beside.achieved_per_s
    return sum(int(load.table.counts[number].sum()) for number in _told(load)) / summary.seconds


def _actions_per_s_of_a_node(summary: PhaseSummary, phase: PhaseRecord) -> float | None:
    load = phase.load
    if load is None or summary.seconds <= 0:
        return None
    rows = load.nodes[np.isin(load.nodes["action"], _told(load))]
    sums = np.bincount(rows["node"], weights=rows["count"]) if len(rows) else np.zeros(0)
    sums = sums[sums > 0]
    return float(sums.min()) / summary.seconds if len(sums) else None


def _told(load: LoadRecord) -> list[int]:
    """Its actions, but for what puts a tree back between laps."""
    return [number for number, word in enumerate(load.actions) if word != "reset"]


def _staged(name: str) -> Callable[[PhaseSummary, PhaseRecord], float | None]:
    return lambda summary, _: None if summary.staged is None else float(getattr(summary.staged, name))


#: Words that stand for several kinds of ops.
_KINDS: dict[str, Sequence[Kind]] = {"write": WRITES, "read": READS, "fsync": (Kind.FSYNC, Kind.FDATASYNC)}

#: How each number of `slo.NUMBERS` is read off a phase; those of loads are read off their actions.
_NUMBERS: dict[str, Callable[[PhaseSummary, PhaseRecord], float | None]] = {
    "seconds": lambda s, _: s.seconds,
    "commit_seconds": lambda s, _: s.committed_seconds,
    "blocked_seconds": _staged("blocked_seconds"),
    "drain_seconds": _staged("drain_seconds"),
    "backpressure_seconds": _staged("backpressure_seconds"),
    "tail_seconds": lambda s, _: s.tail_s,
    "stall_gpu_seconds": lambda s, _: s.stall_gpu_seconds,
    "bytes_per_s": lambda s, _: s.bytes_per_s,
    "bytes_per_s_per_node": lambda s, p: _least_per_node(p, "bytes", s.seconds),
    "iops": lambda s, _: s.iops,
    "iops_over_4k": lambda s, _: s.iops_over_4k,
    "iops_per_node": lambda s, p: _least_per_node(p, "data_op_count", s.seconds),
    "ops_per_s": _actions_per_s,
    "ops_per_s_per_node": _actions_per_s_of_a_node,
    "metadata_ops_per_s": _actions_per_s,
    "metadata_ops_per_s_per_node": _actions_per_s_of_a_node,
    "straggler_ratio": lambda s, _: s.straggler_ratio,
}
assert {*_NUMBERS, "round_spread"} == set(NUMBERS)
