"""The small frames, one row a storm or a phase: numbers as `record.summary` defines them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ckptstorm.measure.rows import Phase
from ckptstorm.record import settings
from ckptstorm.record.receipts import receipts
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.rounds import over_rounds
from ckptstorm.record.stragglers import late
from ckptstorm.record.summary import PhaseSummary, summarize
from ckptstorm.record.verdict import verdict
from ckptstorm.report.frame_columns import COLUMNS


def storm(folder: Path, record: StormRecord) -> pd.DataFrame:
    """The row of one storm."""
    judged = verdict(record)
    job, environment = record.job, record.environment
    row: dict[str, Any] = {
        "storm_id": record.storm_id,
        "path": str(folder),
        "valid": judged.valid,
        "met": judged.met,
        "exit_code": judged.exit_code,
        "reasons": "\n".join(judged.reasons),
        "ended": record.ended,
        "simulated": record.simulated,
        "model": settings.text(job, "model", "name") or settings.text(job, "model", "architecture"),
        "layout": settings.text(job, "layout", "name"),
        "sharding": settings.text(job, "parallel", "sharding"),
        "engine": settings.engine_name(record),
        "durability": settings.text(job, "io", "durability"),
        "ranks": len(record.node_of_rank),
        "nodes": len(record.nodes),
        "mount_type": settings.mount_type(record),
        "directory": settings.text(environment, "directory"),
        "launcher": settings.text(environment, "launcher"),
        "started": settings.text(environment, "started"),
        "version": settings.text(environment, "versions", "ckptstorm"),
        **_answers(record),
        "receipts": " ".join(f"{name}={receipt.state}" for name, receipt in receipts(record).items()),
    }
    return pd.DataFrame([row], columns=list(COLUMNS["storms"]))


def _answers(record: StormRecord) -> dict[str, float]:
    """Medians over rounds of save and restore; not a number where no round was finished."""
    summaries = summarize(record)
    found: dict[str, float] = {}
    for phase in (Phase.SAVE, Phase.RESTORE):
        rounds = over_rounds(summaries, phase)
        found[f"{phase.word}_rounds"] = rounds.round_count if rounds else 0
        found[f"{phase.word}_seconds"] = rounds.seconds.median if rounds else float("nan")
        found[f"{phase.word}_seconds_worst"] = rounds.seconds.most if rounds else float("nan")
        found[f"{phase.word}_bytes_per_s"] = rounds.bytes_per_s.median if rounds else float("nan")
        found[f"{phase.word}_iops"] = rounds.iops.median if rounds else float("nan")
    return found


def phases(record: StormRecord) -> pd.DataFrame:
    """One row a phase and round."""
    pairs = zip(summarize(record), record.phases, strict=True)
    return pd.DataFrame([_phase(record, *pair) for pair in pairs], columns=list(COLUMNS["phases"]))


def _phase(record: StormRecord, summary: PhaseSummary, phase: PhaseRecord) -> dict[str, Any]:
    return asdict(summary) | {
        "storm_id": record.storm_id,
        "phase": phase.word,
        "is_measured": summary.is_measured,
        "is_finished": summary.is_finished,
        "straggler_count": int(late(phase).sum()),
        "drain_ns": phase.drain_ns,
        "resident_share": phase.resident_share,
    }


def clock(record: StormRecord) -> pd.DataFrame:
    """One row a phase and round."""
    pairs = zip(summarize(record), record.phases, strict=True)
    return pd.DataFrame([_clock(record, *pair) for pair in pairs], columns=list(COLUMNS["clock"]))


def _clock(record: StormRecord, summary: PhaseSummary, phase: PhaseRecord) -> dict[str, Any]:
    check = summary.clock
    return {
        "storm_id": record.storm_id,
        "phase": phase.word,
        "round": phase.round,
        "skew_median_s": summary.skew_median_s,
        "skew_max_s": summary.skew_max_s,
        "clock_count": len(phase.clocks),
        "offset_ns_most": int(np.abs(phase.clocks["offset_ns"]).max(initial=0)),
        "drift_ns_most": int(np.abs(phase.clocks["drift_ns"]).max(initial=0)),
        "uncertainty_ns": phase.clock_uncertainty_ns,
        "rows_ns": check.rows_ns,
        "barrier_to_barrier_ns": check.barrier_to_barrier_ns,
        "barrier_cost_ns": phase.barrier_cost_ns,
        "gap_ns": check.gap_ns if check.is_taken else 0,
        "allowed_ns": check.allowed_ns,
        "agrees": check.agrees,
    }
