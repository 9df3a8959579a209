"""The page of one storm: verdict and receipts first, then what is to be seen, then everything else the terminal says.

A new chart is a file of its own and one line in `CHARTS`; a new section of the terminal's report comes by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from ckptstorm.record.record import StormRecord
from ckptstorm.report.facts import Known, know
from ckptstorm.report.headline import headline
from ckptstorm.report.html.beside_chart import beside_chart
from ckptstorm.report.html.chart import Chart
from ckptstorm.report.html.heat_chart import heat_chart
from ckptstorm.report.html.latency_chart import latency_chart
from ckptstorm.report.html.nodes_chart import nodes_chart
from ckptstorm.report.html.page import Page, Part, Verbatim
from ckptstorm.report.html.ranks_chart import ranks_chart
from ckptstorm.report.html.rounds_chart import rounds_chart
from ckptstorm.report.html.targets_chart import targets_chart
from ckptstorm.report.parts import Section, Table
from ckptstorm.report.sections import SECTIONS, errors, faults, limits, receipts

#: In reading order; a chart without anything to show is left out.
CHARTS: tuple[Callable[[Known], Chart | None], ...] = (
    rounds_chart,
    ranks_chart,
    latency_chart,
    heat_chart,
    nodes_chart,
    targets_chart,
    beside_chart,
)
#: What must be known before any number is looked at; the other sections follow the charts, in the terminal's order.
_BEFORE_CHARTS = (headline, receipts, limits, errors, faults)


def page(record: StormRecord) -> Page:
    """Everything that a report says of a record."""
    known = know(record)
    parts: list[Part] = [write(known) for write in _BEFORE_CHARTS]
    parts += [chart for draw in CHARTS if (chart := draw(known)) is not None]
    parts.append(effects(known))
    parts += [write(known) for write in SECTIONS if write not in _BEFORE_CHARTS]
    if record.job_text:
        parts.append(Verbatim("The job file", record.job_text))
    kept = tuple(part for part in parts if not isinstance(part, Section) or part.blocks)
    return Page(f"Checkpoint storm {record.storm_id}", kept)


def effects(known: Known) -> Section:
    """What was asked for against what took effect."""
    rows = tuple(
        (key, asked, took, "as asked" if asked == took else "chosen" if asked in ("auto", "layout") else "OTHERWISE")
        for key, (asked, took) in known.record.asked.items()
    )
    table = Table(("setting", "asked", "took effect", ""), rows, left=(1, 2, 3))
    return Section("What was asked, and what took effect", (table,) if rows else ())
