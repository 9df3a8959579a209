"""The rank timeline: each rank a line from its release until it was durable, stragglers in front of all others.

Beyond `RANKS_SHOWN` ranks a line is a node, from its first rank's release to its last rank's end; stragglers keep
lines of their own at any size, for they are what the chart is for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.stragglers import host_of, late
from ckptstorm.record.words import counted
from ckptstorm.report.facts import Known
from ckptstorm.report.html.chart import (
    BLUE,
    PALE,
    SKY,
    VERMILION,
    Chart,
    Figure,
    View,
    axis,
    figure,
    packed,
    plain,
    segments,
)  # fmt: skip
from ckptstorm.report.html.shown import shown_rounds
from ckptstorm.report.parts import Table
from ckptstorm.units import time_text

#: More ranks than this are shown by node.
RANKS_SHOWN = 2048
#: Stragglers with their name beside the line; names of more would cover one another.
_NAMED = 8
_TABLE_ROWS = 20
#: Up to so many lines are told apart with the eye.
_WITH_AIR = 128
#: Lines wider than this have room for a name inside, pixels.
_INSIDE = 10.0
#: Above these first lines there is no room for a name.
_EDGE_LINES = 24
_Trace = dict[str, Any]


def ranks_chart(known: Known) -> Chart | None:
    """One view a phase and round that is worth it."""
    shown = [each for phase in (Phase.SAVE, Phase.RESTORE) for each in shown_rounds(known, phase)]
    views = tuple(View(word, _figure(known.record, phase)) for word, phase in shown if _has_times(phase))
    if not views:
        return None
    by_node = len(known.record.node_of_rank) > RANKS_SHOWN
    how = f"Each line is a node of the {counted(len(known.record.nodes), 'node')}" if by_node else "Each line is a rank"
    finding = f"{how}, from its release until its bytes were durable; grey is what it then waited for the last one. "
    first = next(phase for _, phase in shown if _has_times(phase))
    return Chart("ranks", "Every rank's time", finding + _who(known.record, first), views, _table(known.record, first))


def _has_times(phase: PhaseRecord) -> bool:
    return bool((phase.rows["durable_ns"] >= 0).any())


def _figure(record: StormRecord, phase: PhaseRecord) -> Figure:
    rows = phase.rows[phase.rows["durable_ns"] >= 0]
    is_late = late(phase)[phase.rows["durable_ns"] >= 0]
    by_node = len(record.node_of_rank) > RANKS_SHOWN
    where = rows["node"] if by_node else rows["rank"]
    last_s = float(rows["durable_ns"].max()) / NS_PER_S
    count = int(where.max()) + 1
    height = int(np.clip(150 + 14 * count, 230, 640))
    width = _width(height, count)
    lines = _node_lines if by_node else _rank_lines
    traces = [*lines(record, rows, last_s, width), *_straggler_lines(record, rows[is_late], where[is_late], width)]
    name = "node" if by_node else "rank"
    y = axis(name, range=[count - 0.5, -0.5], tickformat=",d")
    if count <= 16:
        y |= {"dtick": 1}
    return figure(traces, axis("seconds after the release", rangemode="tozero"), y, height)


def _rank_lines(record: StormRecord, rows: NDArray[Any], last_s: float, width: float) -> list[_Trace]:
    starts, ends = rows["release_ns"] / NS_PER_S, rows["durable_ns"] / NS_PER_S
    at = rows["rank"].astype(np.int64)
    hosts = [plain(host_of(record, int(node))) for node in rows["node"]]
    hover = "rank %{y} on %{text}: durable after %{x:.3f} s<extra></extra>"
    return [
        _lines("waited for the last", PALE, max(width / 2, 0.5), ends, np.full(len(ends), last_s), at)
        | {"hoverinfo": "skip"},
        _lines("moved its bytes", BLUE, width, starts, ends, at) | {"hoverinfo": "skip"},
        _marks("durable", BLUE, max(width / 2, 1.5), ends, at) | {"text": hosts, "hovertemplate": hover},
    ]


def _node_lines(record: StormRecord, rows: NDArray[Any], last_s: float, width: float) -> list[_Trace]:
    """Stragglers count here as well: a node is as slow as its slowest rank."""
    nodes, first = np.unique(rows["node"], return_inverse=True)
    release, fastest = np.full(len(nodes), np.inf), np.full(len(nodes), np.inf)
    slowest = np.zeros(len(nodes))
    np.minimum.at(release, first, rows["release_ns"] / NS_PER_S)
    np.minimum.at(fastest, first, rows["durable_ns"] / NS_PER_S)
    np.maximum.at(slowest, first, rows["durable_ns"] / NS_PER_S)
    hosts = [plain(host_of(record, int(node))) for node in nodes]
    hover = "node %{y}, %{text}: last rank durable after %{x:.3f} s<extra></extra>"
    return [
        _lines("waited for the last", PALE, max(width / 2, 0.5), slowest, np.full(len(nodes), last_s), nodes)
        | {"hoverinfo": "skip"},
        _lines("until its first rank was durable", BLUE, width, release, fastest, nodes) | {"hoverinfo": "skip"},
        _lines("until its last rank was", SKY, width, fastest, slowest, nodes) | {"hoverinfo": "skip"},
        _marks("last rank durable", SKY, 2.0, slowest, nodes) | {"text": hosts, "hovertemplate": hover},
    ]


def _straggler_lines(record: StormRecord, rows: NDArray[Any], where: NDArray[Any], width: float) -> list[_Trace]:
    """Thick at any scale, each with a diamond at its end, the slowest ones named."""
    if not len(rows):
        return []
    order = np.argsort(-rows["durable_ns"], kind="stable")
    rows, where = rows[order], where[order].astype(np.int64)
    ends = rows["durable_ns"] / NS_PER_S
    named = _apart(where)
    names = [f"rank {rank}" if index in named else "" for index, rank in enumerate(rows["rank"].tolist())]
    hosts = [f"rank {row['rank']} on {plain(host_of(record, int(row['node'])))}" for row in rows]
    wide = max(width, 3.0)
    return [
        _lines("straggler", VERMILION, wide, rows["release_ns"] / NS_PER_S, ends, where)
        | {"hoverinfo": "skip", "showlegend": False},
        _marks("straggler", VERMILION, max(wide, 9.0), ends, where)
        | {
            "mode": "markers+text",
            "marker": {"symbol": "diamond", "size": max(wide, 9.0), "color": VERMILION},
            "text": names,
            "textposition": _beside(where, wide),
            "textfont": {"color": "#ffffff" if wide > _INSIDE else "#7c2d00", "size": 12},
            "customdata": hosts,
            "showlegend": True,
            "hovertemplate": "%{customdata}: durable after %{x:.3f} s<extra>straggler</extra>",
        },
    ]


def _apart(where: NDArray[Any]) -> set[int]:
    """The slowest stragglers whose names do not cover one another."""
    gap = 0.05 * (int(where.max()) + 1)
    named: list[int] = []
    for index in range(min(len(where), 4 * _NAMED)):
        if len(named) < _NAMED and all(abs(int(where[index]) - int(where[other])) > gap for other in named):
            named.append(index)
    return set(named)


def _width(height: int, count: int) -> float:
    """Of a line, pixels: with air between few, without a gap between many."""
    each = (height - 110) / count
    return float(np.clip(0.75 * each if count <= _WITH_AIR else 1.2 * each, 1.0, 12.0))


def _beside(where: NDArray[Any], wide: float) -> list[str]:
    """In a wide line, else above its end, or below it at the chart's upper edge."""
    if wide > _INSIDE:
        return ["middle left"] * len(where)
    return ["bottom left" if at < _EDGE_LINES else "top left" for at in where.tolist()]


def _lines(name: str, colour: str, width: float, starts: Any, ends: Any, at: Any) -> _Trace:
    x, y = segments(starts, ends, at)
    look = {"color": colour, "width": width}
    return {"type": "scatter", "mode": "lines", "name": name, "x": packed(x), "y": packed(y), "line": look}


def _marks(name: str, colour: str, size: float, x: Any, y: Any) -> _Trace:
    look = {"color": colour, "size": size}
    marks = {"type": "scatter", "mode": "markers", "name": name, "x": packed(x), "y": packed(y, "i4")}
    return marks | {"marker": look, "showlegend": False}


def _who(record: StormRecord, phase: PhaseRecord) -> str:
    rows = phase.rows
    worst = rows[int(rows["durable_ns"].argmax())]
    named = f"rank {worst['rank']} on {host_of(record, int(worst['node']))} was last"
    count = int(late(phase).sum())
    stragglers = (
        f"{counted(count, 'rank')} {'is a straggler' if count == 1 else 'are stragglers'}"
        if count
        else ("no rank is a straggler")
    )
    where = f"In the {phase.phase.word} of round {phase.round}"
    return f"{where} {named}, durable after {time_text(int(worst['durable_ns']))}; {stragglers}."


def _table(record: StormRecord, phase: PhaseRecord) -> Table:
    """The slowest ranks of the first view."""
    slowest = phase.rows[np.argsort(-phase.rows["durable_ns"], kind="stable")[:_TABLE_ROWS]]
    rows = tuple(
        (f"rank {row['rank']}", host_of(record, int(row["node"])), time_text(int(row["durable_ns"])))
        for row in slowest
        if row["durable_ns"] >= 0
    )
    return Table(
        (f"slowest in the {phase.phase.word} of round {phase.round}", "host", "durable after"), rows, left=(1,)
    )
