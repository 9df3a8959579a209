"""Loads: how many of each action a second, of the cluster and of its nodes, and how long each took."""

from __future__ import annotations

from collections.abc import Iterable

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import Phase
from ckptstorm.record import settings
from ckptstorm.record.latencies import ALL, Percentiles, latency_tree
from ckptstorm.record.load import ActionSummary, summarize_actions
from ckptstorm.record.record import PhaseRecord
from ckptstorm.record.rounds import measured
from ckptstorm.record.words import counted, percent
from ckptstorm.report.facts import Known
from ckptstorm.report.parts import Block, Fact, Line, Section, Table
from ckptstorm.units import bytes_text, count_text, rate_text, time_text

#: Op kinds below the actions: a create is an open and a close, and one of them is the slow one.
_KINDS_SHOWN = 8


def loads(known: Known) -> Section:
    """Every stage of every load: its rates, and the time of each action and op, in the median round."""
    blocks: list[Block] = []
    for name in known.stages():
        blocks += ([Line("")] if blocks else []) + _stage(known, name)
    return Section("Loads (the median round of each)", tuple(blocks)) if blocks else Section("", ())


def load_answer(known: Known, name: str) -> str:
    """A stage in one sentence, for the first screen; "" when no round of it was finished."""
    rounds = known.over_rounds(Phase.LOAD, name)
    if rounds is None:
        return ""
    actions = _actions(known, name, rounds.middle.round)
    said = ", ".join(_rate(action) for action in _first(actions))
    moved = f" ({rate_text(rounds.bytes_per_s.median)})" if rounds.bytes_per_s.median else ""
    spread = f"; median of {rounds.round_count} rounds, spread {percent(rounds.seconds.spread)}"
    return f"{said}{moved}{spread if rounds.round_count > 1 else ''}"


def load_facts(known: Known) -> list[Block]:
    """What the job asks of each load, in its own words."""
    return [Fact("load", _asked(table)) for table in settings.loads(known.record)]


def _asked(table: dict[str, object]) -> str:
    name = settings.text(table, "name") or settings.text(table, "kind")
    defaults = ("name", "when", "ranks", "seed", "rate_per")
    said = [
        f"{key} = {_word(value)}" for key, value in table.items() if key not in defaults and value not in ((), [], {})
    ]
    return f"{name}: {', '.join(said)}"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(str(each) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {each}" for key, each in value.items()) + "}"
    return str(value)


def _first(actions: tuple[ActionSummary, ...]) -> Iterable[ActionSummary]:
    """The commonest four: a mix may have a dozen."""
    return sorted(actions, key=lambda action: -action.count)[:4]


def _rate(action: ActionSummary) -> str:
    return f"{count_text(action.per_s)} {action.action}/s (p99 {time_text(action.latency_ns.p99)})"


def _record(known: Known, name: str, number: int) -> PhaseRecord:
    return next(p for p in known.record.phases if (p.phase, p.name, p.round) == (Phase.LOAD, name, number))


def _actions(known: Known, name: str, number: int) -> tuple[ActionSummary, ...]:
    record = _record(known, name, number)
    summary = next(s for s in known.summaries if (s.phase, s.name, s.round) == (Phase.LOAD, name, number))
    return summarize_actions(record.load, summary.seconds) if record.load else ()


def _stage(known: Known, name: str) -> list[Block]:
    rounds = known.over_rounds(Phase.LOAD, name)
    if rounds is None:
        tried = measured(known.summaries, Phase.LOAD, name)
        return [Fact(name, f"no round was finished ({counted(len(tried), 'round')} tried)", "bad")] if tried else []
    middle = rounds.middle
    actions = _actions(known, name, middle.round)
    moved = f", {rate_text(middle.bytes_per_s)}, {count_text(middle.iops)} IOPS" if middle.bytes else ""
    verified = int(_record(known, name, middle.round).rows["verified_bytes"].sum(dtype="int64"))
    moved += f", {bytes_text(verified)} compared" if verified else ""
    done = (
        f"{time_text(middle.seconds * NS_PER_S)}{moved}; first rank {time_text(middle.first_done_s * NS_PER_S)}, "
        f"last {time_text(middle.last_done_s * NS_PER_S)}"
    )
    nodes = len(known.record.nodes)
    head = ("action", "per second", *(("node least", "most") if nodes > 1 else ()), "p50", "p99", "p99.9", "max")
    rows = tuple(_action_row(action, nodes) for action in actions)
    blocks: list[Block] = [Fact(name, done), Table(head, rows)]
    kinds = _kind_rows(_record(known, name, middle.round))
    if len(kinds) > len(actions) or any(action.action not in dict(kinds) for action in actions):
        head = ("time of each op", "count", "p50", "p90", "p99", "p99.9", "max")
        blocks.append(Table(head, tuple(_kind_row(word, found) for word, found in kinds[:_KINDS_SHOWN])))
    return blocks


def _action_row(action: ActionSummary, nodes: int) -> tuple[str, ...]:
    found = action.latency_ns
    times = (found.p50, found.p99, found.p999, found.max)
    per_node = (count_text(action.node_per_s_least), count_text(action.node_per_s_most)) if nodes > 1 else ()
    return (action.action, count_text(action.per_s), *per_node, *(time_text(time) for time in times))


def _kind_rows(record: PhaseRecord) -> list[tuple[str, Percentiles]]:
    tree = latency_tree(record.latency)
    return sorted(((word, classes[ALL]) for word, classes in tree.items()), key=lambda pair: -pair[1].count)


def _kind_row(word: str, found: Percentiles) -> tuple[str, ...]:
    times = (found.p50, found.p90, found.p99, found.p999, found.max)
    return (word, count_text(found.count), *(time_text(time) for time in times))
