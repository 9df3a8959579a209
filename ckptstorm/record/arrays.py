"""storm.h5: the arrays of a record, in a few flat tables that pandas opens without help.

    /phases           one row a phase and round; `row_first` and `row_count`, `key_first` and
                      `key_count` say which rows of the tables below are its own, `kind_first`
                      where its `row_count` rows of kind_ns begin (-1: not gathered)
    /phase_rows       one row a rank and phase: measure/rows.py
    /kind_ns          beside them, when gathered: what each rank's time went into, by op kind
    /pace             beside them, where ranks were delayed by plan or saves staged: measure/pace.py, and the index of
                      the phase; older folders have none
    /latency_keys     op kind, size class, exact maximum and sum of each histogram
    /latency_counts   the histograms: measure/histogram.py
    /timelines        one row a phase that has a timeline: which rows of /timeline are its own
    /timeline         bytes and ops by node and short stretch of time: measure/timeline.py
    /clocks           one row a phase and clock that is not rank 0's: measure/clocks.py
    /visibility       one row a save and node, where there are several: measure/visibility.py
    /node_of_rank
    /load_actions     of loads: a row a phase and action: exact maximum, bytes; /load_counts their histograms
    /load_nodes       a row a phase, node and action: record/load.py
    /load_seconds     a row a phase and second: ops and bytes that ended in it

Metadata carry the checksums of HDF5's newer format, data those of its fletcher32 filter.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.errors import PlaceError
from ckptstorm.measure.histogram import BUCKET_COUNT
from ckptstorm.measure.latency import LatencyTable
from ckptstorm.measure.rows import KIND_SLOTS, PHASE_ROW_DTYPE
from ckptstorm.measure.timeline import BIN_DTYPE
from ckptstorm.record import checks, load_tables, phasetables, timelines
from ckptstorm.record.load import NODE_DTYPE
from ckptstorm.record.record import SCHEMA, PhaseRecord, StormRecord

Table = NDArray[Any]

PHASES_DTYPE = np.dtype(
    [
        ("phase", "u1"),
        ("round", "<i4"),
        ("row_first", "<i8"),
        ("row_count", "<i8"),
        ("key_first", "<i8"),
        ("key_count", "<i8"),
        ("kind_first", "<i8"),
        ("barrier_to_barrier_ns", "<i8"),
        ("barrier_cost_ns", "<i8"),
        ("clock_uncertainty_ns", "<i8"),
        ("planned_bytes", "<i8"),
        ("planned_sync_count", "<i8"),
        ("planned_op_count", "<i8"),
        ("drain_ns", "<i8"),
        ("resident_share", "<f8"),
    ]
)
#: Columns of `PHASES_DTYPE` that are fields of `PhaseRecord` under the same name.
PHASE_FIELDS = tuple(PHASES_DTYPE.names or ())[7:]
KEYS_DTYPE = np.dtype([("kind", "u1"), ("size_class", "i1"), ("max_ns", "<i8"), ("sum_ns", "<i8")])


@dataclass(frozen=True, slots=True)
class TableShape:
    """What a table of storm.h5 must look like: type, columns (0: one-dimensional), most rows."""

    dtype: np.dtype[Any]
    columns: int
    row_limit: int


#: Every table, with limits far beyond any storm: a small file must not be able to ask for all memory.
TABLES = {
    "phases": TableShape(PHASES_DTYPE, 0, 1 << 20),
    "phase_rows": TableShape(PHASE_ROW_DTYPE, 0, 1 << 25),
    "kind_ns": TableShape(np.dtype("<i8"), KIND_SLOTS, 1 << 23),
    "latency_keys": TableShape(KEYS_DTYPE, 0, 1 << 20),
    "latency_counts": TableShape(np.dtype("<i8"), BUCKET_COUNT, 1 << 17),
    "timelines": TableShape(timelines.TIMELINES_DTYPE, 0, 1 << 20),
    "timeline": TableShape(BIN_DTYPE, 0, 1 << 26),
    **{name: TableShape(dtype, 0, 1 << 25) for name, dtype in phasetables.PHASE_TABLES.items()},
    "node_of_rank": TableShape(np.dtype("<i4"), 0, 1 << 24),
    "load_actions": TableShape(load_tables.ACTIONS_DTYPE, 0, 1 << 20),
    "load_counts": TableShape(np.dtype("<i8"), BUCKET_COUNT, 1 << 17),
    "load_nodes": TableShape(NODE_DTYPE, 0, 1 << 24),
    "load_seconds": TableShape(load_tables.SECONDS_DTYPE, 0, 1 << 26),
}
#: Columns of "kind_ns" when there were fewer op kinds: the newer ones took no time.
_KIND_SLOTS_LEAST = 37
#: Tables that came later, and may be absent: nothing was gathered then.
LATER = frozenset({"timelines", "timeline", *phasetables.PHASE_TABLES, *load_tables.NAMES})
#: What is large and not always wanted, by what `read` and `files.load` call it.
PARTS = {"kind_ns": ("kind_ns",), "timeline": ("timelines", "timeline")}
#: Bytes of all tables together that a reader is ready to hold.
TOTAL_LIMIT_BYTES = 4 << 30
#: Rows of a chunk, by table; what is smaller than this is one chunk.
_CHUNK_ROWS = {"latency_counts": 16, "load_counts": 16}
_CHUNK_ROWS_ELSE = 4096
#: What h5py raises when a file is not what it should be.
_H5_ERRORS = (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, UnicodeError, OverflowError)


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """The arrays of a record as read: per phase its record without texts, and who ran where."""

    phases: tuple[PhaseRecord, ...]
    node_of_rank: tuple[int, ...]


def write(record: StormRecord, path: Path) -> None:
    """Write storm.h5 (a new file).

    It is made in memory: libhdf5 cannot give up a file on a full disk without complaining until the process ends.
    """
    import h5py  # here, so that who only reads storm.json needs no HDF5

    image = io.BytesIO()
    with h5py.File(image, "w", libver=("v110", "v110")) as file:
        file.attrs["schema"] = SCHEMA
        file.attrs["storm_id"] = record.storm_id
        for name, table in _tables(record).items():
            rows = max(min(len(table), _CHUNK_ROWS.get(name, _CHUNK_ROWS_ELSE)), 1)
            file.create_dataset(
                name,
                data=table,
                maxshape=(None, *table.shape[1:]),
                chunks=(rows, *table.shape[1:]),
                compression="gzip",
                compression_opts=1,
                shuffle=True,
                fletcher32=True,
            )
    with path.open("xb") as storm_h5:
        storm_h5.write(image.getbuffer())


def read(path: Path, node_count: int, leave_out: Collection[str] = ()) -> Arrays:
    """Read storm.h5, distrusting it.

    Args:
        path: the file.
        node_count: nodes that storm.json tells of.
        leave_out: names of `PARTS` that are not wanted: they read as if they had not been gathered.

    Raises:
        PlaceError: a table is missing, of another shape or type, too large, or holds impossible values.
    """
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            checks.schema(int(file.attrs["schema"]), str(path))
            wanted = _wanted(file, leave_out)
            _check_shapes(file, path, wanted)
            tables = {name: np.asarray(file[name][()]) if name in wanted else empty(name) for name in TABLES}
    except _H5_ERRORS as error:
        raise _damaged(path, str(error).splitlines()[0] if str(error) else "it cannot be read") from error
    missing = KIND_SLOTS - tables["kind_ns"].shape[1]
    tables["kind_ns"] = np.pad(tables["kind_ns"], ((0, 0), (0, missing)))
    if "kind_ns" in leave_out:
        tables["phases"]["kind_first"] = -1
    why = checks.impossible(tables, node_count)
    if why:
        raise _damaged(path, why)
    moved_when = timelines.from_tables(tables["timelines"], tables["timeline"], len(tables["phases"]))
    names, count = phasetables.PHASE_TABLES, len(moved_when)
    some: dict[str, Any] = {name: phasetables.from_table(name, tables[name], count) for name in names}
    some["load"] = load_tables.from_tables(tables, count)
    phases = tuple(
        replace(_phase(row, tables), timeline=when, **{name: parts[index] for name, parts in some.items()})
        for index, (row, when) in enumerate(zip(tables["phases"], moved_when, strict=True))
    )
    return Arrays(phases, tuple(tables["node_of_rank"].tolist()))


def empty(name: str) -> Table:
    """A table without rows."""
    shape = TABLES[name]
    return np.zeros((0, shape.columns) if shape.columns else (0,), dtype=shape.dtype)


def _wanted(file: Any, leave_out: Collection[str]) -> set[str]:
    """The tables to read: all but those left out, and those that the file may lack, and does."""
    unwanted = {name for part in leave_out for name in PARTS[part]}
    absent = {name for name in LATER if file.get(name, getlink=True) is None}
    return set(TABLES) - unwanted - absent


def _tables(record: StormRecord) -> dict[str, Table]:
    latencies = [phase.latency for phase in record.phases]
    kinds = [phase.kind_ns for phase in record.phases if len(phase.kind_ns)]
    moved_when, bins = timelines.to_tables([phase.timeline for phase in record.phases])
    return {
        "phases": _phase_table(record.phases),
        "phase_rows": _stack([phase.rows for phase in record.phases], "phase_rows"),
        "kind_ns": _stack(kinds, "kind_ns"),
        "latency_keys": _stack([_keys(latency) for latency in latencies], "latency_keys"),
        "latency_counts": _stack([latency.counts for latency in latencies], "latency_counts"),
        "timelines": moved_when,
        "timeline": bins,
        **{
            name: phasetables.to_table(name, [getattr(phase, name) for phase in record.phases])
            for name in phasetables.PHASE_TABLES
        },
        "node_of_rank": np.array(record.node_of_rank, dtype="<i4"),
        **{name: _stack(parts, name) for name, parts in load_tables.parts(record.phases).items()},
    }


def _stack(parts: list[Table], name: str) -> Table:
    return np.concatenate([empty(name), *parts]).astype(TABLES[name].dtype, copy=False)


def _phase_table(phases: tuple[PhaseRecord, ...]) -> Table:
    table = np.zeros(len(phases), dtype=PHASES_DTYPE)
    for row, phase in zip(table, phases, strict=True):
        row["phase"], row["round"] = int(phase.phase), phase.round
        row["row_count"], row["key_count"] = len(phase.rows), len(phase.latency.keys)
        for name in PHASE_FIELDS:
            row[name] = getattr(phase, name)
    table["row_first"] = _starts(table["row_count"].tolist())
    table["key_first"] = _starts(table["key_count"].tolist())
    gathered = [len(phase.kind_ns) for phase in phases]
    table["kind_first"] = np.where(np.array(gathered) > 0, _starts(gathered), -1) if gathered else []
    return table


def _starts(counts: list[int]) -> list[int]:
    """Where each run begins when they stand one after the other."""
    return [0, *accumulate(counts)][: len(counts)]


def _keys(latency: LatencyTable) -> Table:
    table = np.zeros(len(latency.keys), dtype=KEYS_DTYPE)
    table["kind"] = [int(key.kind) for key in latency.keys]
    table["size_class"] = [key.size_class for key in latency.keys]
    table["max_ns"], table["sum_ns"] = latency.max_ns, latency.sum_ns
    return table


def _check_shapes(file: Any, path: Path, names: Collection[str]) -> None:
    """Before a byte of data is read: hard links to plain datasets of the right type and a bearable size."""
    import h5py

    total_bytes = 0
    for name, shape in TABLES.items():
        if name not in names:
            continue
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            raise _damaged(path, f'the table "{name}" is missing, or stands in another file')
        data = file[name]
        if not isinstance(data, h5py.Dataset) or data.is_virtual or data.external:
            raise _damaged(path, f'"{name}" is no plain table')
        wanted = (shape.columns,) if shape.columns else ()
        if name == "kind_ns" and data.ndim == 2 and _KIND_SLOTS_LEAST <= data.shape[1] < KIND_SLOTS:
            wanted = (data.shape[1],)
        if data.dtype != shape.dtype or data.ndim != len(wanted) + 1 or data.shape[1:] != wanted:
            raise _damaged(path, f'the table "{name}" has columns of another type')
        total_bytes += data.size * shape.dtype.itemsize
        if data.shape[0] > shape.row_limit or total_bytes > TOTAL_LIMIT_BYTES:
            raise _damaged(path, f'the table "{name}" claims {data.shape[0]:,} rows, more than any storm has')


def _phase(row: np.void, tables: dict[str, Table]) -> PhaseRecord:
    rows = slice(int(row["row_first"]), int(row["row_first"] + row["row_count"]))
    keys = slice(int(row["key_first"]), int(row["key_first"] + row["key_count"]))
    named = tables["latency_keys"][keys]
    latency = LatencyTable(
        checks.keys(named), tables["latency_counts"][keys], named["max_ns"].copy(), named["sum_ns"].copy()
    )
    fields = {name: row[name].item() for name in PHASE_FIELDS}
    phase, first = checks.phase(int(row["phase"])), int(row["kind_first"])
    kind_ns = tables["kind_ns"][first : first + int(row["row_count"])] if first >= 0 else tables["kind_ns"][:0]
    its_rows = tables["phase_rows"][rows]
    return PhaseRecord(phase, int(row["round"]), its_rows, latency, kind_ns=kind_ns, **fields)


def _damaged(path: Path, why: str) -> PlaceError:
    return PlaceError(f"{path} is damaged: {why}", "copy the result folder again, or run the storm again")
