"""The page of a comparison: the judgement first, a chart that plotly accepts, markup in names stays text."""

from __future__ import annotations

import re

import pytest

from ckptstorm.report.compare import compare
from ckptstorm.report.drift import series
from ckptstorm.report.html import comparison, page
from ckptstorm.report.html.chart import Chart
from tests.report.html.test_page import EVIL
from tests.report.test_compare import _storm
from tests.services.browser import browser

go = pytest.importorskip("plotly.graph_objects")


def _shown(made: page.Page) -> str:
    text = page.render(made)
    return re.sub(r"<[^>]+>", "", text[text.index("<main") :])


def _chart(made: page.Page) -> Chart:
    return next(part for part in made.parts if isinstance(part, Chart))


def test_the_judgement_comes_first_and_the_numbers_are_drawn():
    """Worse, the gate, the chart's finding, every section of the terminal's page; intervals in per cent."""
    made = comparison.page(compare(_storm(2.0, noise=1), _storm(2.2, noise=2)), 0.05)
    text = _shown(made)
    assert text.index("WORSE") < text.index("FAILED (--fail-above 5 %)") < text.index("Changes and their intervals")
    assert "How to read this" in text
    for view in _chart(made).views:
        go.Figure(view.figure)
    saves = {trace["name"]: trace for trace in _chart(made).views[0].figure["data"]}
    worse = dict(zip(saves["worse"]["y"], saves["worse"]["x"], strict=True))
    assert worse["T"] == pytest.approx(10, abs=2)
    assert saves["worse"]["error_x"]["arrayminus"][0] > 0


def test_too_few_rounds_have_no_chart():
    """There is no interval to draw: words and the table remain."""
    made = comparison.page(compare(_storm(2.0, 2), _storm(3.0, 2)))
    assert not any(isinstance(part, Chart) for part in made.parts)
    assert "cannot tell" in page.render(made)


def test_many_storms_open_with_the_drift():
    """Then the newest in full."""
    nights = tuple(compare(_storm(), _storm(2.0 * 1.015**n, noise=n, name=f"night-{n}")) for n in range(1, 9))
    text = _shown(comparison.series_page(series(nights)))
    assert (
        text.index("ALARM, worse") < text.index("Each storm against the baseline") < text.index("night-8, 6 measured")
    )


def test_markup_in_names_stays_text():
    """A storm's name with tags in it."""
    text = page.render(comparison.page(compare(_storm(name=EVIL), _storm(name="x"))))
    assert "<img" not in text
    assert "&lt;img" in text


def test_a_browser_draws_it(tmp_path):
    """Without a complaint, and no wider than the window."""
    path = tmp_path / "compare.html"
    path.write_text(page.render(comparison.page(compare(_storm(noise=1), _storm(2.2, noise=2)))), encoding="utf-8")
    with browser() as chromium, chromium.open(path) as tab:
        assert tab.complaints == []
        assert tab.page.locator("#chart-changes .main-svg").count() >= 1
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
