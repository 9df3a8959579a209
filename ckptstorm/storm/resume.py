"""A storm taken up again after it lost a rank: a new world recovers as the framework would, and ends the record."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from ckptstorm.cluster.comm import Cluster
from ckptstorm.errors import LaunchError, PlaceError
from ckptstorm.filesystems.mount import mount_of
from ckptstorm.record import settings
from ckptstorm.record.record import StormRecord
from ckptstorm.storm import ground
from ckptstorm.storm.conduct import Conducted, oversee
from ckptstorm.storm.lost_storm import has_planted_end, what_is_left
from ckptstorm.storm.orders import Orders
from ckptstorm.storm.outcome import Outcome
from ckptstorm.storm.recorder import Recorder
from ckptstorm.storm.session import order, stations, tell
from ckptstorm.storm.watch import StopSignals


def last_started(record: StormRecord) -> int:
    """The last round whose save may have been begun: the one after the last that the journal tells of."""
    first = 1 - settings.count(record.job, "storm", "warmup")
    return max((phase.round + 1 for phase in record.phases), default=first)


def conduct_recovery(cluster: Cluster, directory: str, lost_ns: int, *, keeps_files: bool) -> Conducted:
    """Recover; on rank 0, with all others in `session.serve`.

    Args:
        cluster: as many ranks as the storm had.
        directory: the directory under test.
        lost_ns: when the loss was noticed, on this node's monotonic clock; 0 when nobody knows.
        keeps_files: whether the checkpoints stay.

    Raises:
        StormError: nothing is left to recover, the world has another size, or a rank was lost again.
    """
    directory = os.path.abspath(directory)
    manifest, job, record = what_is_left(directory)
    if cluster.rank_count != manifest.rank_count:
        raise LaunchError(
            f"storm {manifest.storm_id} had {manifest.rank_count} ranks, and {cluster.rank_count} were started",
            f"start {manifest.rank_count}",
        )
    tell(cluster, {"tell": "station"})
    hosts = [station.host for station in stations(cluster)]
    signals = StopSignals()
    claimed = ground.adopt(directory)
    recorder = Recorder.going_on(record, Path(manifest.partial))
    orders = Orders(
        manifest.storm_id,
        manifest.seed,
        job,
        directory,
        int(record.asked["io.block_size"][1]),
        settings.engine_name(record),
        keeps_files,
        mount_of(directory),
        hosts[0],
        manifest.partial,
        "recover",
        started=last_started(record),
        lost_ns=lost_ns,
    )
    try:
        order(cluster, orders)
        outcome = oversee(cluster, orders, signals, recorder, hosts, None)
    except PlaceError:
        ground.keep(claimed)
        raise
    return _finish(claimed, recorder, outcome, is_planted=has_planted_end(job))


def _finish(claimed: ground.Ground, recorder: Recorder, outcome: Outcome, *, is_planted: bool) -> Conducted:
    environment = recorder.record.environment | {"ended": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    record = replace(recorder.record, environment=environment)
    if outcome == Outcome.STOPPED:
        record = replace(record, ended="interrupted", ended_because="a signal ended the recovery")
    elif is_planted:
        record = replace(record, ended="recovered")
    is_clean = ground.give_back(claimed)
    folder = recorder.finish(record)
    return Conducted(record, folder, "" if is_clean else claimed.directory, recorder.problem)
