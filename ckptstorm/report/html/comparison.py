"""The page of a comparison: the judgement, every change with its interval, then all that the terminal says."""

from __future__ import annotations

from ckptstorm.report import compared
from ckptstorm.report.compare import Comparison
from ckptstorm.report.drift import Series
from ckptstorm.report.html.changes_chart import changes_chart
from ckptstorm.report.html.page import Page, Part


def page(comparison: Comparison, fail_above: float | None = None) -> Page:
    """Two storms."""
    first, *others = compared.sections(comparison, fail_above)
    chart = changes_chart(comparison)
    parts: list[Part] = [first, *([chart] if chart else []), *(each for each in others if each.blocks)]
    return Page(f"{comparison.after.storm_id} against {comparison.before.storm_id}", tuple(parts))


def series_page(found: Series, fail_above: float | None = None) -> Page:
    """Many storms and a baseline: the drift first, then the newest one in full."""
    opening, storms, newest, *others = compared.series_sections(found, fail_above)
    chart = changes_chart(found.comparisons[-1])
    parts: list[Part] = [
        opening,
        storms,
        newest,
        *([chart] if chart else []),
        *(each for each in others if each.blocks),
    ]
    return Page(f"{len(found.comparisons)} storms and a baseline", tuple(parts))
