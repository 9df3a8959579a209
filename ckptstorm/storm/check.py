"""Everything that can be known to be wrong before the first byte, as findings: fine, warning, stops."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ckptstorm.engines.slow import matching_ops
from ckptstorm.errors import JobError, PlaceError, StormError
from ckptstorm.filesystems import adapter_of
from ckptstorm.filesystems.contract import Adapter
from ckptstorm.filesystems.mount import MEMORY_TYPES, Mount, mount_of
from ckptstorm.job import Job
from ckptstorm.model.parallel import World
from ckptstorm.plan import Totals, check_plan, facts_of, plan, totals
from ckptstorm.program import DATA, Kind
from ckptstorm.reshaping import ALIGNMENT_BYTES, misaligned
from ckptstorm.steps import Facts
from ckptstorm.storm import ground
from ckptstorm.storm.check_loads import check_load_engines, check_rates, load_findings
from ckptstorm.storm.engine_check import check_engine
from ckptstorm.storm.findings import Finding
from ckptstorm.storm.lowered import LoweredRun, lowered, programs_of
from ckptstorm.storm.memory import RANK_BYTES, available_bytes
from ckptstorm.storm.pressure import to_hold_bytes
from ckptstorm.storm.staging import check_staging, host_bytes
from ckptstorm.storm.striping import check_stripe
from ckptstorm.units import bytes_text, count_text

_BUFFERS_PER_OP = 2
#: The longest name that a layout makes below the step directory is far below this; refused when the mount takes less.
_NAME_BYTES = 64


@dataclass(frozen=True, slots=True)
class Preflight:
    """What the checks found, and the facts they learned on the way.

    Attributes:
        findings: in the order of the checks.
        totals: of the plan.
        mount: the directory's (or of the nearest directory above it that exists).
        adapter: the file system's.
        engine: the engine chosen.
        block_size_bytes: what shapes buffered writers and readers.
    """

    findings: tuple[Finding, ...]
    totals: Totals
    mount: Mount
    adapter: Adapter
    engine: str
    block_size_bytes: int

    def raise_if_stopped(self) -> None:
        """Raises PlaceError with the first finding that stops the storm."""
        for finding in self.findings:
            if finding.state == "stops":
                raise PlaceError(finding.sentence, finding.hint)


def check(job: Job, world: World, directory: str, results: str) -> Preflight:
    """Look at all there is; creates nothing.

    Raises:
        JobError: the job itself is impossible (model, world, layout, engine): nothing further can be looked at.
    """
    check_plan(job, world)
    engine = check_engine(job)
    check_load_engines(job, engine)
    check_rates(job, engine, world)
    _check_shape(job, world)
    _check_faults(job, world)
    check_staging(job, world)
    mount = _mount(ground.nearest_directory(directory))
    adapter = adapter_of(mount)
    facts = facts_of(job, mount.block_size_bytes)
    sums = totals(job, world, facts)
    findings = (
        _finding("directory", lambda: _directory(directory)),
        _finding("results", lambda: _results(directory, results)),
        *(Finding("layout", "warning", note) for note in sums.notes),
        _space(job, sums, mount),
        _inodes(job, sums, mount),
        _names(mount),
        _memory(job, world, memory_bytes(job, world, sums, facts)),
        _file_system(job, mount),
        _finding("stripe", lambda: check_stripe(job, adapter)),
        *load_findings(job, world, mount, (sums.data_bytes + sums.commit_bytes) * checkpoints_at_once(job)),
        Finding("engine", "fine", f"{engine}" + (" (chosen by auto)" if job.io.engine == "auto" else "")),
        Finding("block size", "fine", f"{bytes_text(facts.block_size_bytes)} shapes buffered writers and readers"),
    )
    return Preflight(findings, sums, mount, adapter, engine, facts.block_size_bytes)


def _check_shape(job: Job, world: World) -> None:
    """What [io] asks of the requests' shape must have an effect, and O_DIRECT must be possible."""
    if not (job.io.coalesce or job.io.direct or job.io.threads > 1) or not job.saves:
        return
    rank_plan = plan(job, world, 0)
    stages = lowered((*rank_plan.save, *rank_plan.restore), facts_of(job, ALIGNMENT_BYTES), job.io)
    odd = next((odd for program in programs_of(stages) if (odd := misaligned(program))), "")
    if odd:
        raise JobError(
            f'[io] direct = true: layout "{job.layout.name}" is not aligned to {ALIGNMENT_BYTES} bytes: {odd}',
            'merge its requests into aligned ones: [io] coalesce = "64MiB"',
        )
    most = max(len(stage.programs) for stage in stages if isinstance(stage, LoweredRun))
    if job.io.threads > most:
        raise JobError(
            f'[io] threads = {job.io.threads}: layout "{job.layout.name}" keeps {most} busy on rank 0',
            "threads share a rank's files: take a layout with more files a rank, or fewer threads",
        )


def _check_faults(job: Job, world: World) -> None:
    """A fault that never falls would leave a record of a faulty storm that was none: refuse it by name."""
    facts = facts_of(job, 4096)
    for number, fault in enumerate(job.fault, 1):
        for rank in fault.ranks:
            if rank >= world.rank_count:
                raise JobError(f"[[fault]] {number}: there is no rank {rank}: ranks are 0 to {world.rank_count - 1}")
            programs = programs_of(lowered(getattr(plan(job, world, rank), fault.phase), facts, job.io))
            kind = Kind[fault.op.upper()]
            count = sum(len(matching_ops(program, kind, fault.file)) for program in programs)
            if count < fault.nth:
                where = f" of {fault.file}" if fault.file != "*" else ""
                raise JobError(
                    f"[[fault]] {number}: rank {rank} makes {count} {fault.op}{where} in the {fault.phase},"
                    f" so nth = {fault.nth} never comes",
                    f"see what it makes: ckptstorm plan JOB --ranks {world.rank_count} --rank {rank}",
                )


def _mount(directory: str) -> Mount:
    try:
        return mount_of(directory)
    except OSError as error:
        raise PlaceError(f"{directory}: cannot be looked at: {error.strerror}", "name another --dir") from None


def _finding(subject: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, "fine", look())
    except StormError as error:
        return Finding(subject, "stops", str(error), error.hint)


def _directory(directory: str) -> str:
    if not directory:
        raise PlaceError("--dir is empty", "name the directory under test")
    ground.inspect(directory)
    return f"{directory} is {'empty' if os.path.isdir(directory) else 'new'}"


def _results(directory: str, results: str) -> str:
    if not results:
        raise PlaceError("--results is empty", "name a directory for the results")
    inside = os.path.realpath(results) + os.sep
    if inside.startswith(os.path.realpath(directory) + os.sep):
        raise PlaceError(
            f"--results {results} lies inside --dir {directory}: writing results would disturb the storm",
            "name another --results",
        )
    above = os.path.abspath(results)
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise PlaceError(f"--results {results}: {above} is in the way and not a directory", "name another --results")
    if not os.access(above, os.W_OK | os.X_OK):
        raise PlaceError(f"--results {results}: no permission to write in {above}", "name another --results")
    same = os.stat(above).st_dev == os.stat(ground.nearest_directory(directory)).st_dev
    return f"{results}" + (" (on the file system under test: written after the storm)" if same else "")


def checkpoints_at_once(job: Job) -> int:
    """How many checkpoints there are at most: those kept, and the one being saved."""
    if job.layout.overwrite:
        return 1
    return min(job.storm.keep + 1, job.storm.rounds + job.storm.warmup)


def _space(job: Job, sums: Totals, mount: Mount) -> Finding:
    count = checkpoints_at_once(job)
    each = sums.data_bytes + sums.commit_bytes
    need = each * count
    sentence = (
        f"{bytes_text(need)} needed ({count} checkpoint{'s' if count > 1 else ''} of {bytes_text(each)}), "
        f"{bytes_text(mount.free_bytes)} free on {mount.mount_point}"
    )
    if need > mount.free_bytes:
        return Finding(
            "space", "stops", f"not enough space: {sentence}", "free some, or cut the job: --set model.layers=2"
        )
    return Finding("space", "fine", sentence)


def _inodes(job: Job, sums: Totals, mount: Mount) -> Finding:
    need = (sums.file_count + 1) * checkpoints_at_once(job) + 1
    if mount.inode_count == 0:
        return Finding("inodes", "fine", f"{count_text(need)} needed; {mount.type} has no limit on them")
    sentence = f"{count_text(need)} needed, {count_text(mount.free_inode_count)} free on {mount.mount_point}"
    if need > mount.free_inode_count:
        return Finding("inodes", "stops", f"not enough inodes: {sentence}", "free some, or take fewer ranks")
    return Finding("inodes", "fine", sentence)


def _names(mount: Mount) -> Finding:
    if mount.name_bytes_max < _NAME_BYTES:
        return Finding("names", "stops", f"{mount.type} takes names of {mount.name_bytes_max} bytes at most")
    return Finding("names", "fine", f"up to {mount.name_bytes_max} bytes")


def largest_op_bytes(job: Job, world: World, sums: Totals, facts: Facts) -> int:
    """The largest single transfer; where [io] merges requests, that of rank 0, whose shard is never the smaller one."""
    if not (job.io.coalesce or job.io.direct):
        return max(sums.save.largest_op_bytes, sums.restore.largest_op_bytes)
    rank_plan = plan(job, world, 0)
    programs = programs_of(lowered((*rank_plan.save, *rank_plan.restore), facts, job.io))
    lengths = [int(one.ops["length_bytes"][np.isin(one.ops["kind"], DATA)].max(initial=0)) for one in programs]
    return max(lengths, default=0)


def buffer_bytes(job: Job, largest_bytes: int) -> int:
    """What a rank's buffers take: each op in flight has one that moves and one that is made or compared."""
    return _BUFFERS_PER_OP * largest_bytes * job.io.queue_depth * job.io.threads


def memory_bytes(job: Job, world: World, sums: Totals, facts: Facts) -> int:
    """What the ranks of the fullest node need together."""
    largest = largest_op_bytes(job, world, sums, facts)
    return world.most_ranks_per_node * (RANK_BYTES + buffer_bytes(job, largest) + host_bytes(job))


def _memory(job: Job, world: World, need: int) -> Finding:
    ranks = world.most_ranks_per_node
    held = to_hold_bytes(job.io.memory_pressure) if job.io.memory_pressure else 0
    available = max(0, available_bytes() - held)
    under = f" when [io] memory_pressure holds {bytes_text(held)}" * bool(held)
    sentence = f"{bytes_text(need)} for {ranks} ranks on a node, {bytes_text(available)} available here{under}"
    if need > available:
        hint = 'lower it with [io] transfer = "16MiB", or put fewer ranks on a node'
        return Finding("memory", "stops", f"not enough memory: {sentence}", hint)
    return Finding("memory", "fine", sentence)


def _file_system(job: Job, mount: Mount) -> Finding:
    sentence = f"{mount.type} from {mount.source} at {mount.mount_point}"
    if mount.type in MEMORY_TYPES and "tmpfs" not in job.storm.allow:
        return Finding(
            "file system",
            "warning",
            f"{sentence} lives in memory: the record will be invalid",
            'name another --dir, or say that you mean it: --set storm.allow=["tmpfs", "warm"]',
        )
    return Finding("file system", "fine", sentence)
