"""Save and restore: how long, how fast, who was last, where the time went."""

from __future__ import annotations

from collections.abc import Callable

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure import latency
from ckptstorm.measure.histogram import order_statistic
from ckptstorm.measure.rows import Phase
from ckptstorm.program import DATA, Kind
from ckptstorm.record.latencies import ALL, Percentiles, latency_tree
from ckptstorm.record.record import PhaseRecord
from ckptstorm.record.rounds import spread_of
from ckptstorm.record.stragglers import Straggler, durable_times_ns, time_by_cause
from ckptstorm.record.summary import PhaseSummary
from ckptstorm.record.words import counted, percent
from ckptstorm.report import culprits
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Block, Fact, Line, Section, Table
from ckptstorm.units import bytes_text, count_text, rate_text, time_text

#: More rounds than this are shown by the fastest, the median and the slowest.
_ROUNDS_SHOWN = 6
_STRAGGLERS_SHOWN = 3
_LATENCIES_SHOWN = 14
_CAUSES_SHOWN = 8
#: What takes less of a rank's time than this is left out of "where the time went".
_CAUSE_SHARE_SHOWN = 0.005
#: What the framework's collectives take of T to be told.
_COORDINATION_SHOWN = 0.01
_QUANTILES = (0.5, 0.9, 0.99, 0.999)


def save(known: Known) -> Section:
    """The save."""
    return _section(known, Phase.SAVE)


def restore(known: Known) -> Section:
    """The restore."""
    return _section(known, Phase.RESTORE)


def _section(known: Known, phase: Phase) -> Section:
    rounds = known.rounds(phase)
    if not rounds:
        return Section(phase.word.capitalize(), ())
    finished = [summary for summary in rounds if summary.is_finished]
    worst = max(finished or rounds, key=lambda summary: summary.seconds)
    record = next(r for r in known.record.phases if r.phase == phase and r.round == worst.round)
    is_many = len(rounds) > 1
    blocks: list[Block] = [
        Fact("moved", _moved(worst)),
        Fact("done", _done(worst)),
        *([Fact("committed", _committed(worst))] if phase == Phase.SAVE else []),
        Fact("stall", f"{_gpu_time(worst.stall_gpu_seconds)} of all ranks together"),
        *_coordination_facts(worst),
        *_straggler_facts(rounds),
        *culprits.facts(known, phase),
        *((Line(""), _rounds_table(rounds)) if is_many else ()),
        Line(""),
        _latency_table(known, phase, record),
        *_time_table(record),
    ]
    number = f"round {worst.round}, the slowest of {len(rounds)}" if is_many else "one round"
    number += "" if finished else ", FAILED: numbers are of what was done"
    return Section(f"{phase.word.capitalize()} ({number})", tuple(blocks))


def _moved(summary: PhaseSummary) -> str:
    over = "all" if summary.data_op_over_4k_count == summary.data_op_count else f"{count_text(summary.iops_over_4k)}/s"
    return (
        f"{bytes_text(summary.bytes)} in {_seconds(summary.seconds)} = {rate_text(summary.bytes_per_s)}; "
        f"{count_text(summary.iops)} IOPS ({over} over 4K)"
    )


def _done(summary: PhaseSummary) -> str:
    return (
        f"first rank {_seconds(summary.first_done_s)}, median {_seconds(summary.median_done_s)}, "
        f"last {_seconds(summary.last_done_s)}; tail {_seconds(summary.tail_s)}, "
        f"slowest ÷ median {summary.straggler_ratio:.2f}"
    )


def _committed(summary: PhaseSummary) -> str:
    after = max(summary.committed_seconds - summary.seconds, 0.0)
    return f"visible {_seconds(summary.committed_seconds)} after the release, {_seconds(after)} after last done"


def _coordination_facts(summary: PhaseSummary) -> list[Block]:
    """What the framework's collectives took, when that is anything to speak of."""
    if summary.coordination_share <= _COORDINATION_SHOWN:
        return []
    return [
        Fact(
            "coordination",
            f"{_seconds(summary.coordination_median_s)} on the median rank, "
            f"at most {_seconds(summary.coordination_max_s)}: {percent(summary.coordination_share)} of T",
        )
    ]


def _straggler_facts(rounds: tuple[PhaseSummary, ...]) -> list[Block]:
    """Those of all measured rounds, slowest first: a straggler in one of ten rounds is still one."""
    seen: dict[int, list[tuple[Straggler, int]]] = {}
    for summary in rounds:
        for straggler in summary.stragglers:
            seen.setdefault(straggler.rank, []).append((straggler, summary.round))
    by_time = [(max(each, key=lambda pair: pair[0].seconds), len(each)) for each in seen.values()]
    by_time.sort(key=lambda found: -found[0][0].seconds)
    facts: list[Block] = [
        Fact("straggler", _straggler_words(worst, number, times, len(rounds)), "doubt")
        for (worst, number), times in by_time[:_STRAGGLERS_SHOWN]
    ]
    if len(by_time) > _STRAGGLERS_SHOWN:
        facts.append(Fact("", f"and {counted(len(by_time) - _STRAGGLERS_SHOWN, 'more rank')} (storm.json)", "quiet"))
    return facts


def _straggler_words(worst: Straggler, number: int, times: int, round_count: int) -> str:
    where = f" in round {number} (late in {times} of {round_count} rounds)" if round_count > 1 else ""
    cause = f"; {_seconds(worst.cause_seconds)} more than a median rank in {worst.cause}" if worst.cause else ""
    took = f"{_seconds(worst.seconds)}, {worst.times_median:.1f} times the median"
    return f"rank {worst.rank} on {worst.host}{where}: {took}{cause}"


def _rounds_table(rounds: tuple[PhaseSummary, ...]) -> Table:
    shown = rounds
    if len(rounds) > _ROUNDS_SHOWN:
        by_time = sorted(rounds, key=lambda summary: summary.seconds)
        shown = (by_time[0], by_time[(len(by_time) - 1) // 2], by_time[-1])
    rows = tuple(
        (
            f"round {summary.round}{'' if summary.is_finished else ' FAILED'}",
            _seconds(summary.seconds),
            rate_text(summary.bytes_per_s),
            count_text(summary.iops),
            count_text(summary.iops_over_4k),
            _seconds(summary.first_done_s),
            _seconds(summary.median_done_s),
            f"{summary.straggler_ratio:.2f}",
        )
        for summary in shown
    )
    return Table(
        ("", "T", "bandwidth", "IOPS", "over 4K", "first", "median", "max÷med"), (*rows, *_median_rows(rounds))
    )


def _median_rows(measured: tuple[PhaseSummary, ...]) -> list[tuple[str, ...]]:
    rounds = tuple(summary for summary in measured if summary.is_finished)
    return [_median_row(rounds)] if rounds else []


def _median_row(rounds: tuple[PhaseSummary, ...]) -> tuple[str, ...]:
    def median(number: Callable[[PhaseSummary], float]) -> float:
        return spread_of(rounds, number).median

    return (
        "median",
        _seconds(median(lambda summary: summary.seconds)),
        rate_text(median(lambda summary: summary.bytes_per_s)),
        count_text(median(lambda summary: summary.iops)),
        count_text(median(lambda summary: summary.iops_over_4k)),
        _seconds(median(lambda summary: summary.first_done_s)),
        _seconds(median(lambda summary: summary.median_done_s)),
        f"{median(lambda summary: summary.straggler_ratio):.2f}",
    )


def _latency_table(known: Known, phase: Phase, worst: PhaseRecord) -> Table:
    """Over the ops of all measured rounds, and over the ranks of the slowest one."""
    tables = [each.latency for each in known.record.phases if each.phase == phase and each.round >= 1]
    merged = latency.merge(tables)
    spent = {key.kind: 0 for key in merged.keys}
    for key, sum_ns in zip(merged.keys, merged.sum_ns.tolist(), strict=True):
        spent[key.kind] += sum_ns
    tree = latency_tree(merged)
    rows: list[tuple[str, ...]] = [_rank_row(worst)]
    for kind in sorted(spent, key=lambda each: -spent[each]):
        rows += _kind_rows(kind, tree[kind.word])
    return Table(("time of each", "count", "p50", "p90", "p99", "p99.9", "max"), tuple(rows[:_LATENCIES_SHOWN]))


def _kind_rows(kind: Kind, classes: dict[str, Percentiles]) -> list[tuple[str, ...]]:
    rows = [_percentile_row(kind.word, classes[ALL])]
    sizes = [name for name in classes if name != ALL]
    if kind in DATA and len(sizes) == 1:
        return [_percentile_row(f"{kind.word} {_size_words(sizes[0])}", classes[ALL])]
    return rows + [_percentile_row(f"  {_size_words(name)}", classes[name]) for name in sizes]


def _size_words(name: str) -> str:
    return "above 256M" if name == "more" else f"to {name}"


def _percentile_row(name: str, found: Percentiles) -> tuple[str, ...]:
    times = (found.p50, found.p90, found.p99, found.p999, found.max)
    return (name, count_text(found.count), *(time_text(time) for time in times))


def _rank_row(worst: PhaseRecord) -> tuple[str, ...]:
    times = durable_times_ns(worst)
    quantiles = (order_statistic(times, quantile) for quantile in (*_QUANTILES, 1.0))
    return ("rank, this round", count_text(len(times)), *(time_text(time) for time in quantiles))


def _time_table(worst: PhaseRecord) -> list[Block]:
    """What the time of the slowest rank went into, beside that of a median rank."""
    rows = worst.rows
    if not len(rows) or int(rows["durable_ns"].max()) <= 0:
        return []
    slowest = int(rows["durable_ns"].argmax())
    whole_ns = int(rows["durable_ns"][slowest])
    spent = [
        (name, order_statistic(each_ns, 0.5), int(each_ns[slowest]))
        for name, each_ns in time_by_cause(worst).items()
        if max(int(each_ns[slowest]), order_statistic(each_ns, 0.5)) >= _CAUSE_SHARE_SHOWN * whole_ns
    ]
    spent.sort(key=lambda row: -max(row[1:]))
    if not spent:
        return []
    shown = tuple((name, time_text(median), time_text(slow)) for name, median, slow in spent[:_CAUSES_SHOWN])
    return [Line(""), Table(("where time went", "median rank", f"slowest (rank {int(rows['rank'][slowest])})"), shown)]


def _gpu_time(seconds: float) -> str:
    return f"{count_text(seconds)} GPU-seconds"


def _seconds(seconds: float) -> str:
    return time_text(seconds * NS_PER_S)
