"""What can be known to be wrong with loads before anything is made: engine, space, memory, page cache."""

from __future__ import annotations

from collections.abc import Sequence

from ckptstorm import registry
from ckptstorm.engines import ENGINES, thread_of
from ckptstorm.engines.contract import Engine, Setup
from ckptstorm.errors import JobError
from ckptstorm.filesystems.mount import MEMORY_TYPES, Mount
from ckptstorm.job import Job
from ckptstorm.load_tables import LoadTable, RandomLoad, name_of
from ckptstorm.loads import load_of
from ckptstorm.loads.contract import Footprint
from ckptstorm.loads.schedule import POSIX_OPS_PER_S, actions_per_s
from ckptstorm.model.parallel import World
from ckptstorm.storm.findings import Finding
from ckptstorm.storm.memory import RANK_BYTES, available_bytes
from ckptstorm.units import bytes_text, count_text


def check_load_engines(job: Job, engine: str) -> None:
    """Refuse what the engine cannot do for a load.

    Raises:
        JobError: names the load and the key.
    """
    kind: type[Engine] = registry.find("engine", ENGINES, engine)
    if job.load and thread_of(engine) == "main":
        raise JobError(
            f"[[load]] {name_of(job.load[0])}: the {engine} engine runs on the main thread, and runs no loads",
            'set [io] engine = "native" or "posix"',
        )
    for load in job.load:
        if not isinstance(load, RandomLoad):
            continue
        if load.content == "repeated" and engine != "native":
            raise JobError(f'[[load]] {name_of(load)} content = "repeated": only the native engine can', "leave it out")
        for key, value, default in (("mode", load.mode, "sync"), ("direct", load.direct, False)):
            can = kind.honours.get(key, ())
            if value != default and ... not in can and value not in can:
                raise JobError(
                    f"[[load]] {name_of(load)} {key} = {value}: the {engine} engine cannot honour it",
                    "choose another engine: ckptstorm list engines",
                )
        if load.queue_depth > 1 and ... not in kind.honours.get("queue_depth", ()):
            raise JobError(f"[[load]] {name_of(load)} queue_depth: the {engine} engine has one op in flight")
        try:
            kind(Setup(-1, mode=load.mode, is_direct=load.direct, queue_depth=load.queue_depth))
        except JobError as error:
            raise JobError(str(error).replace("[io]", f"[[load]] {name_of(load)}"), error.hint) from None


def check_rates(job: Job, engine: str, world: World) -> None:
    """Beside a save only the compiled engine keeps a high rate without taking the save's time. Raises JobError."""
    for load in job.load:
        if load.when != "beside" or engine == "native":
            continue
        if actions_per_s(load, world) * load.threads > POSIX_OPS_PER_S:
            rate = load.rate.plain() if load.rate is not None else ""
            raise JobError(
                f"[[load]] {name_of(load)} rate = {rate}: beside a save the {engine} engine is refused above "
                f"{POSIX_OPS_PER_S} actions/s for each rank",
                'take [io] engine = "native", or lower the rate',
            )


def load_findings(job: Job, world: World, mount: Mount, checkpoint_bytes: int) -> tuple[Finding, ...]:
    """Space, inodes, memory and page cache, of all loads together and of each."""
    if not job.load:
        return ()
    feet = [(load, load_of(load, world).footprint()) for load in job.load]
    return (
        _space(feet, mount, checkpoint_bytes),
        _inodes(feet, mount),
        *_memory(feet, world),
        *_warmth(feet, world, mount),
    )


Feet = Sequence[tuple[LoadTable, Footprint]]


def _space(feet: Feet, mount: Mount, checkpoint_bytes: int) -> Finding:
    need = sum(foot.bytes for _, foot in feet)
    beside = f" beside {bytes_text(checkpoint_bytes)} of checkpoints" if checkpoint_bytes else ""
    sentence = f"{bytes_text(need)} needed by loads{beside}, {bytes_text(mount.free_bytes)} free on {mount.mount_point}"
    if need + checkpoint_bytes > mount.free_bytes:
        return Finding(
            "load space", "stops", f"not enough space: {sentence}", "free some, or make span or items smaller"
        )
    return Finding("load space", "fine", sentence)


def _inodes(feet: Feet, mount: Mount) -> Finding:
    need = sum(foot.file_count for _, foot in feet)
    if mount.inode_count == 0:
        return Finding("load inodes", "fine", f"{count_text(need)} needed; {mount.type} has no limit on them")
    sentence = f"{count_text(need)} needed by loads, {count_text(mount.free_inode_count)} free on {mount.mount_point}"
    if need > mount.free_inode_count:
        return Finding("load inodes", "stops", f"not enough inodes: {sentence}", "free some, or make items smaller")
    return Finding("load inodes", "fine", sentence)


def _memory(feet: Feet, world: World) -> tuple[Finding, ...]:
    most, load = max(((foot.buffer_bytes + foot.op_table_bytes, load) for load, foot in feet), key=lambda pair: pair[0])
    need = world.most_ranks_per_node * (RANK_BYTES + most)
    available = available_bytes()
    sentence = f"{bytes_text(need)} a node by {name_of(load)}, {bytes_text(available)} available here"
    if need > available:
        hint = "lower items, queue_depth, threads or block, or put fewer ranks on a node"
        return (Finding("load memory", "stops", f"not enough memory: {sentence}", hint),)
    return (Finding("load memory", "fine", sentence),)


def _warmth(feet: Feet, world: World, mount: Mount) -> tuple[Finding, ...]:
    """Buffered I/O on files that fit into a node's memory measures memory: declared, or not at all."""
    findings = []
    for load, foot in feet:
        if not isinstance(load, RandomLoad) or load.direct or mount.type in MEMORY_TYPES:
            continue
        fits = foot.bytes // max(world.node_count, 1) < available_bytes()
        is_synced = load.access == "write" and load.fsync_every > 0
        if not fits or load.warm or is_synced:
            continue
        findings.append(
            Finding(
                f"load {name_of(load)}",
                "stops",
                f"{bytes_text(foot.bytes)} of files fit into memory, so the page cache would answer",
                "make span larger than memory, set direct = true, or declare it: warm = true",
            )
        )
    return tuple(findings)
