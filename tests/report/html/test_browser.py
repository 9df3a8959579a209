"""The page in a real browser: drawn without a complaint, hovered, zoomed, read by keyboard, narrow, printed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from ckptstorm.record.record import Node
from ckptstorm.report.html import page, storm
from tests.record import synthetic
from tests.record.synthetic import Make
from tests.report.html.test_page import EVIL
from tests.services.browser import browser

STRAGGLER = Make(ranks=16, nodes=4, rounds=3, late={5: 4.0})


@pytest.fixture(scope="module")
def chromium():
    """One browser for all."""
    with browser() as found:
        yield found


def _write(record, folder):
    path = folder / "report.html"
    path.write_text(page.render(storm.page(record)), encoding="utf-8")
    return path


def _range(tab, chart, axis="xaxis"):
    return tab.page.evaluate(f"document.getElementById('chart-{chart}')._fullLayout.{axis}.range")


def _box(tab, chart):
    place = tab.page.locator(f"#chart-{chart} .nsewdrag").first
    place.scroll_into_view_if_needed()
    return place.bounding_box()


@pytest.mark.parametrize("ranks", [4, 1024])
def test_it_is_drawn_without_a_complaint(chromium, tmp_path, ranks):
    """No warning, no error, no request; every chart holds marks; nothing is wider than the window."""
    made = synthetic.record(Make(ranks=ranks, nodes=max(ranks // 8, 2), rounds=2, late={3: 4.0}))
    with chromium.open(_write(made, tmp_path)) as tab:
        assert tab.complaints == []
        charts = tab.page.locator(".chart")
        assert charts.count() == 5
        for index in range(charts.count()):
            assert charts.nth(index).locator(".main-svg").count() >= 1
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hover_names_the_straggler(chromium, tmp_path):
    """The mouse over the diamond says who it is."""
    with chromium.open(_write(synthetic.record(STRAGGLER), tmp_path)) as tab:
        point = tab.page.locator("#chart-ranks .scatterlayer .points path.point").last
        point.scroll_into_view_if_needed()
        box = point.bounding_box()
        tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
        hover = tab.page.locator("#chart-ranks .hoverlayer .hovertext").first
        hover.wait_for()
        assert "rank 5 on gpu001: durable after 6." in hover.text_content()
        assert tab.complaints == []


def test_zoom_by_mouse_and_back(chromium, tmp_path):
    """Drag a box over a chart: its range shrinks; a double click shows all again."""
    with chromium.open(_write(synthetic.record(STRAGGLER), tmp_path)) as tab:
        before, box = _range(tab, "ranks"), _box(tab, "ranks")
        tab.page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.25)
        tab.page.mouse.down()
        tab.page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.75, steps=5)
        tab.page.mouse.up()
        tab.page.wait_for_function(
            "([before]) => { const now = document.getElementById('chart-ranks')._fullLayout.xaxis.range;"
            " return now[1] - now[0] < 0.7 * (before[1] - before[0]); }", arg=[before],
        )  # fmt: skip
        tab.page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tab.page.wait_for_function(
            "([before]) => { const now = document.getElementById('chart-ranks')._fullLayout.xaxis.range;"
            " return Math.abs(now[1] - before[1]) < 1e-6; }", arg=[before],
        )  # fmt: skip
        assert tab.complaints == []


def test_everything_can_be_reached_by_keyboard(chromium, tmp_path):
    """The first Tab skips the navigation; a chart takes the focus, keys zoom and move it, 0 shows all again."""
    with chromium.open(_write(synthetic.record(STRAGGLER), tmp_path)) as tab:
        tab.page.keyboard.press("Tab")
        assert tab.page.evaluate("document.activeElement.textContent") == "Skip to the report"
        reached = set()
        for _ in range(60):
            tab.page.keyboard.press("Tab")
            reached.add(tab.page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        assert {f"chart-{name}" for name in ("rounds", "ranks", "latency", "heat", "nodes")} <= reached
        assert {"SELECT", "SUMMARY", "A"} <= reached
        tab.page.locator("#chart-rounds").focus()
        whole = _range(tab, "rounds")
        tab.page.keyboard.press("+")
        zoomed = _range(tab, "rounds")
        assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 2)
        tab.page.keyboard.press("ArrowRight")
        assert _range(tab, "rounds")[0] > zoomed[0]
        tab.page.keyboard.press("0")
        assert _range(tab, "rounds") == pytest.approx(whole)
        assert tab.complaints == []


def test_another_view_is_drawn_when_it_is_chosen(chromium, tmp_path):
    """The restore instead of the save: its times are shorter."""
    with chromium.open(_write(synthetic.record(STRAGGLER), tmp_path)) as tab:
        save = _range(tab, "rounds", "yaxis")
        tab.page.locator("select[data-chart=rounds]").select_option(label="restore")
        tab.page.wait_for_function(
            "([save]) => document.getElementById('chart-rounds')._fullLayout.yaxis.range[1] < save[1] / 2", arg=[save]
        )
        assert tab.complaints == []


def test_a_phone_sees_it_without_scrolling_sideways(chromium, tmp_path):
    """390 pixels: no chart and no text is wider; tables scroll in themselves."""
    with chromium.open(_write(synthetic.record(STRAGGLER), tmp_path), width=390, height=800) as tab:
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
        widths = tab.page.evaluate("Array.from(document.querySelectorAll('.chart'), (c) => c.scrollWidth)")
        assert max(widths) <= 390
        assert tab.complaints == []


def test_printed_it_has_its_charts_and_no_controls(chromium, tmp_path):
    """A PDF of several pages; in print, navigation and choices are gone, charts fit, and they come back on screen."""
    with chromium.open(_write(synthetic.record(STRAGGLER), tmp_path)) as tab:
        pdf = tab.page.pdf(format="A4")
        assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3
        tab.page.emulate_media(media="print")
        for hidden in ("nav", ".choice", ".keys"):
            assert not tab.page.locator(hidden).first.is_visible()
        tab.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        tab.page.wait_for_function("document.getElementById('chart-ranks')._fullLayout.width === 680")
        tab.page.evaluate("dispatchEvent(new Event('afterprint'))")
        tab.page.wait_for_function("document.getElementById('chart-ranks')._fullLayout.width > 1000")
        assert tab.complaints == []


def test_markup_in_names_is_shown_as_text(chromium, tmp_path):
    """A host called like a tag: in the page, on the axis and in the hover it reads as written, and runs nothing."""
    made = synthetic.record(replace(STRAGGLER, nodes=2))
    evil = '<b onclick="alert(1)">h</b>'
    made = replace(made, storm_id=EVIL, nodes=(Node(evil, 8), Node("<i>&lt;", 8)))
    with chromium.open(_write(made, tmp_path)) as tab:
        assert EVIL in tab.page.locator("h1").text_content()
        axis = tab.page.locator("#chart-nodes .xtick text").all_text_contents()
        assert axis == ['<b onclick="alert(1)">h…', "<i>&lt;"]
        assert tab.page.locator("#chart-nodes b, #chart-nodes i, img").count() == 0
        box = _box(tab, "nodes")
        tab.page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.9, steps=4)
        hover = tab.page.locator("#chart-nodes .hoverlayer .hovertext").first
        hover.wait_for()
        assert evil in hover.text_content()
        assert tab.complaints == []
