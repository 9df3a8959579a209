"""Interference: what a save does to others' work on the same storage, before, during and after it."""

from __future__ import annotations

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.actions import ActionTable
from ckptstorm.measure.rows import Phase
from ckptstorm.record.beside import BEFORE_SAVE, DURING_SAVE, WINDOWS
from ckptstorm.record.latencies import percentiles
from ckptstorm.record.load import LoadRecord
from ckptstorm.record.words import counted
from ckptstorm.report.facts import Known
from ckptstorm.report.html.chart import BLUE, GREEN, PURPLE, VERMILION, Chart, Figure, View
from ckptstorm.report.html.tail import Tail, tail_figure
from ckptstorm.report.parts import Table
from ckptstorm.units import count_text, time_text

#: Actions of a load that have a view of their own, most frequent first.
_ACTIONS_SHOWN = 4
_LOOKS = dict(zip(WINDOWS, ((BLUE, "solid"), (VERMILION, "dash"), (GREEN, "dot"), (PURPLE, "dashdot")), strict=True))
#: What puts a tree back between laps is nobody's action.
_UNTOLD = "reset"
_Tables = dict[str, dict[str, ActionTable]]


def beside_chart(known: Known) -> Chart | None:
    """One view a load and action."""
    views, rows, findings = [], [], []
    for name, actions in _loads(known).items():
        shown = sorted(actions, key=lambda action: -_count(actions[action]))[:_ACTIONS_SHOWN]
        for action in shown:
            views.append(View(f"{name}: {action}", _figure(actions[action])))
            rows += _rows(f"{name}: {action}", actions[action])
        findings += [_finding(name, action, actions[action]) for action in shown[:2]]
    if not views:
        return None
    head = ("action, window", "count", "p50", "p99", "max")
    what = f"{' '.join(each for each in findings if each)} {_cost(known)}".strip()
    return Chart(
        "beside", "Interference: before, during and after the save", what, tuple(views), Table(head, tuple(rows))
    )


def _loads(known: Known) -> dict[str, _Tables]:
    """{load: {action: {window: times of all measured rounds}}}."""
    found: dict[str, _Tables] = {}
    for phase in known.record.phases:
        load = phase.load
        if phase.round >= 1 and load is not None and load.beside is not None and load.beside.window in WINDOWS:
            _add(found.setdefault(load.load, {}), load, load.beside.window)
    return found


def _add(actions: _Tables, load: LoadRecord, window: str) -> None:
    for number, action in enumerate(load.actions):
        one = slice(number, number + 1)
        if action != _UNTOLD and load.table.counts[number].any():
            mine = ActionTable(load.table.counts[one], load.table.max_ns[one], load.table.bytes[one])
            actions.setdefault(action, {}).setdefault(window, ActionTable.blank(1)).add(mine)


def _count(windows: dict[str, ActionTable]) -> int:
    return sum(int(table.counts.sum()) for table in windows.values())


def _figure(windows: dict[str, ActionTable]) -> Figure:
    tails = [
        Tail(window, windows[window].counts[0], int(windows[window].max_ns[0]), *_LOOKS[window])
        for window in WINDOWS
        if window in windows
    ]
    return tail_figure(tails, "time of one action, from when it was due", "share of actions at least this slow")


def _rows(name: str, windows: dict[str, ActionTable]) -> list[tuple[str, ...]]:
    rows = []
    for window in (each for each in WINDOWS if each in windows):
        found = percentiles(windows[window].counts[0], int(windows[window].max_ns[0]))
        times = (time_text(ns) for ns in (found.p50, found.p99, found.max))
        rows.append((f"{name} {window}", count_text(found.count), *times))
    return rows


def _finding(name: str, action: str, windows: dict[str, ActionTable]) -> str:
    if BEFORE_SAVE not in windows or DURING_SAVE not in windows:
        return ""
    alone, during = (
        percentiles(windows[each].counts[0], int(windows[each].max_ns[0])) for each in (BEFORE_SAVE, DURING_SAVE)
    )
    times = f", {during.p99 / alone.p99:.1f} times as long" if alone.p99 else ""
    return (
        f"{name}: one {action} in a hundred took {time_text(alone.p99)} or more before the save, and "
        f"{time_text(during.p99)} during it{times}."
    )


def _cost(known: Known) -> str:
    """What the loads cost the save, where the storm saved without them as well."""
    quiet, loaded = known.over_rounds(Phase.QUIET_SAVE), known.over_rounds(Phase.SAVE)
    if quiet is None or loaded is None:
        return ""
    times = tuple(time_text(each.seconds.median * NS_PER_S) for each in (quiet, loaded))
    return (
        f"The save took {times[1]} with the loads and {times[0]} without them "
        f"(medians of {counted(min(quiet.round_count, loaded.round_count), 'round')})."
    )
