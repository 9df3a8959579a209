"""The storage as it showed itself: who serves it, where the files lay, what passed its counters."""

from __future__ import annotations

from typing import Any

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record import settings
from ckptstorm.record.placed import placed as placement_of
from ckptstorm.record.record import PhaseRecord
from ckptstorm.record.tested import directories
from ckptstorm.record.wire import wire
from ckptstorm.record.words import counted, percent
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Block, Fact, Section, Table
from ckptstorm.units import bytes_text, rate_text, time_text

#: Beyond this multiple of its fair share of the bytes a target is called hot.
HOT_SHARE = 1.5
_DETAILS_SHOWN = 6
_TARGETS_SHOWN, _TARGETS_LEAST = 6, 2
_STRAGGLERS_SHOWN = 3


def storage(known: Known) -> Section:
    """Facts, placement and traffic; nothing of what the record does not have."""
    told = settings.table(known.record.environment, "file_system")
    placed = settings.table(known.record.environment, "placement")
    blocks = [*_directories(known), *_facts(told), *_placement(known, placed), *_traffic(known)]
    return Section("Storage", tuple(blocks))


def _directories(known: Known) -> list[Block]:
    """With several directories under test: each with its numbers, over measured rounds, and its receipts."""
    found = directories(known.record)
    if not found:
        return []
    rows, facts = [], []
    for one in found:
        for word in (Phase.SAVE.word, Phase.RESTORE.word):
            there = [each for each in one.phases if each.phase == word and each.round >= 1]
            if there:
                worst = max(there, key=lambda each: each.seconds)
                time = time_text(worst.seconds * NS_PER_S)
                rows.append((one.directory, word, f"{worst.rank_count}", time, rate_text(worst.bytes_per_s)))
        said = ", ".join(f"{name} {receipt.state.upper().replace('_', ' ')}" for name, receipt in one.receipts.items())
        facts.append(Fact("directory", f"{one.directory} ({one.file_system}, {one.source}): {said}"))
    head = ("directory", "phase", "ranks", "worst T", "bandwidth")
    return [*facts, Table(head, tuple(rows), left=(1,))]


def _facts(told: dict[str, Any]) -> list[Block]:
    if not told:
        return []
    server, version = settings.text(told, "server"), settings.text(told, "version")
    named = ", ".join(
        text for text in (settings.text(told, "title"), version, f"served by {server}" * bool(server)) if text
    )
    details = settings.table(told, "details")
    shown = ", ".join(f"{key} {details[key]}" for key in list(details)[:_DETAILS_SHOWN])
    blocks: list[Block] = [Fact("served by", named)]
    blocks += [Fact("with", shown)] if shown else []
    quotas = told.get("quotas")
    for quota in quotas if isinstance(quotas, list | tuple) else ():
        limit = settings.count(quota, "limit_bytes")
        if limit:
            used = settings.count(quota, "used_bytes")
            blocks.append(Fact("quota", f"{settings.text(quota, 'who')}: {bytes_text(used)} of {bytes_text(limit)}"))
    return blocks


def _placement(known: Known, placed: dict[str, Any]) -> list[Block]:
    held = {name: settings.count(each, "bytes") for name, each in settings.table(placed, "targets").items()}
    total = sum(held.values())
    if not held or not total:
        return []
    asked, files = settings.count(placed, "asked_count"), settings.count(placed, "file_count")
    there = placement_of(known.record).there_count
    hottest = max(held, key=lambda name: held[name])
    times = held[hottest] * there / total
    sample = f" (a sample of {files:,})" if asked < files else ""
    blocks: list[Block] = [
        Fact(
            "placement",
            f"{counted(asked, 'file')}{sample} on {len(held)} of {counted(there, 'target')}; the fullest, {hottest}, "
            f"holds {percent(held[hottest] / total)} of the bytes, {times:.2f} times its share",
            "doubt" if times > HOT_SHARE and there > 1 else "plain",
        )
    ]
    return [*blocks, *_histogram(placed, there, total), *_stragglers(known, placed)]


def _histogram(placed: dict[str, Any], there: int, total: int) -> list[Block]:
    """The fullest targets beside the share that each would have if the bytes were spread evenly."""
    told = settings.table(placed, "targets")
    fullest = sorted(told, key=lambda name: -settings.count(told, name, "bytes"))[:_TARGETS_SHOWN]
    if there < _TARGETS_LEAST:
        return []
    rows = tuple(
        (
            name,
            f"{settings.count(told, name, 'files'):,}",
            bytes_text(settings.count(told, name, "bytes")),
            f"{settings.count(told, name, 'bytes') * there / total:.2f}",
        )
        for name in fullest
    )
    return [Table(("target", "files", "bytes", "times its share"), rows)]


def _stragglers(known: Known, placed: dict[str, Any]) -> list[Block]:
    """Where the files of the slowest ranks lie."""
    names = list(settings.table(placed, "targets"))
    of_rank: dict[int, set[str]] = {}
    for each in placement_of(known.record).files:
        of_rank.setdefault(each.rank, set()).update(each.targets)
    save = known.over_rounds(Phase.SAVE)
    slow = save.worst.stragglers[:_STRAGGLERS_SHOWN] if save is not None else ()
    return [
        Fact("straggler", f"rank {one.rank}'s files lie on {', '.join(sorted(of_rank[one.rank])[:4])}", "doubt")
        for one in slow
        if one.rank in of_rank and len(of_rank[one.rank]) < len(names)
    ]


def _traffic(known: Known) -> list[Block]:
    """A row a measured save and restore: what passed the counters, and at what rate."""
    phases = [each for each in known.record.phases if each.phase in (Phase.SAVE, Phase.RESTORE) and each.round >= 1]
    rows = [row for each in phases if (row := _row(each)) is not None]
    head = ("counted", "where", "bytes", "had to", "rate there", "sources")
    return [Table(head, tuple(rows), left=(1,))] if rows else []


def _row(phase: PhaseRecord) -> tuple[str, ...] | None:
    found = wire(phase)
    if found is None:
        return None
    return (
        f"{phase.phase.word} {phase.round}",
        found.at,
        bytes_text(found.bytes),
        bytes_text(found.due_bytes),
        rate_text(found.bytes_per_s),
        f"{len(phase.traffic)}",
    )
