"""Distributions as tails: what share took at least so long, on logarithmic axes, each line to its exact maximum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.histogram import bucket_low_ns
from ckptstorm.report.html.chart import Figure, axis, figure, packed, plain
from ckptstorm.units import time_text

_QUANTILES = {1.0: "all", 0.5: "p50", 0.1: "p90", 1e-2: "p99", 1e-3: "p99.9", 1e-4: "p99.99", 1e-5: "p99.999"}
_NS_PER_US = 1000
#: Room on both sides of the first and the last time, decades.
_ROOM = 0.15


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """One line.

    Attributes:
        name: for the legend.
        counts, max_ns: a histogram (`measure.histogram`) that is not empty, and its exact maximum.
        colour, dash: how it is drawn.
    """

    name: str
    counts: NDArray[np.int64]
    max_ns: int
    colour: str
    dash: str

    @property
    def total(self) -> int:
        """How many were counted."""
        return int(self.counts.sum())


def tail_figure(tails: Sequence[Tail], across: str, down: str) -> Figure:
    """All lines, and a mark at the exact maximum of each."""
    least = max(1.0 / max(*(tail.total for tail in tails), 10), 1e-9)
    quantiles = [share for share in _QUANTILES if share >= least / 2] or [1.0]
    ticks = {"tickmode": "array", "tickvals": quantiles, "ticktext": [_QUANTILES[share] for share in quantiles]}
    y = axis(down, type="log", range=[float(np.log10(least / 2)), 0.1], **ticks)
    return figure([*(_line(tail) for tail in tails), _slowest(tails)], _time_axis(tails, across), y, 420)


def _line(tail: Tail) -> dict[str, Any]:
    """From the first bucket's start to the exact maximum, which one reached."""
    buckets = np.flatnonzero(tail.counts)
    at_least = tail.total - np.concatenate([[0], np.cumsum(tail.counts[buckets])[:-1]])
    times = np.minimum(np.concatenate([bucket_low_ns(buckets), [tail.max_ns]]), tail.max_ns)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plain(tail.name),
        "x": packed(np.maximum(times, 1) / _NS_PER_US),
        "y": packed(np.concatenate([at_least, [1]]) / tail.total),
        "line": {"color": tail.colour, "dash": tail.dash, "width": 2, "shape": "vh"},
        "hovertemplate": f"{plain(tail.name)}: %{{y:.3~%}} took at least %{{x:,.4~r}} us<extra></extra>",
    }


def _slowest(tails: Sequence[Tail]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "slowest",
        "x": [max(tail.max_ns, 1) / _NS_PER_US for tail in tails],
        "y": [1 / tail.total for tail in tails],
        "marker": {"symbol": "circle-open", "size": 9, "color": [tail.colour for tail in tails], "line": {"width": 2}},
        "text": [f"{plain(tail.name)}: slowest {time_text(tail.max_ns)}" for tail in tails],
        "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False,
    }


def _time_axis(tails: Sequence[Tail], title: str) -> dict[str, Any]:
    """Decades, named 1 us, 10 us … 1 s, 10 s; some room on both sides."""
    first = min(int(bucket_low_ns(np.flatnonzero(tail.counts)[:1])[0]) for tail in tails)
    last = max(tail.max_ns for tail in tails)
    reach = [_decades(first) - _ROOM, _decades(last) + _ROOM]
    ticks = {"tickvals": [10.0 ** (power - 3) for power in range(14)], "ticktext": [_decade(p) for p in range(14)]}
    return axis(title, type="log", range=reach, tickmode="array", **ticks)


def _decades(ns: int) -> float:
    return float(np.log10(max(ns, 1) / _NS_PER_US))


def _decade(power: int) -> str:
    """10^power ns in words."""
    return f"{10 ** (power % 3)} {('ns', 'us', 'ms')[power // 3]}" if power < 9 else f"{10 ** (power - 9):,} s"
