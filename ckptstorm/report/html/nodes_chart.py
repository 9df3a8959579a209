"""Nodes side by side: how long each one's slowest rank took, and what bandwidth it had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.stragglers import host_of, late
from ckptstorm.record.words import counted
from ckptstorm.report.facts import Known
from ckptstorm.report.html.chart import BLUE, VERMILION, Chart, Figure, View, axis, figure, label, packed, plain
from ckptstorm.report.html.shown import shown_rounds
from ckptstorm.report.parts import Table
from ckptstorm.units import bytes_text, rate_text, time_text

#: Of more nodes than this the slowest are shown.
_NODES_SHOWN = 512
_TABLE_ROWS = 20
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Numbers of each node that had a durable rank, by node."""

    index: NDArray[np.int64]
    seconds: NDArray[np.float64]
    bytes: NDArray[np.int64]
    has_straggler: NDArray[np.bool_]

    def slowest(self, count: int) -> _Nodes:
        """The slowest of them, in node order."""
        kept = np.sort(np.argsort(-self.seconds, kind="stable")[:count])
        return _Nodes(self.index[kept], self.seconds[kept], self.bytes[kept], self.has_straggler[kept])

    @property
    def bytes_per_s(self) -> NDArray[np.float64]:
        """Bytes of a node ÷ its own time."""
        return np.asarray(self.bytes / np.maximum(self.seconds, 1e-9))


def nodes_chart(known: Known) -> Chart | None:
    """The slowest round of save and restore, once by time and once by bandwidth."""
    if len(known.record.nodes) < 2:
        return None
    views, findings, rows = [], [], []
    for phase in (Phase.SAVE, Phase.RESTORE):
        for word, record in shown_rounds(known, phase)[:1]:
            nodes = _nodes(record)
            if not len(nodes.index):
                continue
            shown = nodes.slowest(_NODES_SHOWN)
            views += [
                View(f"{word}: time", _times(known.record, shown)),
                View(f"{word}: bandwidth", _rates(known.record, shown)),
            ]
            findings.append(_finding(known.record, word, nodes))
            rows += _rows(known.record, phase, nodes)
    if not views:
        return None
    cut = f" Shown are the {_NODES_SHOWN} slowest." if len(known.record.nodes) > _NODES_SHOWN else ""
    table = Table(("node", "slowest rank", "bytes", "bandwidth"), tuple(rows))
    return Chart("nodes", "Nodes side by side", " ".join(findings) + cut, tuple(views), table)


def _nodes(phase: PhaseRecord) -> _Nodes:
    rows = phase.rows[phase.rows["durable_ns"] >= 0]
    is_late = late(phase)[phase.rows["durable_ns"] >= 0]
    index, of = np.unique(rows["node"], return_inverse=True)
    seconds = np.zeros(len(index))
    np.maximum.at(seconds, of, (rows["durable_ns"] - rows["release_ns"].min(initial=0)) / NS_PER_S)
    moved = np.zeros(len(index), dtype=np.int64)
    np.add.at(moved, of, rows["bytes"])
    return _Nodes(index.astype(np.int64), seconds, moved, np.bincount(of[is_late], minlength=len(index)) > 0)


def _times(record: StormRecord, nodes: _Nodes) -> Figure:
    return _bars(record, nodes, nodes.seconds, "its slowest rank, seconds", "%{y:.3f} s")


def _rates(record: StormRecord, nodes: _Nodes) -> Figure:
    return _bars(record, nodes, nodes.bytes_per_s / _GIB, "GiB/s in its own time", "%{y:.3~g} GiB/s")


def _bars(record: StormRecord, nodes: _Nodes, values: NDArray[Any], title: str, hover: str) -> Figure:
    """Nodes with a straggler are hatched as well as coloured."""
    names = [host_of(record, int(node)) for node in nodes.index]
    positions = np.arange(len(names))
    traces = [
        {
            "type": "bar",
            "name": name,
            "x": packed(positions[mask], "i4"),
            "y": packed(values[mask]),
            "text": [plain(each) for each, is_in in zip(names, mask.tolist(), strict=True) if is_in],
            "textposition": "none",
            "marker": {"color": colour, "pattern": {"shape": shape}},
            "hovertemplate": f"%{{text}}: {hover}<extra></extra>",
        }
        for name, colour, shape, mask in (
            ("node", BLUE, "", ~nodes.has_straggler),
            ("node with a straggler", VERMILION, "/", nodes.has_straggler),
        )
        if mask.any()
    ]
    step = max(1, len(names) // 16)
    ticks = list(range(0, len(names), step))
    x = axis("", tickmode="array", tickvals=ticks, ticktext=[label(names[tick]) for tick in ticks])
    return figure(traces, x, axis(title, rangemode="tozero"), 360, bargap=0.15, showlegend=len(traces) > 1)


def _finding(record: StormRecord, word: str, nodes: _Nodes) -> str:
    worst, median = int(nodes.seconds.argmax()), float(np.median(nodes.seconds))
    late_count = int(nodes.has_straggler.sum())
    return (
        f"{word.capitalize()}: the slowest node, {host_of(record, int(nodes.index[worst]))}, took "
        f"{time_text(nodes.seconds[worst] * NS_PER_S)}, a median node {time_text(median * NS_PER_S)}; "
        f"{counted(late_count, 'node')} had a straggler."
    )


def _rows(record: StormRecord, phase: Phase, nodes: _Nodes) -> list[tuple[str, ...]]:
    order = np.argsort(-nodes.seconds, kind="stable")[:_TABLE_ROWS]
    return [
        (
            f"{phase.word}: {host_of(record, int(nodes.index[at]))}",
            time_text(nodes.seconds[at] * NS_PER_S),
            bytes_text(int(nodes.bytes[at])),
            rate_text(float(nodes.bytes_per_s[at])),
        )
        for at in order
    ]
