"""What `list` and `check` print, as text of 80 columns and as data."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from ckptstorm.engines import ENGINES, missing
from ckptstorm.filesystems import FILE_SYSTEMS
from ckptstorm.job import ModelTable
from ckptstorm.jobfile import decode, shipped_jobs
from ckptstorm.layouts import LAYOUTS
from ckptstorm.loads import LOADS
from ckptstorm.model.zoo import MODELS
from ckptstorm.storm.check import Preflight
from ckptstorm.storm.findings import Finding

_WIDTH = 80
Row = dict[str, str]


def _engines() -> list[Row]:
    rows = []
    for name, entry in ENGINES.items():
        lacks = missing(name)
        rows.append({"name": name, "purpose": entry.purpose, "source": entry.source, "missing": lacks})
    return rows


def _layouts() -> list[Row]:
    return [{"name": name, "purpose": entry.purpose, "source": entry.source} for name, entry in LAYOUTS.items()]


def _loads() -> list[Row]:
    return [{"name": name, "purpose": entry.purpose, "source": entry.source} for name, entry in LOADS.items()]


def _models() -> list[Row]:
    return [{"name": name, "purpose": entry.purpose, "source": entry.source} for name, entry in MODELS.items()]


def _file_systems() -> list[Row]:
    return [{"name": name, "purpose": entry.purpose} for name, entry in FILE_SYSTEMS.items()]


def _jobs() -> list[Row]:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in shipped_jobs()}
    return [{"name": name, "purpose": _question(text), "source": _job_source(text)} for name, text in texts.items()]


def _question(text: str) -> str:
    """The comment that a job file opens with, without the commands in it."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#") or line.startswith(("#   ", "# Source: ")):
            break
        lines.append(line.lstrip("# ").strip())
    return " ".join(lines)


def _job_source(text: str) -> str:
    """What a job states in a line of its own ("# Source: …"); else it is ours, on the facts of its layout."""
    stated = re.search(r"^# Source: (.+)$", text, re.MULTILINE)
    if stated:
        return stated[1]
    job = decode(text, "a job of this package")
    if job.model == ModelTable():
        return "this project's own"
    return f"this project's own; {job.layout.name}: {LAYOUTS[job.layout.name].source}"


#: What can be listed.
LISTS: dict[str, Callable[[], list[Row]]] = {
    "engines": _engines,
    "layouts": _layouts,
    "loads": _loads,
    "models": _models,
    "filesystems": _file_systems,
    "jobs": _jobs,
}


def lists_data(names: Sequence[str]) -> dict[str, list[Row]]:
    """For programs."""
    return {name: LISTS[name]() for name in names}


def lists_text(names: Sequence[str]) -> str:
    """For people."""
    blocks = []
    for name in names:
        rows = LISTS[name]()
        width = max((len(row["name"]) for row in rows), default=0)
        lines = [line for row in rows for line in _entry(row, width)]
        blocks.append("\n".join([name, *lines]))
    return "\n\n".join(blocks)


def _entry(row: Row, width: int) -> list[str]:
    text = row["purpose"]
    if row.get("source"):
        text += f" [{row['source']}]"
    if row.get("missing"):
        text += f" MISSING: {row['missing']}"
    return _hung(f"  {row['name']:<{width}}  ", text)


def _hung(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False
    ) or [label.rstrip()]


def findings_data(found: Preflight) -> dict[str, Any]:
    """For programs."""
    rows = [
        {"subject": one.subject, "state": one.state, "sentence": one.sentence, "hint": one.hint}
        for one in found.findings
    ]
    return {"stops": any(one.state == "stops" for one in found.findings), "findings": rows}


def findings_text(found: Preflight) -> str:
    """For people: one line a finding, the remedy below it, the upshot last."""
    width = max(len(one.subject) for one in found.findings)
    lines = [line for one in found.findings for line in _finding(one, width)]
    stops = sum(one.state == "stops" for one in found.findings)
    upshot = f"This storm would not start: {stops} of these stop it." if stops else "This storm would start."
    return "\n".join([*lines, "", upshot])


def _finding(one: Finding, width: int) -> list[str]:
    lines = _hung(f"{one.state:<7}  {one.subject:<{width}}  ", one.sentence)
    return lines + (_hung(" " * (11 + width), one.hint) if one.hint else [])
