"""Save and restore time per round: first, median and last done, so that the tail is seen beside the answer."""

from __future__ import annotations

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record.summary import PhaseSummary
from ckptstorm.record.words import counted
from ckptstorm.report.facts import Known
from ckptstorm.report.html.chart import BLUE, GREEN, PALE, VERMILION, Chart, Figure, View, axis, figure
from ckptstorm.report.parts import Table
from ckptstorm.units import rate_text, time_text

_MARKS = (("first done", "first_done_s", "triangle-up", GREEN), ("median done", "median_done_s", "circle", BLUE))


def rounds_chart(known: Known) -> Chart | None:
    """One view a phase."""
    views, findings, rows = [], [], []
    for phase in (Phase.SAVE, Phase.QUIET_SAVE, Phase.RESTORE):
        rounds = [each for each in known.rounds(phase) if each.seconds > 0]
        if rounds:
            views.append(View(phase.word, _figure(rounds)))
            findings.append(_finding(known, phase, rounds))
            rows += [_row(each) for each in rounds]
    if not views:
        return None
    head = ("round", "first done", "median done", "last done (T)", "bandwidth", "slowest ÷ median")
    return Chart("rounds", "Time of each round", " ".join(findings), tuple(views), Table(head, tuple(rows)))


def _figure(rounds: list[PhaseSummary]) -> Figure:
    numbers = [each.round for each in rounds]
    traces = [_tails(rounds)]
    for name, field, symbol, colour in (*_MARKS, ("last done", "last_done_s", "square", VERMILION)):
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": numbers,
                "y": [getattr(each, field) for each in rounds],
                "marker": {"symbol": symbol, "size": 11, "color": colour},
                "hovertemplate": f"round %{{x}}: {name} %{{y:.3f}} s<extra></extra>",
            }
        )
    x = axis("round", tickmode="linear" if len(rounds) <= 20 else "auto", dtick=1, tick0=1)
    return figure(traces, x, axis("seconds after the release", rangemode="tozero"), 320)


def _tails(rounds: list[PhaseSummary]) -> dict[str, object]:
    """A line from first to last done of each round."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for each in rounds:
        xs += [each.round, each.round, None]
        ys += [each.first_done_s, each.last_done_s, None]
    line = {"color": PALE, "width": 5}
    return {"type": "scatter", "mode": "lines", "name": "tail", "x": xs, "y": ys, "line": line, "hoverinfo": "skip"}


def _finding(known: Known, phase: Phase, rounds: list[PhaseSummary]) -> str:
    taken = known.over_rounds(phase)
    if taken is None:
        return f"No {phase.word} was finished without an error."
    worst = taken.worst
    return (
        f"The {phase.word} took {_text(taken.seconds.median)} (median of {counted(taken.round_count, 'round')}); in "
        f"the slowest, round {worst.round}, the first rank was done after {_text(worst.first_done_s)}, the median rank "
        f"after {_text(worst.median_done_s)}, the last after {_text(worst.last_done_s)}."
    )


def _row(each: PhaseSummary) -> tuple[str, ...]:
    failed = "" if each.is_finished else " FAILED"
    times = (_text(each.first_done_s), _text(each.median_done_s), _text(each.last_done_s))
    return (
        f"{each.phase.word}, round {each.round}{failed}",
        *times,
        rate_text(each.bytes_per_s),
        f"{each.straggler_ratio:.2f}",
    )


def _text(seconds: float) -> str:
    return time_text(seconds * NS_PER_S)
