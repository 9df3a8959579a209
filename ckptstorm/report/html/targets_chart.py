"""Storage targets side by side: how many bytes of a step each one holds, against an even share."""

from __future__ import annotations

from typing import Any

import numpy as np

from ckptstorm.record.placed import Placed, Target, placed
from ckptstorm.record.words import counted, percent
from ckptstorm.report.facts import Known
from ckptstorm.report.html.chart import BLUE, GREY, ORANGE, Chart, Figure, View, axis, figure, label, packed, plain
from ckptstorm.report.parts import Table
from ckptstorm.report.storage import HOT_SHARE
from ckptstorm.units import bytes_text

#: Of more targets than this the fullest are shown.
_SHOWN = 512
_TABLE_ROWS = 20
_GIB = 1 << 30


def targets_chart(known: Known) -> Chart | None:
    """Bytes by target, fullest first."""
    found = placed(known.record)
    targets = sorted(found.targets, key=lambda target: -target.bytes)
    total = sum(target.bytes for target in targets)
    if len(targets) < 2 or not total:
        return None
    fair = total / found.there_count
    rows = tuple(
        (each.name, counted(each.file_count, "file"), bytes_text(each.bytes), f"{each.bytes / fair:.2f}")
        for each in targets[:_TABLE_ROWS]
    )
    table = Table(("target", "files", "bytes", "times its even share"), rows)
    view = View("bytes", _figure(targets[:_SHOWN], fair))
    return Chart("targets", "Storage targets side by side", _finding(found, targets, total), (view,), table)


def _figure(targets: list[Target], fair: float) -> Figure:
    """Targets far above an even share are hatched as well as coloured."""
    held = np.array([target.bytes for target in targets], dtype=np.float64)
    is_hot = held > HOT_SHARE * fair
    at = np.arange(len(targets))
    unit, word = (_GIB, "GiB") if held.max() >= _GIB else (1 << 20, "MiB")
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": name,
            "x": packed(at[mask], "i4"),
            "y": packed(held[mask] / unit),
            "text": [plain(target.name) for target, is_in in zip(targets, mask.tolist(), strict=True) if is_in],
            "textposition": "none",
            "marker": {"color": colour, "pattern": {"shape": shape}},
            "hovertemplate": f"%{{text}}: %{{y:.3~g}} {word}<extra></extra>",
        }
        for name, colour, shape, mask in (
            ("target", BLUE, "", ~is_hot),
            (f"more than {HOT_SHARE:g} times its share", ORANGE, "/", is_hot),
        )
        if mask.any()
    ]
    ends = [-0.5, len(targets) - 0.5]
    line = {"color": GREY, "dash": "dash", "width": 2}
    share = [fair / unit, fair / unit]
    traces.append({"type": "scatter", "mode": "lines", "name": "an even share", "x": ends, "y": share, "line": line})
    step = max(1, len(targets) // 16)
    ticks = list(range(0, len(targets), step))
    x = axis("", tickmode="array", tickvals=ticks, ticktext=[label(targets[tick].name) for tick in ticks])
    return figure(traces, x, axis(f"{word} of one step", rangemode="tozero"), 340, bargap=0.15)


def _finding(found: Placed, targets: list[Target], total: int) -> str:
    fullest = targets[0]
    times = fullest.bytes * found.there_count / total
    sample = f" (a sample of {found.file_count:,})" if found.asked_count < found.file_count else ""
    cut = f" Shown are the {_SHOWN} fullest." if len(targets) > _SHOWN else ""
    there = counted(found.there_count, "target")
    return (
        f"{counted(found.asked_count, 'file')}{sample} lie on {len(targets)} of {there}; the fullest, {fullest.name}, "
        f"holds {percent(fullest.bytes / total)} of the bytes, {times:.2f} times an even share.{cut}"
    )
