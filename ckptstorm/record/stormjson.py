"""storm.json: the summary that people and programs read, and the way back for what is text in a record.

Numbers are written for readers and not read back: `load` computes them anew from storm.h5, so a
figure that somebody changed in the summary changes nothing in a report.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Literal

import msgspec

from ckptstorm.clock import NS_PER_S
from ckptstorm.errors import PlaceError
from ckptstorm.measure.rows import Phase
from ckptstorm.measure.traffic import Share, Traffic
from ckptstorm.record import checks, tested
from ckptstorm.record.arrays import Arrays
from ckptstorm.record.attribution import attribution
from ckptstorm.record.beside import Beside
from ckptstorm.record.definitions import DEFINITIONS
from ckptstorm.record.load import summarize_actions
from ckptstorm.record.receipts import receipts
from ckptstorm.record.record import SCHEMA, Failure, MismatchSeen, Node, PhaseRecord, StormRecord
from ckptstorm.record.rounds import RoundsSummary, measured, over_rounds, trend_of
from ckptstorm.record.summary import PhaseSummary, summarize
from ckptstorm.record.verdict import limits, verdict


class PhaseTexts(msgspec.Struct, frozen=True):
    """What of a phase is text: error classes, mismatches, counters by their names; of loads their words."""

    failures: tuple[Failure, ...] = ()
    mismatches: tuple[MismatchSeen, ...] = ()
    traffic: tuple[Traffic, ...] = ()
    due_bytes: int = -1
    name: str = ""
    load: str = ""
    actions: tuple[str, ...] = ()
    beside: Beside | None = None
    shares: tuple[Share, ...] = ()


class Told(msgspec.Struct, frozen=True):
    """The part of storm.json that is read back."""

    schema: int
    storm_id: str
    h5_sha256: str
    job: dict[str, Any]
    asked: dict[str, tuple[str, str]]
    environment: dict[str, Any]
    nodes: tuple[Node, ...]
    phases: tuple[PhaseTexts, ...]
    ended: Literal["complete", "storage_failed", "lost_rank", "interrupted", "recovered"]
    ended_because: str
    simulated: bool


class _Header(msgspec.Struct, frozen=True):
    schema: int


def to_json(record: StormRecord) -> dict[str, Any]:
    """The summary of a record as plain values: the content of storm.json, and of `report --json`."""
    summaries = summarize(record)
    judged = verdict(record)
    value = {
        "schema": SCHEMA,
        "storm_id": record.storm_id,
        "verdict": asdict(judged),
        "receipts": {name: asdict(receipt) for name, receipt in receipts(record).items()},
        "limits": [asdict(limit) | {"met": limit.is_met, "margin": limit.margin} for limit in limits(record)],
        "world": {"ranks": len(record.node_of_rank), "nodes": len(record.nodes)},
        "rounds": _all_rounds_json(summaries),
        "attribution": {
            phase.word: asdict(found) | {"phase": phase.word}
            for phase in (Phase.SAVE, Phase.RESTORE)
            if (found := attribution(record, phase)) is not None
        },
        "phases": [_phase_json(*pair) for pair in zip(summaries, record.phases, strict=True)],
        "directories": tested.to_json(record),
        "job": record.job,
        "asked": record.asked,
        "environment": record.environment,
        "nodes": [asdict(node) for node in record.nodes],
        "ended": record.ended,
        "ended_because": record.ended_because,
        "simulated": record.simulated,
        "definitions": DEFINITIONS,
    }
    plain: dict[str, Any] = _printable(msgspec.to_builtins(value, enc_hook=str, str_keys=True))
    return plain


def encode(record: StormRecord, h5_sha256: str) -> bytes:
    """The bytes of storm.json, indented for people."""
    return msgspec.json.format(msgspec.json.encode(to_json(record) | {"h5_sha256": h5_sha256}), indent=1) + b"\n"


def decode(content: bytes, path: str) -> Told:
    """What storm.json tells, checked for types.

    Raises:
        PlaceError: cut off, no JSON, too deeply nested, of another schema, or a key is missing or wrong.
    """
    try:
        checks.schema(msgspec.json.decode(content, type=_Header).schema, path)
        return msgspec.json.decode(content, type=Told)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise PlaceError(f"{path} is damaged: {why}", "copy the result folder again, or run the storm again") from error


def to_record(told: Told, arrays: Arrays, job_text: str, path: str) -> StormRecord:
    """Put a record together from its three files.

    Raises:
        PlaceError: the files do not belong together.
    """
    if len(told.phases) != len(arrays.phases):
        raise PlaceError(
            f"{path} is damaged: it tells of {len(told.phases)} phases, storm.h5 of {len(arrays.phases)}",
            "copy the result folder again, or run the storm again",
        )
    pairs = zip(arrays.phases, told.phases, strict=True)
    return StormRecord(
        storm_id=told.storm_id,
        job=told.job,
        job_text=job_text,
        asked=told.asked,
        environment=told.environment,
        nodes=told.nodes,
        node_of_rank=arrays.node_of_rank,
        phases=tuple(_with_texts(phase, text) for phase, text in pairs),
        ended=told.ended,
        ended_because=told.ended_because,
        simulated=told.simulated,
        schema=told.schema,
    )


def _with_texts(phase: PhaseRecord, text: PhaseTexts) -> PhaseRecord:
    load = phase.load
    if load is not None:
        words = (*text.actions, *("unknown" for _ in load.actions))[: len(load.actions)]
        load = replace(load, load=text.load, actions=words, beside=text.beside)
    of_load = ("load", "actions", "beside")
    told = {name: value for name, value in msgspec.structs.asdict(text).items() if name not in of_load}
    return replace(phase, load=load, **told)


def _traffic_json(traffic: Traffic) -> dict[str, Any]:
    """Counters with the rates that they come to between the two readings."""
    seconds = (traffic.ended_ns - traffic.begun_ns) / NS_PER_S
    rates = {
        f"{name}_bytes_per_s": moved / seconds
        for name, moved in (("read", traffic.read_bytes), ("write", traffic.write_bytes))
        if moved >= 0 and seconds > 0
    }
    return asdict(traffic) | rates


def _phase_json(summary: PhaseSummary, phase: PhaseRecord) -> dict[str, Any]:
    check = summary.clock
    return asdict(summary) | {
        "phase": phase.word,
        "name": phase.name,
        **_load_json(summary, phase),
        "clock": asdict(check) | {"agrees": check.agrees},
        "planned_sync_count": phase.planned_sync_count,
        "planned_op_count": phase.planned_op_count,
        "drain_ns": phase.drain_ns,
        "resident_share": phase.resident_share,
        "due_bytes": phase.due_bytes,
        "traffic": [_traffic_json(each) for each in phase.traffic],
        "shares": [asdict(each) for each in phase.shares],
        "failures": [asdict(failure) for failure in phase.failures],
        "mismatches": [asdict(mismatch) for mismatch in phase.mismatches],
    }


def _load_json(summary: PhaseSummary, phase: PhaseRecord) -> dict[str, Any]:
    """What only a load's stage has: its actions, their numbers for nodes and seconds."""
    if phase.load is None:
        return {}
    load = phase.load
    return {
        "load": load.load,
        "actions": load.actions,
        "beside": None if load.beside is None else _beside_json(load.beside),
        "per_action": [asdict(action) for action in summarize_actions(load, summary.seconds)],
        "per_second": {"op_count": load.seconds[:, 0].tolist(), "bytes": load.seconds[:, 1].tolist()},
    }


def _beside_json(beside: Beside) -> dict[str, Any]:
    rates = {name: getattr(beside, name) for name in ("declared_per_s", "achieved_per_s", "behind_count", "is_held")}
    return asdict(beside) | rates


def _all_rounds_json(summaries: tuple[PhaseSummary, ...]) -> dict[str, Any]:
    always, sometimes = (Phase.SAVE, Phase.RESTORE), (Phase.DELETE, Phase.QUIET_SAVE)
    found = {phase: over_rounds(summaries, phase) for phase in (*always, *sometimes)}
    kept = {phase: rounds for phase, rounds in found.items() if rounds is not None or phase in always}
    return {phase.word: _rounds_json(rounds, measured(summaries, phase)) for phase, rounds in kept.items()}


def _rounds_json(rounds: RoundsSummary | None, summaries: tuple[PhaseSummary, ...]) -> dict[str, Any] | None:
    if rounds is None:
        return None
    names = ("seconds", "committed_seconds", "bytes_per_s", "iops", "iops_over_4k", "straggler_ratio")
    spreads = {name: getattr(rounds, name) for name in names}
    return {
        "round_count": rounds.round_count,
        "worst_round": rounds.worst.round,
        "trend": asdict(found) if (found := trend_of(summaries)) is not None else None,
        **{name: asdict(each) | {"spread": each.spread, "within": each.within} for name, each in spreads.items()},
    }


def _printable(value: Any) -> Any:
    """Strings as valid UTF-8: a directory's name may hold bytes that are not, and JSON may not."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value
