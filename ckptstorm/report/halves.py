"""A split storm, for its report: which job saved and which one restored, where and when."""

from __future__ import annotations

from typing import Any

from ckptstorm.record import settings
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Block, Fact, Section


def halves(known: Known) -> Section:
    """Left out of storms that saved and restored in one go."""
    told = settings.table(known.record.environment, "halves")
    if not told:
        return Section("Halves", ())
    blocks: list[Block] = [
        Fact(name, _words(settings.table(told, name))) for name in ("save", "restore") if name in told
    ]
    missing = settings.text(told, "save", "missing")
    if missing:
        blocks.append(Fact("missing", f"the save's result could not be joined: {missing}", "doubt"))
    if settings.text(told, "run") == "save":
        blocks.append(Fact("restore", f"not yet: --only restore --from {_directory(known)}", "doubt"))
    return Section("Halves", tuple(blocks))


def _directory(known: Known) -> str:
    return settings.text(known.record.environment, "directory", default="DIR")


def _words(half: dict[str, Any]) -> str:
    nodes = half.get("nodes")
    names = [str(name) for name in nodes] if isinstance(nodes, list | tuple) else []
    job = settings.text(half, "allocation", "job_id")
    parts = [
        f"storm {settings.text(half, 'storm_id')}" if "storm_id" in half else "",
        f"job {job}" if job else "",
        f"on {', '.join(names[:4])}{' …' if len(names) > 4 else ''}" if names else "",
        settings.text(half, "started"),
    ]
    return ", ".join(part for part in parts if part)
