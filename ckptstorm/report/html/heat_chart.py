"""Where and when bytes moved: time across, nodes down, bandwidth as brightness."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.measure.timeline import Timeline
from ckptstorm.record.record import StormRecord
from ckptstorm.record.stragglers import host_of
from ckptstorm.record.words import percent
from ckptstorm.report.facts import Known
from ckptstorm.report.html.chart import Chart, Figure, View, axis, figure, label, packed
from ckptstorm.report.html.shown import shown_rounds
from ckptstorm.units import rate_text, time_text

#: More nodes than this are shown in groups of neighbours: a screen has no more rows to give.
_ROWS_SHOWN = 384


def heat_chart(known: Known) -> Chart | None:
    """The slowest round of save and restore."""
    views, findings = [], []
    for phase in (Phase.SAVE, Phase.RESTORE):
        for word, record in shown_rounds(known, phase)[:1]:
            if record.timeline.bins.size and record.timeline.bins["bytes"].any():
                views.append(View(word, _figure(known.record, record.timeline)))
                findings.append(_finding(word, record.timeline))
    if not views:
        return None
    return Chart("heat", "Bytes by node and time", " ".join(findings), tuple(views))


def _figure(record: StormRecord, timeline: Timeline) -> Figure:
    per_s = timeline.bins["bytes"] * (NS_PER_S / timeline.bin_ns)
    group = -(-len(per_s) // _ROWS_SHOWN)
    z = _grouped(per_s, group)
    names = [_name(record, first, group, len(per_s)) for first in range(0, len(per_s), group)]
    unit, word = _unit(float(z.max()))
    trace = {
        "type": "heatmap",
        "z": packed(z / unit),
        "x": packed((np.arange(z.shape[1]) + 0.5) * timeline.bin_ns / NS_PER_S),
        "y": list(range(len(names))),
        "text": [[name] for name in names] if z.shape[1] == 1 else None,
        "customdata": [[name] * z.shape[1] for name in names] if z.size <= 20_000 else None,
        "colorscale": "Cividis",
        "colorbar": {"title": {"text": word, "side": "right"}, "thickness": 12},
        "hovertemplate": f"node %{{y}}, %{{x:.2f}} s: %{{z:.3~g}} {word}<extra></extra>",
    }
    step = max(1, len(names) // 24)
    ticks = list(range(0, len(names), step))
    y = axis("", autorange="reversed", tickmode="array", tickvals=ticks, ticktext=[names[tick] for tick in ticks])
    height = int(np.clip(130 + 22 * len(names), 210, 560))
    kept = {key: value for key, value in trace.items() if value is not None}
    return figure([kept], axis("seconds after the release"), y, height)


def _grouped(per_s: NDArray[np.float64], group: int) -> NDArray[np.float64]:
    """Sums over `group` neighbours."""
    padded = np.pad(per_s, ((0, -len(per_s) % group), (0, 0)))
    return np.asarray(padded.reshape(-1, group, per_s.shape[1]).sum(axis=1))


def _name(record: StormRecord, first: int, group: int, count: int) -> str:
    if group == 1:
        return label(host_of(record, first))
    return f"nodes {first} to {min(first + group, count) - 1}"


def _unit(most: float) -> tuple[float, str]:
    """The unit in which the largest value has one to four digits before the point."""
    for size, word in ((1 << 40, "TiB/s"), (1 << 30, "GiB/s"), (1 << 20, "MiB/s")):
        if most >= size:
            return float(size), word
    return 1024.0, "KiB/s"


def _finding(word: str, timeline: Timeline) -> str:
    whole = timeline.bins["bytes"].sum(axis=0, dtype=np.int64)
    at = int(whole.argmax())
    most = rate_text(float(whole[at]) * NS_PER_S / timeline.bin_ns)
    idle = float((timeline.bins["bytes"] == 0).mean())
    return (
        f"{word.capitalize()}: at most {most} together, {time_text((at + 0.5) * timeline.bin_ns)} after the release; "
        f"nodes moved nothing in {percent(idle)} of the squares of {time_text(timeline.bin_ns)}."
    )
