"""What `ckptstorm plan` prints of loads: their files, their memory, their stages; or one rank's ops."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import Any

import numpy as np

from ckptstorm.job import Job, plain
from ckptstorm.load_tables import LoadTable, kind_of, name_of
from ckptstorm.loads import load_of
from ckptstorm.loads.contract import Stage
from ckptstorm.model.parallel import World
from ckptstorm.program import Kind
from ckptstorm.units import bytes_text, count_text, time_text


def loads_data(job: Job, world: World) -> list[dict[str, Any]]:
    """For programs: each load's table and what it needs."""
    return [plain(load) | asdict(load_of(load, world).footprint()) for load in job.load]


def loads_text(job: Job, world: World) -> str:
    """For people: a few lines a load; "" when there is none."""
    return "\n".join(line for load in job.load for line in _lines(load, world))


def rank_loads(job: Job, world: World, rank: int) -> dict[str, list[dict[str, Any]]]:
    """The stages of one rank, by name: op counts of each thread. A stage that reads back is made when it is known."""
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in job.load:
        load = load_of(entry, world)
        for index in range(load.stage_count()):
            if index and kind_of(entry) == "random":
                continue
            stage = load.stage(rank, index)
            found[stage.name] = [_thread(stage, number) for number in range(len(stage.threads))]
    return found


def rank_loads_text(stages: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The same for people."""
    lines: list[str] = []
    for name, threads in stages.items():
        lines += ["", name]
        for thread in threads:
            ops = ", ".join(f"{count_text(count)} {kind}" for kind, count in thread["ring"].items())
            ends = (
                "until its time is over" if thread["op_limit"] is None else f"{count_text(thread['op_limit'])} in all"
            )
            lines += textwrap.wrap(
                f"a lap of {ops}: {bytes_text(thread['ring_bytes'])}; {ends}",
                80,
                initial_indent="  thread  ",
                subsequent_indent=" " * 10,
            )
        if not threads:
            lines.append("  takes no part")
    return lines


def _thread(stage: Stage, number: int) -> dict[str, Any]:
    thread = stage.threads[number]
    ring = thread.program.ops[thread.first : thread.stop]
    kinds, counts = np.unique(ring["kind"], return_counts=True)
    moved = thread.program.expected_bytes()[thread.first : thread.stop]
    return {
        "ring": {Kind(int(kind)).word: int(count) for kind, count in zip(kinds, counts, strict=True)},
        "ring_bytes": int(moved.sum()),
        "op_limit": thread.op_limit,
        "files": len(thread.program.paths),
    }


def _lines(entry: LoadTable, world: World) -> list[str]:
    load = load_of(entry, world)
    foot = load.footprint()
    ranks = "all ranks" if entry.ranks == "all" else f"{len(entry.ranks)} ranks"
    ends = f"for {time_text(entry.duration)}" if entry.duration else "until its work is done"
    memory = bytes_text(world.most_ranks_per_node * (foot.buffer_bytes + foot.op_table_bytes))
    threads = "1 thread" if entry.threads == 1 else f"{entry.threads} threads"
    files = f"{count_text(foot.file_count)} files and directories"
    lines = [
        f"load         {name_of(entry)} ({kind_of(entry)}): {ranks}, {threads} each, {ends}",
        f"             {bytes_text(foot.bytes)} in {files}; {memory} a node",
    ]
    for name, count in foot.stages:
        lines.append(f"  {name:<28} {count_text(count) if count else 'as many as there is time for':>10}")
    return lines
