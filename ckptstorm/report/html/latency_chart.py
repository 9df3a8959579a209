"""Latency by op kind: what share of the ops took at least this long, on logarithmic axes, so that the tail is wide."""

from __future__ import annotations

from typing import Any

import numpy as np

from ckptstorm.measure import latency
from ckptstorm.measure.histogram import bucket_low_ns
from ckptstorm.measure.latency import LatencyTable
from ckptstorm.measure.rows import Phase
from ckptstorm.program import Kind
from ckptstorm.record.latencies import percentiles
from ckptstorm.record.words import counted
from ckptstorm.report.facts import Known
from ckptstorm.report.html.chart import LINES, Chart, Figure, View, axis, figure, packed
from ckptstorm.report.parts import Table
from ckptstorm.units import count_text, time_text

_QUANTILES = {1.0: "all", 0.5: "p50", 0.1: "p90", 1e-2: "p99", 1e-3: "p99.9", 1e-4: "p99.99", 1e-5: "p99.999"}
_NS_PER_US = 1000
#: Kinds drawn; those in which least time was spent are left out.
_KINDS_SHOWN = 12


def latency_chart(known: Known) -> Chart | None:
    """One view a phase, of all measured rounds together."""
    views, rows, findings = [], [], []
    for phase in Phase:
        tables = [each.latency for each in known.record.phases if each.phase == phase and each.round >= 1]
        merged = latency.merge(tables)
        kinds = _kinds(merged)
        if not kinds:
            continue
        views.append(View(phase.word, _figure(merged, kinds)))
        rows += [_row(phase, kind, merged) for kind in kinds]
        if phase in (Phase.SAVE, Phase.RESTORE):
            findings.append(_finding(phase, kinds[0], merged))
    views.sort(key=lambda view: view.label not in ("save", "restore"))
    head = ("op", "count", "p50", "p90", "p99", "p99.9", "max")
    finding = "How to read it: where a line crosses p99, one op in a hundred took at least that long. "
    if not views:
        return None
    return Chart("latency", "Latency of ops", finding + " ".join(findings), tuple(views), Table(head, tuple(rows)))


def _kinds(table: LatencyTable) -> list[Kind]:
    """Those in which most time was spent, most first."""
    spent: dict[Kind, int] = {}
    for key, sum_ns in zip(table.keys, table.sum_ns.tolist(), strict=True):
        spent[key.kind] = spent.get(key.kind, 0) + sum_ns
    return sorted(spent, key=lambda kind: -spent[kind])[:_KINDS_SHOWN]


def _figure(table: LatencyTable, kinds: list[Kind]) -> Figure:
    traces = [_trace(table, kind, *LINES[index]) for index, kind in enumerate(kinds)]
    total = max(int(latency.select(table, (kind,))[0].sum()) for kind in kinds)
    least = max(1.0 / max(total, 10), 1e-9)
    quantiles = [share for share in _QUANTILES if share >= least / 2] or [1.0]
    ticks = {"tickmode": "array", "tickvals": quantiles, "ticktext": [_QUANTILES[share] for share in quantiles]}
    y = axis("share of ops at least this slow", type="log", range=[float(np.log10(least / 2)), 0.1], **ticks)
    return figure([*traces, _slowest(table, kinds)], _time_axis(table, kinds), y, 420)


def _time_axis(table: LatencyTable, kinds: list[Kind]) -> dict[str, Any]:
    """Decades, named 1 us, 10 us … 1 s, 10 s; some room on both sides."""
    counts = [latency.select(table, (kind,)) for kind in kinds]
    first = min(int(bucket_low_ns(np.flatnonzero(each)[:1])[0]) for each, _ in counts)
    last = max(max_ns for _, max_ns in counts)
    decades = [(10.0 ** (power - 3), _decade(power)) for power in range(14)]
    reach = [float(np.log10(max(first, 1) / _NS_PER_US)) - 0.15, float(np.log10(max(last, 1) / _NS_PER_US)) + 0.15]
    ticks = {"tickvals": [us for us, _ in decades], "ticktext": [word for _, word in decades]}
    return axis("time of one op", type="log", range=reach, tickmode="array", **ticks)


def _decade(power: int) -> str:
    """10^power ns in words."""
    return f"{10 ** (power % 3)} {('ns', 'us', 'ms')[power // 3]}" if power < 9 else f"{10 ** (power - 9):,} s"


def _slowest(table: LatencyTable, kinds: list[Kind]) -> dict[str, Any]:
    """The exact maximum of each kind, where its line ends."""
    found = [latency.select(table, (kind,)) for kind in kinds]
    colours = [colour for colour, _ in LINES[: len(kinds)]]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "slowest op",
        "x": [max(max_ns, 1) / _NS_PER_US for _, max_ns in found],
        "y": [1 / int(counts.sum()) for counts, _ in found],
        "marker": {"symbol": "circle-open", "size": 9, "color": colours, "line": {"width": 2}},
        "text": [f"{kind.word}: slowest {time_text(max_ns)}" for kind, (_, max_ns) in zip(kinds, found, strict=True)],
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    }


def _trace(table: LatencyTable, kind: Kind, colour: str, dash: str) -> dict[str, Any]:
    """From the first bucket's start to the exact maximum, which one op reached."""
    counts, max_ns = latency.select(table, (kind,))
    buckets = np.flatnonzero(counts)
    total = int(counts.sum())
    at_least = total - np.concatenate([[0], np.cumsum(counts[buckets])[:-1]])
    times = np.minimum(np.concatenate([bucket_low_ns(buckets), [max_ns]]), max_ns)
    shares = np.concatenate([at_least, [1]]) / total
    us = np.maximum(times, 1) / _NS_PER_US
    return {
        "type": "scatter",
        "mode": "lines",
        "name": kind.word,
        "x": packed(us),
        "y": packed(shares),
        "line": {"color": colour, "dash": dash, "width": 2, "shape": "vh"},
        "hovertemplate": f"{kind.word}: %{{y:.3~%}} took at least %{{x:,.4~r}} us<extra></extra>",
    }


def _row(phase: Phase, kind: Kind, table: LatencyTable) -> tuple[str, ...]:
    found = percentiles(*latency.select(table, (kind,)))
    times = (found.p50, found.p90, found.p99, found.p999, found.max)
    return (f"{phase.word}: {kind.word}", count_text(found.count), *(time_text(time) for time in times))


def _finding(phase: Phase, kind: Kind, table: LatencyTable) -> str:
    found = percentiles(*latency.select(table, (kind,)))
    return (
        f"Most of the {phase.word} went into {kind.word}: of {counted(found.count, 'op')} half took up to "
        f"{time_text(found.p50)}, one in a hundred {time_text(found.p99)} or more, the slowest {time_text(found.max)}."
    )
