"""Asynchronous saves in numbers: what training waited for, and the drain behind it, never added up."""

from __future__ import annotations

from dataclasses import dataclass

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.histogram import order_statistic
from ckptstorm.record.record import PhaseRecord


@dataclass(frozen=True, slots=True)
class Staged:
    """One staged save. Ranks train in step, so the slowest of them is what training waits for.

    Attributes:
        blocked_seconds: training stood still, slowest rank: back-pressure and the copy.
        blocked_median_s: the median rank.
        backpressure_seconds: of that, waiting for the drain of the save before.
        room_seconds: of that, waiting for room in the staging memory.
        drain_seconds: from the first release until the last rank was durable.
        copied_bytes: of all ranks.
        copy_bytes_per_s: of all ranks together, while the slowest copied (waits for room are inside).
        step_count: whole training steps that every rank made while the save drained.
        stall_gpu_seconds: blocked, all ranks together.
    """

    blocked_seconds: float
    blocked_median_s: float
    backpressure_seconds: float
    room_seconds: float
    drain_seconds: float
    copied_bytes: int
    copy_bytes_per_s: float
    step_count: int
    stall_gpu_seconds: float


def staged(phase: PhaseRecord, drain_ns: int) -> Staged | None:
    """The numbers of a staged save; None of any other phase.

    Args:
        phase: of all ranks.
        drain_ns: the time of the save, release to durable.
    """
    pace = phase.pace
    if not len(pace) or not pace["copied_bytes"].any():
        return None
    copying_ns = int((pace["blocked_ns"] - pace["backpressure_ns"]).max())
    copied = int(pace["copied_bytes"].sum())
    return Staged(
        int(pace["blocked_ns"].max()) / NS_PER_S,
        order_statistic(pace["blocked_ns"], 0.5) / NS_PER_S,
        int(pace["backpressure_ns"].max()) / NS_PER_S,
        int(pace["room_ns"].max()) / NS_PER_S,
        drain_ns / NS_PER_S,
        copied,
        copied * NS_PER_S / copying_ns if copying_ns > 0 else 0.0,
        int(pace["step_count"].min()),
        int(pace["blocked_ns"].sum()) / NS_PER_S,
    )
