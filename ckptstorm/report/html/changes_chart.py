"""The changes of a comparison with their intervals: what lies clear of nothing is seen at once."""

from __future__ import annotations

from ckptstorm.report.compare import Change, Comparison, Word
from ckptstorm.report.compared import NAMES
from ckptstorm.report.html.chart import BLUE, GREEN, GREY, ORANGE, VERMILION, Chart, Figure, View, axis, figure, plain

#: Words differ in symbol as well as in colour.
_MARKS: tuple[tuple[Word, str, str], ...] = (
    ("worse", "triangle-down", VERMILION),
    ("better", "triangle-up", GREEN),
    ("same", "circle", BLUE),
    ("cannot tell", "diamond-open", ORANGE),
)
_ROW_PX, _FRAME_PX = 24, 110


def changes_chart(comparison: Comparison) -> Chart | None:
    """One view a phase; numbers without an interval are only in the table."""
    views = []
    for phase in dict.fromkeys(each.phase for each in comparison.changes):
        known = [each for each in comparison.changes if each.phase == phase and each.interval is not None]
        if known:
            views.append(View(phase, _figure(known, comparison.same_within)))
    return Chart("changes", "Changes and their intervals", _finding(comparison), tuple(views)) if views else None


def _finding(comparison: Comparison) -> str:
    counts = {word: sum(each.word == word for each in comparison.changes) for word, _, _ in _MARKS}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"Of {len(comparison.changes)} numbers: {told}. Times and ratios get worse to the right, rates to the left."


def _figure(changes: list[Change], same_within: float) -> Figure:
    traces = [
        _trace(word, symbol, colour, [each for each in changes if each.word == word])
        for word, symbol, colour in _MARKS
        if any(each.word == word for each in changes)
    ]
    names = [_name(each) for each in changes]
    y = axis("", categoryorder="array", categoryarray=names[::-1], type="category")
    band = {"type": "rect", "yref": "paper", "x0": -100 * same_within, "x1": 100 * same_within, "y0": 0, "y1": 1}
    zero = {"type": "line", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "line": {"color": GREY, "width": 1}}
    shapes = [band | {"fillcolor": GREY, "opacity": 0.15, "line": {"width": 0}, "layer": "below"}, zero]
    x = axis("change of the median, %")
    return figure(traces, x, y, _FRAME_PX + _ROW_PX * len(changes), shapes=shapes)


def _trace(word: Word, symbol: str, colour: str, changes: list[Change]) -> dict[str, object]:
    known = [(each, each.interval) for each in changes if each.interval is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": word,
        "x": [100 * interval.change for _, interval in known],
        "y": [_name(each) for each, _ in known],
        "marker": {"symbol": symbol, "size": 11, "color": colour},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [100 * max(interval.high - interval.change, 0) for _, interval in known],
            "arrayminus": [100 * max(interval.change - interval.low, 0) for _, interval in known],
            "color": colour,
        },
        "hovertemplate": "%{y}: %{x:+.1f} %<extra></extra>",
    }


def _name(change: Change) -> str:
    return plain(NAMES.get(change.name, change.name))
