"""mdtest's table of rates: the slowest iteration's time, from the rate that the slowest iteration had."""

from __future__ import annotations

import re
from pathlib import Path

from ckptstorm.report.importers.reading import not_one, text_of
from ckptstorm.report.importers.seen import PhaseSeen, Seen

_TOOL = "mdtest"
_LAUNCHED = re.compile(r"mdtest-(\S+) was launched with (\d{1,9}) total task\(s\) on (\d{1,9}) node\(s\)")
_STARTED = re.compile(r"-- started at (.+?) --")
_ITEMS = re.compile(r"^\s*(\d{1,9}) tasks?, (\d{1,15}) (?:files|directories|files/directories)\s*$", re.MULTILINE)
_SUMMARY = re.compile(r"SUMMARY rate.*\(of (\d{1,9}) iterations?\)")
_NUMBER = r"([0-9]{1,20}\.[0-9]{1,9})"
_ROW = re.compile(rf"^\s*([A-Z][a-z]+ [a-z]+)\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s*$", re.MULTILINE)
_BASIS = "items ÷ the lowest rate: the slowest iteration, barriers included; mdtest's headline is the mean of rates"


def read(path: str) -> tuple[Seen, ...]:
    """One run.

    Raises:
        PlaceError: the file is none of mdtest's, or was cut off before its table.
    """
    file = Path(path)
    text = text_of(file, _TOOL)
    launched, summary = _LAUNCHED.search(text), _SUMMARY.search(text)
    if launched is None:
        raise not_one(file, _TOOL, "no line says that mdtest was launched")
    rows = _ROW.findall(text[summary.end() :]) if summary else []
    if summary is None or not rows:
        raise not_one(file, _TOOL, "it ends before the table of rates")
    started, items = _STARTED.search(text), _ITEMS.search(text)
    count = int(items[2]) if items else None
    phases = tuple(_phase(name, float(least), float(mean), count) for name, _, least, mean, _ in rows)
    iterations = int(summary[1])
    notes = () if iterations == 1 else (f"each row is of the slowest of {iterations} iterations: others are not told",)
    return (
        Seen(
            "mdtest",
            launched[1],
            f"mdtest:{file.name}",
            path,
            int(launched[2]),
            int(launched[3]),
            started[1] if started else "",
            phases,
            notes,
        ),
    )


def _phase(name: str, least: float, mean: float, items: int | None) -> PhaseSeen:
    """Of trees mdtest does not say how many items its rate counts."""
    count = None if name.startswith("Tree") else items
    return PhaseSeen(
        name.lower(),
        1,
        count / least if count is not None and least > 0 else None,
        _BASIS,
        tool_per_s=mean,
        metadata_op_count=count,
    )
