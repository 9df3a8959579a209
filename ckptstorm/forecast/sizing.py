"""A measured storm set against a cluster that fails: what saves and restores cost a job, and what would do.

Times are taken as measured: a storm of 64 ranks says what 64 GPUs wait. The answer carries both counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckptstorm.errors import PlaceError
from ckptstorm.forecast import goodput
from ckptstorm.forecast.goodput import Costs, Shares
from ckptstorm.measure.rows import Phase
from ckptstorm.record.record import StormRecord
from ckptstorm.record.rounds import measured
from ckptstorm.record.summary import PhaseSummary, summarize

#: Times between failures that a save or a restart may take: e^-20 of them succeed, once in 485 million.
_HOPELESS = 20
HOURS_A_DAY, S_PER_HOUR = 24, 3600
#: Per-GPU mean time to failure in MLCommons' storage work; Llama 3's 419 unexpected interruptions in 54 days on
#: 16,384 GPUs (arXiv 2407.21783) make 50,677 h.
MTTF_H = 50_000.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The cluster that is asked about.

    Attributes:
        gpu_count: of the job.
        mttf_h: mean time to failure of one GPU, hours.
        restart_s: what a restart takes besides the measured restore: noticing, a new node, the program's start.
        blocking_s: what training is held for by an asynchronous save: the copy out of the GPU; None: as the
            record's staged saves measured it, and nothing when it has none.
        interval_s: an interval to judge as well; None for none.
        overhead: the share of time that saving and lost work may take.
        price_an_hour: of one GPU; 0 when money is not asked for.
    """

    gpu_count: int
    mttf_h: float = MTTF_H
    restart_s: float = 0.0
    blocking_s: float | None = None
    interval_s: float | None = None
    overhead: float = 0.03
    price_an_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to choose the interval, and what comes of it.

    Attributes:
        name: key of `goodput.FORMULAS`, "asked", or "slowest": the best interval if every save and restore took as
            long as the slowest measured one.
        shares: of the job's time.
    """

    name: str
    shares: Shares


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What storage must do so that checkpoints cost no more than the stated overhead; bytes per second.

    Attributes:
        way: "synchronous" or "asynchronous".
        interval_s: at which interval; None: at the one that wastes least, which depends on the bandwidth.
        bytes_per_s: needed; 0 when no bandwidth is enough.
    """

    way: str
    interval_s: float | None
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer.

    Attributes:
        asked: the cluster.
        costs: measured saves and restarts, and the failures.
        restore_s: the restores alone, measured.
        blocking_s: what training is held for by an asynchronous save: the mean of those measured, or as asked.
        is_staged: whether the record's own saves were asynchronous.
        bytes_a_save: of all ranks.
        bytes_per_s: median of the measured saves.
        rank_count: of the storm.
        synchronous, asynchronous: the choices, best first.
        needed: bandwidths for the stated overhead.
    """

    asked: Asked
    costs: Costs
    restore_s: tuple[float, ...]
    blocking_s: float
    is_staged: bool
    bytes_a_save: int
    bytes_per_s: float
    rank_count: int
    synchronous: tuple[Choice, ...]
    asynchronous: tuple[Choice, ...]
    needed: tuple[Bandwidth, ...]

    def gpu_hours_a_day(self, share: float) -> float:
        """A share of the job's time, as GPU-hours a day."""
        return share * self.asked.gpu_count * HOURS_A_DAY


def size(record: StormRecord, asked: Asked) -> Sizing:
    """Size a record's storage for a cluster.

    Raises:
        PlaceError: no measured round of the record was finished.
    """
    saves, restores = _finished(record, Phase.SAVE), _finished(record, Phase.RESTORE)
    costs = Costs(
        tuple(max(each.committed_seconds, each.seconds) for each in saves),
        tuple(each.seconds + asked.restart_s for each in restores),
        asked.mttf_h * S_PER_HOUR / asked.gpu_count,
    )
    _refuse_hopeless(costs)
    by_rate = sorted(each.bytes_per_s for each in saves)
    held = [each.staged.blocked_seconds for each in saves if each.staged is not None]
    blocking_s = asked.blocking_s if asked.blocking_s is not None else _mean(tuple(held)) if held else 0.0
    bytes_a_save = max(each.bytes for each in saves)
    return Sizing(
        asked,
        costs,
        tuple(each.seconds for each in restores),
        blocking_s,
        bool(held),
        bytes_a_save,
        by_rate[(len(by_rate) - 1) // 2],
        len(record.node_of_rank),
        _synchronous(costs, asked),
        _asynchronous(costs, asked, blocking_s),
        _needed(costs, asked, blocking_s, bytes_a_save),
    )


def _refuse_hopeless(costs: Costs) -> None:
    """A job that fails tens of times while it saves or restarts never gets anywhere, and no interval helps."""
    longest_s = max(*costs.save_s, *costs.restart_s)
    if longest_s > _HOPELESS * costs.mtbf_s:
        raise PlaceError(
            f"the job fails once in {costs.mtbf_s:.3g} s, and a save or restart takes up to {longest_s:.3g} s: it would"
            " never get through",
            "name fewer --gpus, a longer --mttf (hours of one GPU), or a shorter --restart",
        )


def _finished(record: StormRecord, phase: Phase) -> list[PhaseSummary]:
    found = [each for each in measured(summarize(record), phase) if each.is_finished]
    if not found:
        raise PlaceError(
            f"{record.storm_id}: no {phase.word} of a measured round was finished, so there is no time to reckon with",
            "run the storm again until it ends well",
        )
    return found


def _slowest(costs: Costs) -> Costs:
    return Costs((max(costs.save_s),), (max(costs.restart_s),), costs.mtbf_s)


def _mean(times: tuple[float, ...]) -> float:
    return sum(times) / len(times)


def _synchronous(costs: Costs, asked: Asked) -> tuple[Choice, ...]:
    save_s = _mean(costs.save_s)
    intervals = {
        "least": goodput.least(costs),
        "daly": goodput.daly(save_s, costs.mtbf_s),
        "young": goodput.young(save_s, costs.mtbf_s),
        "availability": goodput.availability(save_s, _mean(costs.restart_s), costs.mtbf_s),
    }
    if asked.interval_s is not None:
        intervals["asked"] = asked.interval_s
    made = [Choice(name, goodput.synchronous(costs, interval_s)) for name, interval_s in intervals.items()]
    slow = _slowest(costs)
    return (*made, Choice("slowest", goodput.synchronous(slow, goodput.least(slow))))


def _asynchronous(costs: Costs, asked: Asked, blocking_s: float) -> tuple[Choice, ...]:
    least_s, slow = goodput.asynchronous_least(costs, blocking_s), _slowest(costs)
    made = [Choice("least", goodput.asynchronous(costs, blocking_s, least_s))]
    if asked.interval_s is not None and asked.interval_s + blocking_s >= max(costs.save_s):
        made.append(Choice("asked", goodput.asynchronous(costs, blocking_s, asked.interval_s)))
    slow_s = goodput.asynchronous_least(slow, blocking_s)
    return (*made, Choice("slowest", goodput.asynchronous(slow, blocking_s, slow_s)))


def _needed(costs: Costs, asked: Asked, blocking_s: float, bytes_a_save: int) -> tuple[Bandwidth, ...]:
    sync_s = goodput.synchronous_save_s(asked.overhead, costs.mtbf_s)
    async_s = goodput.asynchronous_save_s(asked.overhead, blocking_s, costs.mtbf_s)
    made = [
        Bandwidth("synchronous", None, bytes_a_save / sync_s if sync_s else 0.0),
        Bandwidth("asynchronous", None, bytes_a_save / async_s if async_s else 0.0),
    ]
    if asked.interval_s is not None:
        made += [
            Bandwidth("synchronous", asked.interval_s, bytes_a_save / (asked.overhead * asked.interval_s)),
            Bandwidth("asynchronous", asked.interval_s, bytes_a_save / asked.interval_s),
        ]
    return tuple(made)
