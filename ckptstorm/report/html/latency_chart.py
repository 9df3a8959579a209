"""Latency by op kind: what share of the ops took at least this long, on logarithmic axes, so that the tail is wide."""

from __future__ import annotations

from ckptstorm.measure import latency
from ckptstorm.measure.latency import LatencyTable
from ckptstorm.program import Kind
from ckptstorm.record.latencies import percentiles
from ckptstorm.record.words import counted
from ckptstorm.report.facts import Known
from ckptstorm.report.html.chart import LINES, Chart, View
from ckptstorm.report.html.tail import Tail, tail_figure
from ckptstorm.report.parts import Table
from ckptstorm.units import count_text, time_text

#: Kinds drawn; those in which least time was spent are left out.
_KINDS_SHOWN = 12
#: Phases that a reader looks for first, and that are told of in words.
_FIRST = ("save", "restore")
_READING = "How to read it: where a line crosses p99, one op in a hundred took at least that long."


def latency_chart(known: Known) -> Chart | None:
    """One view a phase, of all measured rounds together."""
    words = tuple(dict.fromkeys(each.word for each in known.record.phases if each.round >= 1))
    views: list[View] = []
    rows: list[tuple[str, ...]] = []
    findings = [_READING]
    for word in sorted(words, key=lambda each: each not in _FIRST):
        merged = latency.merge([each.latency for each in known.record.phases if each.word == word and each.round >= 1])
        kinds = _kinds(merged)
        if not kinds:
            continue
        tails = [Tail(kind.word, *latency.select(merged, (kind,)), *LINES[i]) for i, kind in enumerate(kinds)]
        views.append(View(word, tail_figure(tails, "time of one op", "share of ops at least this slow")))
        rows += [_row(word, kind, merged) for kind in kinds]
        findings += [_finding(word, kinds[0], merged)] if word in _FIRST else []
    if not views:
        return None
    head = ("op", "count", "p50", "p90", "p99", "p99.9", "max")
    return Chart("latency", "Latency of ops", " ".join(findings), tuple(views), Table(head, tuple(rows)))


def _kinds(table: LatencyTable) -> list[Kind]:
    """Those in which most time was spent, most first."""
    spent: dict[Kind, int] = {}
    for key, sum_ns in zip(table.keys, table.sum_ns.tolist(), strict=True):
        spent[key.kind] = spent.get(key.kind, 0) + sum_ns
    return sorted(spent, key=lambda kind: -spent[kind])[:_KINDS_SHOWN]


def _row(phase: str, kind: Kind, table: LatencyTable) -> tuple[str, ...]:
    found = percentiles(*latency.select(table, (kind,)))
    times = (found.p50, found.p90, found.p99, found.p999, found.max)
    return (f"{phase}: {kind.word}", count_text(found.count), *(time_text(time) for time in times))


def _finding(phase: str, kind: Kind, table: LatencyTable) -> str:
    found = percentiles(*latency.select(table, (kind,)))
    return (
        f"Most of the {phase} went into {kind.word}: of {counted(found.count, 'op')} half took up to "
        f"{time_text(found.p50)}, one in a hundred {time_text(found.p99)} or more, the slowest {time_text(found.max)}."
    )
