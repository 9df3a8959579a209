"""Receipts: for each claim, what was seen while the storm ran that makes it true, or not.

One function a receipt, one line in `RECEIPTS`; each looks at all measured rounds and reports the
worst. What a state does to the verdict is in `invalidates`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.clocks import no_clocks
from ckptstorm.measure.rows import STATE_SYNC_DUE, STATE_SYNCED, Phase
from ckptstorm.measure.visibility import NEVER, NOTHING, not_looked_at
from ckptstorm.record import settings
from ckptstorm.record.record import PhaseRecord, Receipt, StormRecord
from ckptstorm.record.stragglers import host_of
from ckptstorm.record.summary import PhaseSummary, summarize
from ckptstorm.record.wire import shortest
from ckptstorm.record.words import counted, percent, some
from ckptstorm.units import bytes_text, time_text

#: Waits for payload above this share of T make the client the bottleneck, and the numbers its own.
SELF_WAIT_SHARE = 0.05
#: Up to this share of the bytes in page caches a restore counts as cold: it moves bandwidth by as much.
COLD_RESIDENT_SHARE = 0.01

#: Column of the visibility rows: what was looked at.
_WAYS = {
    "pointer_ns": "the pointer, looked up anew,",
    "handle_ns": "it through a handle held since before the save",
    "step_ns": "the files of the step, complete,",
}

Summaries = tuple[PhaseSummary, ...]


def receipts(record: StormRecord) -> dict[str, Receipt]:
    """Every receipt by name, in the order in which reports show them."""
    summaries = summarize(record)
    return {name: write(record, summaries) for name, write in RECEIPTS.items()}


def invalidates(name: str, receipt: Receipt, allow: frozenset[str]) -> bool:
    """Whether a receipt in this state makes the record invalid.

    Args:
        name: of the receipt.
        receipt: what was found.
        allow: `[storm] allow`, which declares what would else be invalid. On tmpfs nothing is ever
            cold: who allows tmpfs has been told so once already.
    """
    if name == "cold":
        return receipt.state == "warm" and not allow & {"warm", "tmpfs"}
    if name == "self":
        return receipt.state == "client_bound"
    return name in ("durable", "verified", "direct", "visible") and receipt.state == "no"


def _durable(record: StormRecord, _: Summaries) -> Receipt:
    saves = _measured(record, Phase.SAVE)
    if not saves:
        return Receipt("none", "no measured save was finished")
    planned, done = sum(save.planned_sync_count for save in saves), _sum(saves, "sync_count")
    rows = np.concatenate([save.rows for save in saves])
    unsynced = rows[(rows["state"] & STATE_SYNCED) == 0]
    overdue = unsynced[(unsynced["state"] & STATE_SYNC_DUE) != 0]
    counts = f"{done:,} of {planned:,} planned syncs succeeded"
    if done < planned:
        return Receipt("no", f"{counts}: {planned - done:,} are missing")
    if len(overdue):
        ranks = some(sorted(set(overdue["rank"].tolist())))
        return Receipt("no", f"{counts}, but {ranks} left a file without a sync after its last write")
    passed = shortest(saves)
    if len(unsynced) == 0 and passed is not None and passed.holds_back and not settings.is_staged(record):
        return Receipt("no", f"{counts}, but only {passed.sentence()} when all ranks were done: a cache keeps the rest")
    if len(unsynced) == 0:
        return Receipt("yes", f"{counts}; each file was synced after its last write")
    drain = _drain_sentence(record)
    if done == 0:
        return Receipt("not_asked", f"acknowledged, not durable: the job asks for no sync{drain}")
    share = f"{len(unsynced):,} of {len(rows):,} rank saves left files that the layout never syncs"
    return Receipt("not_asked", f"acknowledged, not wholly durable: {counts}, and {share}{drain}")


def _drain_sentence(record: StormRecord) -> str:
    longest = max((_drain_ns(settle) for settle in _measured(record, Phase.SETTLE)), default=-1)
    return f"; it took {time_text(longest)} more until syncfs had returned on every node" if longest >= 0 else ""


def _drain_ns(settle: PhaseRecord) -> int:
    """How long the syncs of a settle phase took: told apart, or the time of its last one."""
    if settle.drain_ns >= 0 or not int(settle.rows["sync_count"].sum()):
        return settle.drain_ns
    return int(settle.rows["durable_ns"].max()) - int(settle.rows["release_ns"].min())


def _cold(record: StormRecord, _: Summaries) -> Receipt:
    restores = _measured(record, Phase.RESTORE)
    if not restores:
        return Receipt("none", "no measured restore was finished")
    if settings.mount_type(record) == "tmpfs":
        return Receipt("warm", "tmpfs is memory: every byte was resident")
    shifted = record.asked.get("restore.from", ("", ""))[1] == "other-node"
    reader = "every rank read what another node had written" if shifted else "ranks read on the node that wrote"
    passed = shortest(restores)
    counted = f"; {passed.sentence()}" if passed is not None else ""
    if passed is not None and passed.is_short:
        return Receipt("warm", f"a cache on the way served reads: {passed.sentence()}; {reader}")
    own = settings.number(record.environment, "own_written_share", default=-1.0)
    if own >= 0:  # a restore on its own: the manifest of the save names the writer of each file
        reader = f"{percent(own)} of the bytes had been written on the node that read them, by the save's manifest"
    share = max(restore.resident_share for restore in restores)
    if share > COLD_RESIDENT_SHARE:
        return Receipt("warm", f"{percent(share)} of the bytes were in the readers' page caches; {reader}{counted}")
    if min(restore.resident_share for restore in restores) >= 0:
        return Receipt("cold", f"{percent(share)} of the bytes were in the readers' page caches; {reader}{counted}")
    if passed is not None:
        return Receipt("cold", f"all of it passed the counters: {passed.sentence()}; {reader}")
    if own > COLD_RESIDENT_SHARE:
        return Receipt("warm", f"{reader}, and page residency could not be told")
    if shifted:
        return Receipt("cold", f"{reader}; page residency was not told")
    return Receipt("unknown", f"{reader}, and page residency could not be told: caches may have helped")


def _verified(record: StormRecord, _: Summaries) -> Receipt:
    restores, asked = _measured(record, Phase.RESTORE), settings.verify_share(record)
    if not restores:
        return Receipt("none", "no measured restore was finished")
    read, checked, wrong = _sum(restores, "bytes"), _sum(restores, "verified_bytes"), _sum(restores, "mismatch_count")
    found = f"{bytes_text(checked)} of {bytes_text(read)} read were compared, {counted(wrong, 'read')} differed"
    if asked == 0.0:
        return Receipt("not_asked", f"the job asks for no comparison; {bytes_text(read)} read")
    if wrong or checked == 0 or (asked >= 1.0 and checked < read):
        return Receipt("no", found)
    return Receipt("all" if checked >= read else "share", found)


def _direct(record: StormRecord, _: Summaries) -> Receipt:
    if not settings.flag(record.job, "io", "direct"):
        return Receipt("not_asked", "the job asks for buffered I/O")
    seen = settings.table(record.environment, "direct")
    flags, writes = settings.flag(seen, "flag_set"), settings.count(seen, "aligned_write_count")
    resident = settings.number(seen, "resident_share", default=-1.0)
    found = (
        f"O_DIRECT {'set' if flags else 'not seen set'}, {writes:,} aligned writes done, "
        f"{percent(resident) + ' of their pages' if resident >= 0 else 'unknown how many pages'} resident after"
    )
    is_direct = flags and writes > 0 and resident == 0.0 and settings.mount_type(record) != "tmpfs"
    return Receipt("yes" if is_direct else "no", found)


def _self(record: StormRecord, summaries: Summaries) -> Receipt:
    kinds = (Phase.SAVE, Phase.RESTORE, Phase.LOAD)
    phases = [s for s in summaries if s.is_measured and s.phase in kinds and s.seconds > 0]
    if not phases or settings.is_instrument(record):
        return Receipt("unknown", "no storage was measured, so nothing is known of what the client adds")
    save = max((s.generate_share for s in phases if s.phase == Phase.SAVE), default=0.0)
    restore = max((s.verify_share for s in phases if s.phase == Phase.RESTORE), default=0.0)
    inline = " (the posix engine does both on the I/O thread)" * (settings.engine_name(record) == "posix")
    spent = f"{percent(save)} of the save making bytes and {percent(restore)} of the restore comparing them{inline}"
    waits = [max(s.generate_share, s.verify_share) for s in phases if s.phase == Phase.LOAD and not s.is_reading_back]
    if waits:
        of_load = f"{percent(max(waits))} of a load on both{inline}"
        spent = f"{spent}, {of_load}" if settings.saves(record) else of_load
    if max(save, restore, *waits) > SELF_WAIT_SHARE:
        return Receipt("client_bound", f"these numbers are a lower bound for the storage: a client spent {spent}")
    return Receipt("ok", f"no client spent more than {spent}")


def _visible(record: StormRecord, _: Summaries) -> Receipt:
    looked = np.concatenate([not_looked_at(), *(save.visibility for save in _measured(record, Phase.SAVE))])
    if not len(looked):
        return Receipt("none", "no node looked for what another had committed")
    told, is_seen = [], True
    for way, what in _WAYS.items():
        rows = looked[looked[way] != NOTHING]
        never = rows[rows[way] == NEVER]
        if len(never):
            hosts = ", ".join(sorted({host_of(record, int(node)) for node in never["node"][:3]}))
            told.append(f"{what} was not seen at all by {hosts} within the time given")
            is_seen = False
        elif len(rows):
            last = rows[int(rows[way].argmax())]
            late, median = time_text(int(last[way])), time_text(float(np.median(rows[way])))
            told.append(f"{what} after {late} at most (median {median}, last on {host_of(record, int(last['node']))})")
    return Receipt("ok" if is_seen else "no", f"after the commit other nodes saw {'; '.join(told)}")


def _clock(record: StormRecord, summaries: Summaries) -> Receipt:
    measured = [s for s in summaries if s.is_measured]
    if not measured:
        return Receipt("none", "no measured phase was finished")
    worst = max(measured, key=lambda s: s.skew_max_s)
    checked = [s.clock for s in measured if s.clock.is_taken]
    wrong = [check for check in checked if not check.agrees]
    late, median = time_text(worst.skew_max_s * NS_PER_S), time_text(worst.skew_median_s * NS_PER_S)
    skew = f"ranks started within {late} of one another (median {median}), {_clocks_sentence(record)}"
    if wrong:
        gap = max(wrong, key=lambda check: abs(check.gap_ns)).gap_ns
        sign = "longer" if gap > 0 else "shorter"
        return Receipt("no", f"{skew}; a barrier took {time_text(abs(gap))} {sign} than the phase that it encloses")
    if not checked:
        return Receipt("shown", f"{skew}; no barrier was taken to check T against")
    gap = max(check.gap_ns for check in checked)
    return Receipt("ok", f"{skew}; barriers exceed what the rows tell by {time_text(gap)} at most")


def _clocks_sentence(record: StormRecord) -> str:
    """How far apart the clocks were that times were corrected by, and how well that is known."""
    uncertainty = max((phase.clock_uncertainty_ns for phase in record.phases), default=0)
    clocks = np.concatenate([no_clocks(), *(phase.clocks for phase in record.phases)])
    if not len(clocks):
        return "all ranks read one clock" if not uncertainty else f"clocks are known to ± {time_text(uncertainty)}"
    apart, drift = int(np.abs(clocks["offset_ns"]).max()), int(np.abs(clocks["drift_ns"]).max())
    count = 1 + len(np.unique(clocks["rank"]))
    return (
        f"{count:,} clocks up to {time_text(apart)} apart were brought to one, known to ± {time_text(uncertainty)}, "
        f"drifting {time_text(drift)} a phase at most"
    )


def _effective(record: StormRecord, _: Summaries) -> Receipt:
    other = [
        f"{key} = {asked}, took effect: {took}"
        for key, (asked, took) in record.asked.items()
        if asked not in (took, "auto", "layout")
    ]
    if other:
        return Receipt("no", "asked for " + "; ".join(other))
    chosen = [f"{key} = {took}" for key, (asked, took) in record.asked.items() if asked != took]
    told = f" ({'; '.join(chosen)})" if chosen else ""
    return Receipt("ok", f"{counted(len(record.asked), 'setting')} took effect as asked{told}")


#: Name to the function that writes it, in the order of reports.
RECEIPTS: dict[str, Callable[[StormRecord, Summaries], Receipt]] = {
    "durable": _durable,
    "cold": _cold,
    "verified": _verified,
    "direct": _direct,
    "self": _self,
    "visible": _visible,
    "clock": _clock,
    "effective": _effective,
}


def _measured(record: StormRecord, phase: Phase) -> list[PhaseRecord]:
    return [each for each in record.phases if each.phase == phase and each.round >= 1 and len(each.rows)]


def _sum(phases: Iterable[PhaseRecord], column: str) -> int:
    return sum(int(phase.rows[column].sum(dtype=np.int64)) for phase in phases)
