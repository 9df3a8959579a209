"""What `ckptstorm plan` prints: files, records, ops and bytes of all ranks, or of one, before anything is written."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ckptstorm.errors import JobError
from ckptstorm.job import Job
from ckptstorm.model.parallel import World
from ckptstorm.plan import Totals, facts_of, plan, restore_note, totals
from ckptstorm.plan_loads import loads_data, loads_text, rank_loads, rank_loads_text
from ckptstorm.program import DATA, Kind, Program
from ckptstorm.sizes import SIZE_CLASS_NAMES, size_class
from ckptstorm.steps import Meet
from ckptstorm.storm.check import buffer_bytes, largest_op_bytes
from ckptstorm.storm.lowered import Lowered, lowered
from ckptstorm.units import bytes_text, count_text, parse_bytes

_COLUMN = 12


@dataclass(frozen=True, slots=True)
class Described:
    """A plan for people and for programs."""

    text: str
    data: dict[str, Any]


def describe(job: Job, world: World, rank: int | None, block_size: str) -> Described:
    """The whole world's plan, or one rank's.

    Raises:
        JobError: the job is impossible on this world, there is no such rank, or that is no block size.
    """
    try:
        facts = facts_of(job, parse_bytes(block_size))
    except ValueError as error:
        raise JobError(f"--block-size {block_size}: {error}") from None
    if rank is None:
        sums = totals(job, world, facts)
        largest = largest_op_bytes(job, world, sums, facts)
        data = asdict(sums) | {"read_multiplier": sums.read_multiplier, "largest_op_bytes": largest}
        data |= {"data_read_multiplier": sums.data_read_multiplier, "loads": loads_data(job, world)}
        saved = _world_text(job, world, sums, largest) if job.saves else ""
        text = "\n\n".join(part for part in (saved, loads_text(job, world)) if part)
        return Described(text, data)
    if rank >= world.rank_count:
        raise JobError(f"--rank {rank}: there are ranks 0 to {world.rank_count - 1}")
    rank_plan = plan(job, world, rank)
    phases = {
        "save": _steps_data(lowered(rank_plan.save, facts, job.io)),
        "restore": _steps_data(lowered(rank_plan.restore, facts, job.io)),
    }
    loads = rank_loads(job, world, rank)
    text = "\n".join([_rank_text(rank, rank_plan.created, phases if job.saves else {}), *rank_loads_text(loads)])
    return Described(text, {"rank": rank, "created": rank_plan.created, "loads": loads} | phases)


def _world_text(job: Job, world: World, sums: Totals, largest: int) -> str:
    name = job.model.name or job.model.architecture or "opaque shards"
    per_node = world.most_ranks_per_node
    memory = per_node * buffer_bytes(job, largest)
    nodes = "1 node" if world.node_count == 1 else f"{world.node_count:,} nodes"
    ranks = f"{sums.rank_count:,} ranks"
    if sums.restore_rank_count != sums.rank_count:
        ranks += f" save and {sums.restore_rank_count:,} restore"
    lines = [
        f"{name}, {job.layout.name}, {job.parallel.sharding}: {ranks} on {nodes}",
        "",
        f"checkpoint   {bytes_text(sums.data_bytes + sums.commit_bytes)} in {sums.file_count:,} files"
        f" ({bytes_text(sums.commit_bytes)} of it written by the commit)",
        f"per rank     least {bytes_text(sums.bytes_per_rank_least)}, median {bytes_text(sums.bytes_per_rank_median)},"
        f" most {bytes_text(sums.bytes_per_rank_most)}",
        f"records      {sums.record_count:,} ({sums.tensor_count:,} tensors)",
        f"restore      reads {bytes_text(sums.restore.data_bytes)}: {sums.read_multiplier:.3g} times the checkpoint",
        *([f"{'':{_COLUMN}} {_without_metadata(sums)}"] if sums.metadata_read_bytes else []),
        f"buffers      {bytes_text(memory)} a node: {per_node} ranks, largest op {bytes_text(largest)}",
        *textwrap.wrap(_collectives(sums), 80, initial_indent="collectives  ", subsequent_indent=" " * 13),
        "",
        f"{'':{_COLUMN}} {'save':>16} {'restore':>16}",
        *_counts("data ops", sums.save.data_by_size, sums.restore.data_by_size),
        *_counts("other ops", _others(sums.save.by_kind), _others(sums.restore.by_kind)),
    ]
    for note in (*sums.notes, restore_note(job, world)):
        lines += ["", *textwrap.wrap(note, 80)] if note else []
    if job.io.coalesce or job.io.direct or job.io.threads > 1:
        lines += ["", "ops as the framework makes them; [io] reshapes them: see a rank's with --rank 0"]
    if not sums.is_restore_exact:
        lines += ["", "restore ops: one rank of each class of equal shards counts for all of its class"]
    return "\n".join(lines)


def _without_metadata(sums: Totals) -> str:
    return f"({sums.data_read_multiplier:.3g} times the data; {bytes_text(sums.metadata_read_bytes)} of it metadata)"


def _collectives(sums: Totals) -> str:
    return ", ".join(why for why in sums.collective_count) or "none"


def _others(by_kind: dict[str, int]) -> dict[str, int]:
    data = {kind.word for kind in DATA}
    return {kind: count for kind, count in by_kind.items() if kind not in data}


def _counts(title: str, save: dict[str, int], restore: dict[str, int]) -> list[str]:
    names = [name for name in {**save, **restore} if save.get(name) or restore.get(name)]
    word = "up to " if title == "data ops" else ""
    rows = [
        f"  {_class_name(word + name):<{_COLUMN}} {save.get(name, 0):>14,} {restore.get(name, 0):>16,}"
        for name in names
    ]
    return [f"{title:<{_COLUMN}} {sum(save.values()):>16,} {sum(restore.values()):>16,}", *rows]


def _class_name(name: str) -> str:
    return name.replace("up to more", "above 256M")


def _steps_data(stages: tuple[Lowered, ...]) -> list[dict[str, Any]]:
    described: list[dict[str, Any]] = []
    for stage in stages:
        if isinstance(stage, Meet):
            described.append({"meet": stage.kind, "why": stage.why, "bytes_per_rank": stage.bytes_per_rank})
        else:
            described.extend({"run": stage.part} | _program_data(program) for program in stage.programs)
    return described


def _program_data(program: Program) -> dict[str, Any]:
    kinds, counts = np.unique(program.ops["kind"], return_counts=True)
    moved = program.expected_bytes()
    classes = np.bincount(size_class(moved[np.isin(program.ops["kind"], DATA)]), minlength=len(SIZE_CLASS_NAMES))
    return {
        "files": [path.name for path in program.paths],
        "ops": {Kind(int(kind)).word: int(count) for kind, count in zip(kinds, counts, strict=True)},
        "data_by_size": {name: int(count) for name, count in zip(SIZE_CLASS_NAMES, classes, strict=True) if count},
        "bytes": int(moved.sum()),
    }


def _rank_text(rank: int, created: tuple[str, ...], phases: dict[str, list[dict[str, Any]]]) -> str:
    lines = _hung("", f"rank {rank} creates {', '.join(created) or 'no file'}")
    for phase, steps in phases.items():
        lines += ["", phase]
        for step in steps:
            if "meet" in step:
                size = bytes_text(step["bytes_per_rank"])
                lines += _hung("  meet  ", f"{step['meet']} ({step['why']}), {size} a rank")
                continue
            ops = ", ".join(f"{count_text(count)} {kind}" for kind, count in step["ops"].items())
            lines += _hung("  run   ", f"{ops}: {bytes_text(step['bytes'])}")
            if step["data_by_size"]:
                sizes = ", ".join(f"{count_text(count)} up to {name}" for name, count in step["data_by_size"].items())
                lines += _hung("        ", sizes)
    return "\n".join(lines)


def _hung(label: str, text: str) -> list[str]:
    return textwrap.wrap(text, 80, initial_indent=label, subsequent_indent=" " * len(label))
