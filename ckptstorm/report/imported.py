"""What `import result` prints: each phase by our definition, beside the headline that the other tool makes of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ckptstorm.clock import NS_PER_S
from ckptstorm.record.words import counted
from ckptstorm.report.importers.seen import PhaseSeen, Seen
from ckptstorm.report.parts import Block, Fact, Line, Section, Table
from ckptstorm.units import count_text, rate_text, time_text

_HEAD = ("", "first done", "last done", "bandwidth", "its own T", "its headline")
#: A headline that is further off than this is pointed out.
_TELLING = 0.02
_ROUNDS_SHOWN = 20


def sections(runs: tuple[Seen, ...]) -> tuple[Section, ...]:
    """One section a run."""
    count = sum(len(run.phases) for run in runs)
    opening = Section("", (Line(f"{counted(count, 'phase')} of {counted(len(runs), 'run')} of another tool"),))
    return (opening, *(_run(run) for run in runs))


def data(runs: tuple[Seen, ...]) -> list[dict[str, Any]]:
    """For programs; None where the tool did not measure."""
    return [
        asdict(run) | {"phases": [asdict(each) | {"bytes_per_s": each.bytes_per_s} for each in run.phases]}
        for run in runs
    ]


def _run(run: Seen) -> Section:
    world = [counted(run.rank_count, "rank")] if run.rank_count is not None else []
    world += [f"on {counted(run.node_count, 'node')}"] if run.node_count is not None else []
    blocks: list[Block] = [Fact("world", " ".join(world) or "not told")]
    if run.started:
        blocks.append(Fact("started", run.started))
    shown = run.phases[:_ROUNDS_SHOWN]
    is_many = any(each.round > 1 for each in run.phases)
    rows = tuple((f"{each.phase} {each.round}" if is_many else each.phase, *_row(each)) for each in shown)
    blocks += [Line(""), Table(_HEAD, rows)]
    if len(run.phases) > len(shown):
        blocks.append(Line(f"{len(run.phases) - len(shown)} more (--json)", "quiet"))
    blocks += [Line(""), *(Fact("hidden", text, "bad") for text in _hidden(run))]
    blocks += [Fact("last done", basis, "quiet") for basis in dict.fromkeys(each.basis for each in run.phases)]
    blocks += [Fact("note", note, "doubt") for note in run.notes]
    return Section(f"{run.tool} {run.version}: {run.name}".replace("  ", " "), tuple(blocks))


def _row(phase: PhaseSeen) -> tuple[str, ...]:
    return (
        _time(phase.first_done_s),
        _time(phase.seconds),
        _rate(phase),
        _time(phase.tool_seconds),
        rate_text(phase.tool_bytes_per_s) if phase.tool_bytes_per_s else _per_s(phase.tool_per_s),
    )


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else time_text(seconds * NS_PER_S)


def _per_s(rate: float | None) -> str:
    return "-" if rate is None else f"{count_text(rate)}/s"


def _rate(phase: PhaseSeen) -> str:
    if phase.bytes_per_s is not None:
        return rate_text(phase.bytes_per_s)
    if phase.metadata_op_count is not None and phase.seconds:
        return _per_s(phase.metadata_op_count / phase.seconds)
    return "-"


def _hidden(run: Seen) -> list[str]:
    """Where the headline leaves out what the slowest took: the largest of each phase."""
    worst: dict[str, tuple[float, PhaseSeen]] = {}
    for phase in run.phases:
        own = phase.tool_seconds
        if phase.seconds and own and phase.seconds > own * (1 + _TELLING):
            factor = phase.seconds / own
            if factor > worst.get(phase.phase, (0.0, phase))[0]:
                worst[phase.phase] = (factor, phase)
        elif (
            phase.bytes_per_s and phase.tool_bytes_per_s and phase.tool_bytes_per_s > phase.bytes_per_s * (1 + _TELLING)
        ):
            factor = phase.tool_bytes_per_s / phase.bytes_per_s
            if factor > worst.get(phase.phase, (0.0, phase))[0]:
                worst[phase.phase] = (factor, phase)
    return [
        f"the headline of {phase.phase} {phase.round} is {factor:.2f} times what the last one done allows"
        for factor, phase in worst.values()
    ]
