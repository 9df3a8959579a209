"""What the arrays of a record can and cannot hold: a folder is data from strangers, and numbers get added up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.errors import PlaceError
from ckptstorm.measure.latency import ALL_KEYS, LatencyKey
from ckptstorm.measure.rows import Phase
from ckptstorm.program import Kind
from ckptstorm.record import load_tables, phasetables, timelines
from ckptstorm.record.record import SCHEMA
from ckptstorm.units import TIME_LIMIT_NS

Table = NDArray[Any]

#: Every column must add up to less: no sum over ranks may leave a signed 64-bit integer.
_SUM_LIMIT = float(1 << 62)
#: Columns that may be below zero: -1 says that it did not happen, and corrected clocks start a little early.
_SIGNED = frozenset(
    {"release_ns", "first_op_ns", "durable_ns", "committed_ns", "done_ns", "round", "drain_ns", "kind_first",
     "size_class", "resident_share", "offset_ns", "drift_ns", "pointer_ns", "handle_ns", "step_ns"}
)  # fmt: skip
#: Columns that nobody adds up: two nodes that were started a year apart have clocks a year apart.
_NEVER_SUMMED = frozenset({"offset_ns"})
_KEY_NAMES = frozenset((int(key.kind), key.size_class) for key in ALL_KEYS)


def schema(found: int, path: str) -> None:
    """Refuse a file of a version that is not ours to read (older ones are, so far there is none).

    Raises:
        PlaceError: newer than this tool, or no version at all.
    """
    if found > SCHEMA:
        raise PlaceError(
            f"{path} has schema {found}, and this version of ckptstorm reads up to {SCHEMA}",
            "install a newer ckptstorm to read it",
        )
    if found < 1:
        raise PlaceError(f"{path} is damaged: there is no schema {found}", "copy the result folder again")


def phase(number: int) -> Phase:
    """The phase of that number (checked by `impossible`)."""
    return Phase(number)


def keys(named: Table) -> tuple[LatencyKey, ...]:
    """Rows of /latency_keys as keys (checked by `impossible`)."""
    names = zip(named["kind"].tolist(), named["size_class"].tolist(), strict=True)
    return tuple(LatencyKey(Kind(kind), size) for kind, size in names)


def impossible(tables: dict[str, Table], node_count: int) -> str:
    """The first thing in the tables of storm.h5 that no storm can have written; "" when there is none."""
    return (
        _impossible_numbers(tables)
        or _impossible_ranges(tables)
        or _impossible_keys(tables)
        or _impossible_ranks(tables, node_count)
        or timelines.impossible(tables["timelines"], tables["timeline"], len(tables["phases"]), node_count)
        or phasetables.impossible(tables, node_count)
        or load_tables.impossible(tables)
    )


def _impossible_numbers(tables: dict[str, Table]) -> str:
    for name, table in tables.items():
        for column in table.dtype.names or ("",):
            values = table[column] if column else table
            label = f'"{name}"' + (f" column {column}" if column else "")
            why = _impossible_column(np.ascontiguousarray(values), column) if values.size else ""
            if why:
                return f"{label} holds {why}"
    return ""


def _impossible_column(values: Table, column: str) -> str:
    least, most = values.min(), values.max()
    if not (np.isfinite(least) and np.isfinite(most)):
        return "what is no number"
    least, most = int(least), int(most)
    if column not in _SIGNED and least < 0:
        return "a negative number"
    furthest = max(-least, most)
    # The sum itself is only taken where it could be too large.
    is_summed = column not in _NEVER_SUMMED
    if is_summed and furthest * values.size >= _SUM_LIMIT and np.abs(values.astype(np.float64)).sum() >= _SUM_LIMIT:
        return "numbers that no storm can reach"
    if column.endswith("_ns") and furthest > TIME_LIMIT_NS:
        return "a time of more than ten years"
    return ""


def _impossible_ranges(tables: dict[str, Table]) -> str:
    phases = tables["phases"]
    known = [int(each) for each in Phase]
    if not np.isin(phases["phase"], known).all():
        return "it names a phase that there is not"
    lengths = {"row_first": ("row_count", "phase_rows"), "key_first": ("key_count", "latency_keys")}
    lengths["kind_first"] = ("row_count", "kind_ns")
    for first, (many, name) in lengths.items():
        stops = np.where(phases[first] >= 0, phases[first] + phases[many], 0)  # -1: not gathered
        if (phases[first] < -1).any() or (stops > len(tables[name])).any():
            return f"a phase points outside the table {name}"
    if not (phases["resident_share"] <= 1.0).all() or not (phases["resident_share"] >= -1.0).all():
        return "a page residency is no share"
    return ""


def _impossible_keys(tables: dict[str, Table]) -> str:
    named = tables["latency_keys"]
    if len(named) != len(tables["latency_counts"]):
        return "there are not as many histograms as names of histograms"
    names = set(zip(named["kind"].tolist(), named["size_class"].tolist(), strict=True))
    return "" if names <= _KEY_NAMES else "a histogram has a name that there is not"


def _impossible_ranks(tables: dict[str, Table], node_count: int) -> str:
    rows, nodes = tables["phase_rows"], tables["node_of_rank"]
    if len(rows) and int(rows["rank"].max()) >= len(nodes):
        return "a phase row names a rank that there is not"
    of_loads = tables["load_nodes"]["node"]
    if any((each >= node_count).any() for each in (nodes, rows["node"], of_loads)):
        return "a rank is on a node that there is not"
    for phase_row in tables["phases"]:
        ranks = rows["rank"][int(phase_row["row_first"]) :][: int(phase_row["row_count"])].astype(np.int64)
        if (np.diff(ranks) <= 0).any():
            return "a phase has a rank twice, or ranks out of order"
    return ""
