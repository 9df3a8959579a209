"""How long a storm will take: the plan's bytes over the speed that the site is thought to have, with a margin."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ckptstorm.batch.site import Site
from ckptstorm.clock import NS_PER_S
from ckptstorm.job import Job
from ckptstorm.load_tables import Load
from ckptstorm.model.parallel import World
from ckptstorm.plan import totals
from ckptstorm.record.words import counted
from ckptstorm.units import bytes_text, rate_text

#: Assumed of a site that does not say, for each node: slow on purpose, since too short a limit costs a storm.
ASSUMED_BYTES_PER_S_PER_NODE = 200 * 10**6
#: Start-up, and what a round needs besides moving bytes (barriers, clean-up): generous, and small beside any limit.
START_SECONDS, ROUND_SECONDS = 120, 10
#: Allowed for a load without a duration, in each round.
UNKNOWN_LOAD_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A time limit, and how it came about.

    Attributes:
        minutes: whole ones, rounded up.
        sentence: for the script's comment.
    """

    minutes: int
    sentence: str


def estimate(job: Job, world: World, site: Site) -> Estimate:
    """The time limit of one storm: the site's, or an estimate.

    Raises:
        JobError: the job cannot be on this world.
    """
    allocation, lead_s = site.allocation, site.allocation.signal_before / NS_PER_S
    sums = totals(job, world)
    save_bytes, restore_bytes = sums.data_bytes + sums.commit_bytes, sums.restore.data_bytes
    if allocation.time_limit:
        minutes = math.ceil(allocation.time_limit / NS_PER_S / 60)
        return Estimate(minutes, f"{minutes} min: the site's own limit")
    assumed = ASSUMED_BYTES_PER_S_PER_NODE * world.node_count
    save_rate = int(site.storage.save_bytes_per_s or assumed)
    restore_rate = int(site.storage.restore_bytes_per_s or site.storage.save_bytes_per_s or assumed)
    rounds = job.storm.warmup + job.storm.rounds
    loads_s = sum(_load_seconds(load) for load in job.load)
    moving_s = max(save_bytes / save_rate + restore_bytes / restore_rate + loads_s, job.storm.interval / NS_PER_S)
    work_s = rounds * (moving_s + ROUND_SECONDS)
    if job.storm.duration:  # then `rounds` is only the most there may be
        work_s = min(work_s, (job.storm.warmup + 1) * (moving_s + ROUND_SECONDS) + job.storm.duration / NS_PER_S)
    seconds = allocation.margin * (START_SECONDS + work_s) + lead_s
    minutes = max(math.ceil(seconds / 60), math.ceil(lead_s / 60) + 1)
    source = (
        "as the site says" if site.storage.save_bytes_per_s else "assumed: [storage] save_bytes_per_s says it better"
    )
    of_loads = f"{loads_s:g} s of loads a round, " if job.load else ""
    return Estimate(
        minutes,
        f"{minutes} min: {counted(rounds, 'round')} of {bytes_text(save_bytes)} saved at {rate_text(save_rate)} and "
        f"{bytes_text(restore_bytes)} restored at {rate_text(restore_rate)} ({source}), {of_loads}"
        f"times {allocation.margin:g}, and {lead_s:g} s for the signal",
    )


def _load_seconds(load: Load) -> float:
    """A load with a duration takes that; of one that is over when its work is done, nobody knows."""
    if load.duration is None:
        return UNKNOWN_LOAD_SECONDS
    return (int(load.duration) + int(load.ramp)) / NS_PER_S
