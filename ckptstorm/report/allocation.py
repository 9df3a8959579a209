"""Where a storm ran, for its report: the allocation that a batch system granted, and what ranks were bound to."""

from __future__ import annotations

from typing import Any

from ckptstorm.record import settings
from ckptstorm.record.words import counted
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Block, Fact, Section

_BINDINGS_SHOWN = 4


def allocation(known: Known) -> Section:
    """Left out of storms that no batch system granted anything to: their ranks are bound to nothing."""
    facts = settings.table(known.record.environment, "allocation")
    job = settings.text(facts, "job_id")
    if not job:
        return Section("Allocation", ())
    named = [settings.text(facts, name) for name in ("cluster", "partition", "reservation")]
    where = ", ".join(name for name in named if name)
    task = settings.text(facts, "array_task_id")
    part = f", part {task} of array {settings.text(facts, 'array_job_id')}" if task else ""
    spread = settings.text(facts, "ranks_per_node", default="?")
    blocks: list[Block] = [
        Fact("job", f"{settings.text(facts, 'scheduler')} {job}{part}{' in ' + where if where else ''}"),
        Fact("nodes", f"{settings.text(facts, 'step_node_list')} ({spread} ranks a node)"),
    ]
    granted = settings.table(facts, "job")
    if granted:
        blocks.append(Fact("granted", ", ".join(f"{name} {value}" for name, value in granted.items())))
    bound = facts.get("bindings")
    rows = [one for one in bound if isinstance(one, dict)] if isinstance(bound, list | tuple) else []
    blocks += [Fact("bound", _words(one)) for one in rows[:_BINDINGS_SHOWN]]
    if len(rows) > _BINDINGS_SHOWN:
        blocks.append(Fact("", f"{counted(len(rows) - _BINDINGS_SHOWN, 'more binding')} in storm.json"))
    return Section("Allocation", tuple(blocks))


def _words(one: dict[str, Any]) -> str:
    rail = settings.text(one, "rail")
    return (
        f"ranks {settings.text(one, 'ranks')}: CPUs {settings.text(one, 'cpus')}, "
        f"memory of NUMA node {settings.text(one, 'memory_nodes')}{', rail ' + rail if rail else ''}"
    )
