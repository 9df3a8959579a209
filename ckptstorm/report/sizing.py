"""What `size` prints: what checkpoints cost a job on a cluster that fails, with every formula and its source."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ckptstorm.clock import NS_PER_S
from ckptstorm.forecast.goodput import FORMULAS
from ckptstorm.forecast.sizing import HOURS_A_DAY, Bandwidth, Choice, Sizing
from ckptstorm.record.record import StormRecord, Verdict
from ckptstorm.record.words import counted, percent
from ckptstorm.report.parts import Block, Fact, Line, Section, Table
from ckptstorm.units import bytes_text, count_text, rate_text, time_text

_NAMES = {
    "least": "wastes least",
    "daly": "Daly",
    "young": "Young",
    "availability": "availability",
    "asked": "as asked",
    "slowest": "if all were slowest",
}
#: The same, short enough to stand before a formula.
_SYMBOLS = {
    "least": "least",
    "daly": "Daly",
    "young": "Young",
    "availability": "available",
    "asynchronous": "async",
    "bandwidth": "bandwidth",
}
_HEAD = ("", "work between", "goodput", "saving", "lost work", "restarts")


def sections(sizing: Sizing, record: StormRecord, verdict: Verdict) -> tuple[Section, ...]:
    """The page, in reading order."""
    return (
        _headline(sizing, record, verdict),
        _way("Synchronous: training stops for each save", sizing.synchronous, sizing),
        _way(f"Asynchronous: {_held(sizing)}", sizing.asynchronous, sizing),
        _bandwidth(sizing),
        _formulas(),
    )


def data(sizing: Sizing, record: StormRecord, verdict: Verdict) -> dict[str, Any]:
    """For programs; seconds, bytes, shares 0 to 1."""
    return {
        "storm_id": record.storm_id,
        "valid": verdict.valid,
        **asdict(sizing),
        "gpu_hours_lost_a_day": {
            "synchronous": sizing.gpu_hours_a_day(1 - sizing.synchronous[0].shares.goodput),
            "asynchronous": sizing.gpu_hours_a_day(1 - sizing.asynchronous[0].shares.goodput),
        },
        "formulas": FORMULAS,
    }


def _headline(sizing: Sizing, record: StormRecord, verdict: Verdict) -> Section:
    asked, costs = sizing.asked, sizing.costs
    best = sizing.synchronous[0].shares
    blocks: list[Block] = [Line(f"ckptstorm {record.storm_id}", "quiet")]
    if not verdict.valid:
        blocks.append(Line("INVALID: the record may not be quoted, and so may nothing below", "bad"))
        blocks += [Fact("because", reason, "bad") for reason in verdict.reasons]
    blocks += [
        Line(f"save every {_time(best.interval_s)}: {percent(1 - best.goodput)} of the GPUs' time is lost"),
        Fact("fails", _failures(sizing)),
        Fact(
            "save", f"{_measured(costs.save_s)}, {bytes_text(sizing.bytes_a_save)} at {rate_text(sizing.bytes_per_s)}"
        ),
        Fact("restart", f"{_measured(sizing.restore_s)} of restore{_besides(asked.restart_s)}"),
    ]
    if sizing.rank_count != asked.gpu_count:
        blocks.append(Fact("note", _other_world(sizing), "doubt"))
    if sizing.is_staged:
        told = "the storm's saves were asynchronous: their time is that of the drain, with training beside it"
        blocks.append(Fact("note", told, "doubt"))
    if len(costs.save_s) < _FEW:
        told = f"{counted(len(costs.save_s), 'round')} cannot show how long a bad save takes: run more"
        blocks.append(Fact("note", told, "doubt"))
    return Section("", tuple(blocks))


#: Fewer rounds than this say little of the slow end of a distribution.
_FEW = 5


def _failures(sizing: Sizing) -> str:
    asked = sizing.asked
    return f"once in {_time(sizing.costs.mtbf_s)}: {asked.gpu_count:,} GPUs, each once in {asked.mttf_h:,.0f} h"


def _measured(times: tuple[float, ...]) -> str:
    mean = _time(sum(times) / len(times))
    if len(times) == 1:
        return f"{mean} (one round)"
    return f"{mean} (mean of {len(times)} rounds, {_time(min(times))} to {_time(max(times))})"


def _besides(restart_s: float) -> str:
    if restart_s:
        return f", and {_time(restart_s)} for all else"
    return "; noticing the failure and starting again come on top: say how long with --restart"


def _held(sizing: Sizing) -> str:
    if sizing.blocking_s:
        measured = " (measured)" if sizing.is_staged and sizing.asked.blocking_s is None else ""
        return f"training is held for {_time(sizing.blocking_s)} a save{measured}"
    return "training goes on (say with --blocking what it is held for)"


def _other_world(sizing: Sizing) -> str:
    ranks, gpus = counted(sizing.rank_count, "rank"), f"{sizing.asked.gpu_count:,} GPUs"
    return f"the times are those of {ranks}, taken as they are for {gpus}: only a storm of that size knows better"


def _way(title: str, choices: tuple[Choice, ...], sizing: Sizing) -> Section:
    rows = tuple(
        (
            _NAMES[choice.name],
            _time(choice.shares.interval_s),
            f"{choice.shares.goodput * 100:.2f} %",
            percent(choice.shares.saving),
            percent(choice.shares.lost),
            percent(choice.shares.restarting),
        )
        for choice in choices
    )
    told = [] if _is_asked_shown(choices, sizing) else [Line("as asked: a save would not have drained by the next one")]
    return Section(title, (Table(_HEAD, rows), *told, Line(""), *_a_day(choices[0], sizing)))


def _is_asked_shown(choices: tuple[Choice, ...], sizing: Sizing) -> bool:
    return sizing.asked.interval_s is None or any(choice.name == "asked" for choice in choices)


def _a_day(choice: Choice, sizing: Sizing) -> list[Block]:
    shares, asked = choice.shares, sizing.asked
    lost = sizing.gpu_hours_a_day(1 - shares.goodput)
    parts = ", ".join(
        f"{name} {count_text(sizing.gpu_hours_a_day(share))}"
        for name, share in (("saving", shares.saving), ("lost work", shares.lost), ("restarts", shares.restarting))
    )
    all_hours = count_text(asked.gpu_count * HOURS_A_DAY)
    blocks: list[Block] = [Fact("a day", f"{count_text(lost)} of {all_hours} GPU-hours are lost ({parts})")]
    if asked.price_an_hour:
        blocks.append(
            Fact("money", f"{lost * asked.price_an_hour:,.0f} a day at {asked.price_an_hour:,.2f} a GPU-hour")
        )
    return blocks


def _bandwidth(sizing: Sizing) -> Section:
    facts = tuple(Fact(each.way, _needed(each)) for each in sizing.needed)
    return Section(f"Bandwidth for an overhead of {percent(sizing.asked.overhead)} (saving and lost work)", facts)


def _needed(needed: Bandwidth) -> str:
    where = "at its best interval" if needed.interval_s is None else f"at {_time(needed.interval_s)}"
    if not needed.bytes_per_s:
        return f"{where}: none is enough, for training is held too long by itself"
    return f"{where}: {rate_text(needed.bytes_per_s)}"


def _formulas() -> Section:
    symbols = Line("d save, R restart, M time between failures, t work between saves, b held", "quiet")
    facts = (Fact(_SYMBOLS[name], formula, "quiet") for name, formula in FORMULAS.items())
    return Section("Formulas", (symbols, *facts))


def _time(seconds: float) -> str:
    return time_text(seconds * NS_PER_S)
