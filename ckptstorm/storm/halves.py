"""A storm cut in two: save in one job, restore in another, on other nodes, hours later.

The save leaves its checkpoints and a manifest of them; the restore takes the directory over, deals
shards so that no node reads what it wrote, counts what it would read of its own all the same, and
joins both halves into one record.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from ckptstorm.cluster.comm import Cluster
from ckptstorm.cluster.placement import Station
from ckptstorm.errors import JobError, PlaceError
from ckptstorm.job import Job
from ckptstorm.measure.timeline import Timeline
from ckptstorm.program import READS
from ckptstorm.record import files
from ckptstorm.record.record import Node, PhaseRecord, StormRecord
from ckptstorm.storm import ground, settle
from ckptstorm.storm import saved as saved_manifest
from ckptstorm.storm.check import Preflight
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.lowered import programs_of
from ckptstorm.storm.orders import Half, Reading
from ckptstorm.storm.outcome import Keeper
from ckptstorm.storm.saved import Saved, SavedFile, SavedRound

#: What is checked before a save has no meaning where the files are there already.
_NOT_ASKED_OF_A_RESTORE = ("directory", "space", "inodes")


@dataclass(frozen=True, slots=True)
class Part:
    """What of a storm is run here.

    Attributes:
        half: all of it, or one.
        job: as it is run (a restore takes over what was saved).
        saved: of the save, when this is the restore.
    """

    half: Half
    job: Job
    saved: Saved | None


def part_of(half: Half, job: Job, directory: str, rank_count: int) -> Part:
    """What is to be run.

    Raises:
        PlaceError: there is nothing to restore, or it was saved by another job or world.
    """
    if half != "both" and not job.saves:
        raise PlaceError(f"--only {half}: this job saves nothing, it only runs loads", "run it whole")
    if half != "restore":
        return Part(half, job, None)
    saved = saved_manifest.read(directory)
    if saved.rank_count != rank_count:
        raise PlaceError(
            f"{directory} was saved by {saved.rank_count} ranks, and there are {rank_count}",
            f"start {saved.rank_count} ranks; [restore.parallel] in the saved job restores with fewer of them",
        )
    return Part(half, saved_manifest.job_to_restore(saved, job, directory), saved)


def preflight_of(found: Preflight, half: Half) -> Preflight:
    """What was found that this half asks for."""
    if half != "restore":
        return found
    return replace(found, findings=tuple(one for one in found.findings if one.subject not in _NOT_ASKED_OF_A_RESTORE))


def reading_of(part: Part, stations: Sequence[Station]) -> Reading | None:
    """What every rank of a restore must know; None otherwise.

    Raises:
        JobError: `[restore] from = "other-node"`, and there are not enough other nodes.
    """
    saved = part.saved
    if saved is None:
        return None
    here = [station.machine for station in stations]
    there = [saved.machines[at] for at in saved.machine_of_rank]
    wanted = part.job.restore.from_
    sources = list(range(len(here))) if wanted == "own" else saved_manifest.sources(there, here)
    own = sum(there[source] == machine for source, machine in zip(sources, here, strict=True))
    if own and wanted == "other-node":
        raise JobError(
            f'[restore] from = "other-node": {own} of {len(here)} ranks would read what their own node wrote',
            'restore on other nodes, or set [restore] from = "auto"',
        )
    writers = {f"{each.step}/{file.name}": list(file.writers) for each in saved.rounds for file in each.files}
    indices = tuple(each.index for each in saved.rounds)
    return Reading(saved.storm_id, indices, tuple(sources), saved.machines, writers)


def own_share(crew: Crew, reading: Reading, step: str) -> float:
    """Of the bytes that all ranks are about to read, the share that the reader's own machine wrote.

    A file that several machines wrote counts as one's own for each of them; one that the manifest does not name,
    for everybody. Of meaning on rank 0 only.
    """
    mine, all_bytes = 0, 0
    here = crew.cluster.place.machine
    for program in programs_of(crew.restore):
        reads = program.ops[np.isin(program.ops["kind"], READS)]
        in_step = program.in_step(step)
        for file in np.unique(reads["file"]):
            moved = int(reads["length_bytes"][reads["file"] == file].sum())
            writers = reading.writers.get(in_step.location(int(file)))
            is_own = writers is None or here in (reading.machines[at] for at in writers)
            mine, all_bytes = mine + moved * is_own, all_bytes + moved
    sums = crew.cluster.sum_on_rank_0(np.array([mine, all_bytes], dtype=np.int64))
    return float(sums[0]) / max(1.0, float(sums[1]))


def saved_rounds(crew: Crew, steps: Sequence[tuple[int, str]]) -> tuple[SavedRound, ...]:
    """The checkpoints that are there, each file with its real size, on rank 0 (elsewhere nothing); a collective.

    Args:
        crew: this rank's.
        steps: (which save, its step directory).
    """
    own = {step: _sizes(crew, step) for _, step in steps}
    texts = crew.cluster.texts_on_rank_0(json.dumps({"machine": crew.cluster.place.machine, "files": own}))
    told = [json.loads(text) for text in texts]
    machines = _machines([one["machine"] for one in told])
    warmup = crew.job.storm.warmup
    return tuple(SavedRound(index, index + 1 - warmup, step, _files(told, machines, step)) for index, step in steps)


def _sizes(crew: Crew, step: str) -> dict[str, int]:
    sizes = {}
    for location in settle.written(crew, step):
        try:
            sizes[location.removeprefix(f"{step}/")] = os.stat(location, dir_fd=crew.root_fd).st_size
        except OSError:  # a name that a rename has taken over
            continue
    return sizes


def _machines(of_rank: Sequence[str]) -> dict[str, int]:
    return {machine: at for at, machine in enumerate(dict.fromkeys(of_rank))}


def _files(told: Sequence[dict[str, Any]], machines: dict[str, int], step: str) -> tuple[SavedFile, ...]:
    sizes: dict[str, int] = {}
    writers: dict[str, set[int]] = {}
    for one in told:
        for name, size in one["files"][step].items():
            sizes[name] = max(size, sizes.get(name, 0))
            writers.setdefault(name, set()).add(machines[one["machine"]])
    return tuple(SavedFile(name, size, tuple(sorted(writers[name]))) for name, size in sorted(sizes.items()))


def leave(root_fd: int, record: StormRecord, seed: int, result: str, evidence: Saving) -> str:
    """After a save: leave the manifest beside the checkpoints; returns why that could not be done, or "".

    Args:
        root_fd: the directory, open.
        record: of the save.
        seed: of its payload.
        result: where its result folder will be.
        evidence: what the ranks told.
    """
    machines = _machines(evidence.machines)
    saved = Saved(
        record.storm_id,
        seed,
        record.job,
        len(evidence.machines),
        tuple(machines),
        tuple(machines[machine] for machine in evidence.machines),
        os.path.abspath(result),
        evidence.rounds,
    )
    try:
        saved_manifest.write(root_fd, saved)
    except OSError as error:
        return f"what a restore needs cannot be written beside the checkpoints: {error.strerror}"
    return ""


@dataclass(frozen=True, slots=True)
class Saving:
    """What a save left: the machine of each rank, and the checkpoints."""

    machines: tuple[str, ...]
    rounds: tuple[SavedRound, ...]


def let_go(claimed: ground.Ground, part: Part) -> None:
    """Of a storm that does not take place: a restore leaves what was saved as it was."""
    if part.saved is None:
        ground.give_back(claimed)
    else:
        ground.keep(claimed)


def facts(part: Part, stations: Sequence[Station]) -> dict[str, Any]:
    """For the record's environment: which half this is, and what of the other one is known."""
    if part.half == "both":
        return {}
    own = {"nodes": sorted({station.host for station in stations}), "started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    told: dict[str, Any] = {"run": part.half, part.half: own, "planned": {"restore": 0}}
    if part.saved is not None:
        measured = [each for each in part.saved.rounds if each.round >= 1]
        told["planned"] = {"save": 0, "restore": len(measured)}
        told["save"] = {"storm_id": part.saved.storm_id, "result": part.saved.result}
    return {"halves": told}


def joined(record: StormRecord, part: Part) -> StormRecord:
    """The record of a restore with the phases of its save before its own; as it is where that cannot be read."""
    if part.saved is None:
        return record
    told = dict(record.environment["halves"])
    try:
        save = files.load(part.saved.result)
    except PlaceError as error:
        told["save"] = told["save"] | {"missing": str(error)}
        return replace(record, environment=record.environment | {"halves": told})
    if save.storm_id != part.saved.storm_id:
        told["save"] = told["save"] | {"missing": f"{part.saved.result} holds storm {save.storm_id}"}
        return replace(record, environment=record.environment | {"halves": told})
    told["save"] = told["save"] | save.environment.get("halves", {}).get("save", {})
    told["save"] |= {"allocation": save.environment.get("allocation", {})}
    told["planned"] = {"restore": told["planned"]["restore"]}
    nodes, shift = _together(record.nodes, save.nodes)
    before = tuple(_moved(phase, shift, len(nodes)) for phase in save.phases)
    environment = record.environment | {"halves": told}
    if "direct" in save.environment:
        environment["direct"] = save.environment["direct"]
    return replace(record, nodes=nodes, phases=(*before, *record.phases), environment=environment)


def _together(here: tuple[Node, ...], there: tuple[Node, ...]) -> tuple[tuple[Node, ...], list[int]]:
    """The nodes of both halves, and where each node of the other half stands among them."""
    nodes, shift = list(here), []
    for node in there:
        known = next((at for at, one in enumerate(nodes) if one.host == node.host), len(nodes))
        if known == len(nodes):
            nodes.append(node)
        shift.append(known)
    return tuple(nodes), shift


def _moved(phase: PhaseRecord, shift: Sequence[int], node_count: int) -> PhaseRecord:
    """A phase of the other half, its nodes numbered as in the joined record."""
    rows, seen = phase.rows.copy(), phase.visibility.copy()
    for table in (rows, seen):
        table["node"] = np.array(shift, dtype=table["node"].dtype)[table["node"]]
    phase = replace(phase, rows=rows, visibility=seen)
    if phase.load is not None:
        nodes = phase.load.nodes.copy()
        nodes["node"] = np.array(shift, dtype=nodes["node"].dtype)[nodes["node"]]
        phase = replace(phase, load=replace(phase.load, nodes=nodes))
    bins = phase.timeline.bins
    if not bins.size:
        return phase
    wide = np.zeros((node_count, bins.shape[1]), dtype=bins.dtype)
    for node, row in enumerate(bins):
        wide[shift[node]] = row
    return replace(phase, timeline=Timeline(phase.timeline.bin_ns, wide))


def as_own(job: Job) -> Job:
    """The job for planning: sources are dealt by the manifest, not by this world's nodes."""
    return msgspec.structs.replace(job, restore=msgspec.structs.replace(job.restore, from_="own"))


def found_wrong_bytes(cluster: Cluster, keeper: Keeper | None) -> bool:
    """Whether any restore read what was not written: such a checkpoint is not removed before somebody looked at it.

    A collective of all ranks; rank 0 has the record.
    """
    found = np.zeros(1, dtype=np.int8)
    if keeper is not None:
        found[0] = any(phase.rows["mismatch_count"].any() for phase in keeper.record.phases)
    cluster.from_rank_0(found)
    return bool(found[0])
