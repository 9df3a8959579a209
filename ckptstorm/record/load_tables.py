"""The tables of storm.h5 that hold what loads did, and the way back from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.actions import ActionTable
from ckptstorm.record.load import NODE_DTYPE, LoadRecord
from ckptstorm.record.record import PhaseRecord

Table = NDArray[Any]

NAMES = ("load_actions", "load_counts", "load_nodes", "load_seconds")
ACTIONS_DTYPE = np.dtype([("phase", "<u4"), ("action", "u1"), ("max_ns", "<i8"), ("bytes", "<i8")])
SECONDS_DTYPE = np.dtype([("phase", "<u4"), ("second", "<u4"), ("op_count", "<i8"), ("bytes", "<i8")])


def parts(phases: tuple[PhaseRecord, ...]) -> dict[str, list[Table]]:
    """Rows of each table, phase by phase; `phase` is the index into /phases."""
    found: dict[str, list[Table]] = {name: [] for name in NAMES}
    for index, phase in enumerate(phases):
        if phase.load is None:
            continue
        load = phase.load
        actions = np.zeros(len(load.actions), dtype=ACTIONS_DTYPE)
        actions["phase"], actions["action"] = index, np.arange(len(actions))
        actions["max_ns"], actions["bytes"] = load.table.max_ns, load.table.bytes
        nodes = load.nodes.astype(NODE_DTYPE)
        nodes["phase"] = index
        seconds = np.zeros(len(load.seconds), dtype=SECONDS_DTYPE)
        seconds["phase"], seconds["second"] = index, np.arange(len(seconds))
        seconds["op_count"], seconds["bytes"] = load.seconds[:, 0], load.seconds[:, 1]
        for name, rows in zip(found, (actions, load.table.counts, nodes, seconds), strict=True):
            found[name].append(rows)
    return found


def from_tables(tables: dict[str, Table], phase_count: int) -> list[LoadRecord | None]:
    """What each phase did as a load; None for one that was none. Its words stand in storm.json."""
    return [_of_phase(index, tables) for index in range(phase_count)]


def _of_phase(index: int, tables: dict[str, Table]) -> LoadRecord | None:
    actions = tables["load_actions"]
    mine = actions["phase"] == index
    if not mine.any():
        return None
    named = actions[mine]
    table = ActionTable(tables["load_counts"][mine], named["max_ns"].copy(), named["bytes"].copy())
    seconds = tables["load_seconds"][tables["load_seconds"]["phase"] == index]
    return LoadRecord(
        "",
        ("",) * len(named),
        table,
        tables["load_nodes"][tables["load_nodes"]["phase"] == index],
        np.stack([seconds["op_count"], seconds["bytes"]], axis=1),
    )


def impossible(tables: dict[str, Table]) -> str:
    """The first thing in these tables that no storm can have written; "" when there is none."""
    phases, actions = len(tables["phases"]), tables["load_actions"]
    if len(actions) != len(tables["load_counts"]):
        return "there are not as many histograms of actions as actions"
    for name in ("load_actions", "load_nodes", "load_seconds"):
        if (tables[name]["phase"] >= phases).any():
            return f"the table {name} names a phase that there is not"
    same = (actions["phase"][1:] == actions["phase"][:-1]).astype(np.int64)
    steps = np.diff(actions["action"].astype(np.int64))
    if (steps != np.where(same, 1, -actions["action"][:-1].astype(np.int64))).any():
        return "actions are out of order"
    return ""
