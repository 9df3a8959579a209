"""Rank 0 conducts a storm: check, claim, order, record, clean up, judge."""

from __future__ import annotations

import os
import platform
import secrets
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ckptstorm.cluster.comm import Cluster
from ckptstorm.cluster.placement import Station
from ckptstorm.errors import LostRankError, PlaceError
from ckptstorm.filesystems import adapter_of
from ckptstorm.filesystems.contract import Adapter
from ckptstorm.job import Job, to_builtins
from ckptstorm.load_tables import directory_of
from ckptstorm.model.parallel import World
from ckptstorm.record.record import StormRecord
from ckptstorm.storm import ground, halves
from ckptstorm.storm.check import Preflight, check
from ckptstorm.storm.circumstances import Request, blank_record, directories, targets_of
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.forebodings import Forebodings
from ckptstorm.storm.live_metrics import LiveMetrics, both
from ckptstorm.storm.lookout import LookOut, Names, look_out
from ckptstorm.storm.manifest import Manifest
from ckptstorm.storm.naming import OpNamer
from ckptstorm.storm.orders import Orders
from ckptstorm.storm.outcome import Outcome
from ckptstorm.storm.recorder import Recorder, partial_folder
from ckptstorm.storm.session import order, stations, take_part, tell
from ckptstorm.storm.striping import set_stripe
from ckptstorm.storm.tested import Tested, check_more
from ckptstorm.storm.watch import LookOut as Look
from ckptstorm.storm.watch import StopSignals

Ended = Literal["complete", "storage_failed", "lost_rank", "interrupted"]


@dataclass(frozen=True, slots=True)
class Conducted:
    """A finished storm.

    Attributes:
        record: everything known.
        folder: its result folder; None when it could not be written, and `problem` says why.
        left_behind: the directory whose files were left (kept on purpose, or not removable); "" when clean.
        more_left: further directories under test of which the same is true.
    """

    record: StormRecord
    folder: Path | None
    left_behind: str
    problem: str = ""
    more_left: tuple[str, ...] = ()


class AbandonedError(LostRankError):
    """A rank is lost: the ranks cannot meet any more, so the caller must abort them."""

    def __init__(self, error: LostRankError, partial: Path | None) -> None:
        known = f"what is known: ckptstorm report {shlex.quote(str(partial))}" if partial else ""
        super().__init__(str(error), "\n".join(line for line in (known, error.hint) if line))


def conduct(cluster: Cluster, request: Request) -> Conducted:
    """Run the storm; on rank 0, with all others in `session.serve`.

    Raises:
        StormError: refused before the first byte (nothing was created then).
        AbandonedError: a rank stopped making progress; the partial record is written.
    """
    directory = os.path.abspath(request.directory)
    placed = _stations(cluster)
    hosts = [station.host for station in placed]
    world = World(cluster.rank_count, tuple(int(node) for node in cluster.node_of_rank))
    part = halves.part_of(request.half, request.job, directory, cluster.rank_count)
    request = replace(request, job=part.job)
    reading = halves.reading_of(part, placed)
    planned = part.job if reading is None else halves.as_own(part.job)
    preflight = halves.preflight_of(check(planned, world, directory, request.results), part.half)
    preflight.raise_if_stopped()
    more = check_more(part.job, world, preflight.totals, (directory, *request.more), request.spread)
    _make_results(request.results)
    storm_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    signals = StopSignals()  # before anything is made: a signal from here on ends the storm in order
    metrics = LiveMetrics(request.metrics, directory, storm_id, cluster.rank_count) if request.metrics else None
    seed = part.saved.seed if part.saved is not None else secrets.randbits(63)
    mark = replace(_manifest(storm_id, part.job, cluster), seed=seed, partial=_partial(request.results, storm_id))
    claimed = ground.adopt(directory) if reading else ground.claim(directory, mark)
    others: list[ground.Ground] = []
    try:
        others += [ground.claim(one.directory, claimed.manifest) for one in more]
        striped = {} if reading else _set_stripes(part.job, preflight.adapter, directory, more)
        recorder = Recorder(blank_record(storm_id, request, preflight, cluster, placed), request.results)
        recorder.add_facts(halves.facts(part, placed) | {"stripe": striped})
        orders = replace(
            _orders(storm_id, request, preflight, _partial(request.results, storm_id)),
            seed=seed, job=planned, host=hosts[0], half=part.half, reading=reading, more=more,
        )  # fmt: skip
        recorder.add_facts(directories(orders, cluster))
        order(cluster, orders)
        if metrics is not None:
            recorder.tell = metrics.take
        outcome = oversee(cluster, orders, signals, recorder, hosts, metrics)
    except PlaceError:
        _ = [ground.give_back(other) for other in others]
        halves.let_go(claimed, part)
        raise
    finally:
        if metrics is not None:
            metrics.end()
    if recorder.saved:
        saving = halves.Saving(tuple(station.machine for station in placed), recorder.saved)
        recorder.problem = halves.leave(claimed.root_fd, recorder.record, orders.seed, str(recorder.folder), saving)
    left = [other.directory for other in others if not ground.give_back(other)]
    return _finish(claimed, recorder, part, outcome, left)


def _orders(storm_id: str, request: Request, preflight: Preflight, partial: str) -> Orders:
    """What the command line and the check have settled; the rest is filled in by the caller."""
    return Orders(
        storm_id,
        seed=0,
        job=request.job,
        directory=os.path.abspath(request.directory),
        block_size_bytes=preflight.block_size_bytes,
        engine=preflight.engine,
        keeps_files=request.keeps_files,
        mount=preflight.mount,
        host="",
        partial=partial,
        spread=request.spread,
    )


def _set_stripes(job: Job, adapter: Adapter, directory: str, more: tuple[Tested, ...]) -> dict[str, str | int]:
    """On every directory under test; what is in effect in the first."""
    for one in more:
        set_stripe(job, adapter_of(one.mount), one.directory)
    return set_stripe(job, adapter, directory)


def _partial(results: str, storm_id: str) -> str:
    return os.path.abspath(partial_folder(results, storm_id))


def _make_results(results: str) -> None:
    """The results directory, before anything else is made: a storm whose record cannot be kept is not worth running."""
    try:
        os.makedirs(results, exist_ok=True)
    except OSError as error:
        raise PlaceError(f"--results {results}: cannot be made: {error.strerror}", "name another --results") from None


def _stations(cluster: Cluster) -> list[Station]:
    """Where each rank runs: asked for before anything else, on every rank by `session.serve`'s first order."""
    tell(cluster, {"tell": "station"})
    return stations(cluster)


def oversee(
    cluster: Cluster,
    orders: Orders,
    signals: StopSignals,
    recorder: Recorder,
    hosts: list[str],
    metrics: LiveMetrics | None,
) -> Outcome:
    """Take part in a storm as rank 0, and look out for lost ranks.

    Raises:
        AbandonedError: one was lost; the last words are in the journal.
    """
    look_outs: list[LookOut] = []

    def make(crew: Crew) -> Look:
        namer = OpNamer(orders.job, crew.world, orders.block_size_bytes)
        names = Names(lambda rank: hosts[rank], namer.name)
        look_outs.append(look_out(orders.job, names))
        look = both(Forebodings(names, recorder.partial).look, look_outs[0])
        return look if metrics is None else both(metrics.look, look)

    try:
        return take_part(cluster, orders, signals, recorder, make)
    except LostRankError as error:
        raise AbandonedError(error, recorder.last_words(str(error))) from None
    finally:
        for one in look_outs:
            one.end_line()
            recorder.take_waits(one.patience.waits)


def _manifest(storm_id: str, job: Job, cluster: Cluster) -> Manifest:
    steps = ground.step_names(job.storm.warmup + job.storm.rounds, job.layout.overwrite)
    steps = steps if job.saves else ()
    distinct = tuple(dict.fromkeys((*steps, *(directory_of(load) for load in job.load))))
    return Manifest(
        storm_id, to_builtins(job), cluster.rank_count, distinct, platform.node(), os.getpid(), made_count=0
    )


def _finish(
    claimed: ground.Ground, recorder: Recorder, part: halves.Part, outcome: Outcome, left: list[str]
) -> Conducted:
    ended, because = _ending(outcome, recorder.record)
    environment = recorder.record.environment | {"ended": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    environment["file_system"] = environment["file_system"] | {"targets_after": targets_of(claimed.directory)}
    record = replace(recorder.record, ended=ended, ended_because=because, environment=environment)
    record = halves.joined(record, part)
    is_clean = ground.give_back(claimed)
    folder = recorder.finish(record)
    return Conducted(record, folder, "" if is_clean else claimed.directory, recorder.problem, tuple(left))


def _ending(outcome: Outcome, record: StormRecord) -> tuple[Ended, str]:
    if outcome == Outcome.STOPPED:
        return "interrupted", "a signal (Ctrl-C, SIGTERM, or a time limit near) ended the storm"
    if outcome == Outcome.FAILED:
        failures = [failure for phase in record.phases for failure in phase.failures]
        first = failures[0] if failures else None
        told = (
            f"{first.errno} at {first.op} of {first.file} on rank {first.rank} ({first.host})" if first else "an error"
        )
        return "storage_failed", f"the storage answered {told}"
    return "complete", ""
