"""The large frames, one row a rank, bin or stretch of time: columns copied once, repeated words as categories."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.histogram import bucket_high_ns, bucket_low_ns
from ckptstorm.measure.rows import PHASE_ROW_DTYPE, Rows
from ckptstorm.program import Kind
from ckptstorm.record.beside import Beside
from ckptstorm.record.latencies import ALL
from ckptstorm.record.load import summarize_actions
from ckptstorm.record.placed import placed
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.stragglers import late
from ckptstorm.record.summary import phase_summary
from ckptstorm.report.frame_columns import COLUMNS
from ckptstorm.sizes import SIZE_CLASS_NAMES

Column = Any

_KINDS = {int(kind): index for index, kind in enumerate(Kind)}
_SIZES = (*SIZE_CLASS_NAMES, ALL)


def ranks(record: StormRecord) -> pd.DataFrame:
    """One row a rank, phase and round."""
    phases = record.phases
    rows = _stacked_rows([phase.rows for phase in phases])
    columns = _which(record, [len(phase.rows) for phase in phases]) | {
        "rank": rows["rank"],
        "node": rows["node"],
        "host": _hosts(record, rows["node"]),
        "seconds": np.concatenate([np.zeros(0), *(_seconds(phase.rows) for phase in phases)]),
        "is_straggler": np.concatenate([np.zeros(0, dtype=np.bool_), *(late(phase) for phase in phases)]),
    }
    return _frame("ranks", columns | {name: rows[name] for name in COLUMNS["ranks"] if name not in columns})


def kind_ns(record: StormRecord) -> pd.DataFrame:
    """What each rank's time went into; kinds that took none are left out, and phases that do not know."""
    phases = [phase for phase in record.phases if len(phase.kind_ns)]
    columns = _which(record, [len(phase.rows) for phase in phases], phases)
    columns["rank"] = _stacked_rows([phase.rows for phase in phases])["rank"]
    for kind in Kind:
        each = [phase.kind_ns[:, kind] for phase in phases]
        if any(part.any() for part in each):
            columns[f"{kind.word}_ns"] = np.concatenate(each)
    return pd.DataFrame(columns, copy=False)


def latency(record: StormRecord) -> pd.DataFrame:
    """One row a bin that is not empty."""
    found = [np.nonzero(phase.latency.counts) for phase in record.phases]
    keys = [(phase.latency, keys) for phase, (keys, _) in zip(record.phases, found, strict=True)]
    buckets = np.concatenate([np.zeros(0, dtype=np.int64), *(buckets for _, buckets in found)])
    nothing: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    kinds = [np.array([_KINDS[key.kind] for key in table.keys], dtype=np.int64)[rows] for table, rows in keys]
    # The last size class, "all", is what -1 names.
    sizes = [np.array([key.size_class for key in table.keys], dtype=np.int64)[rows] for table, rows in keys]
    columns = _which(record, [len(rows) for _, rows in keys]) | {
        "kind": _categories(np.concatenate([nothing, *kinds]), [kind.word for kind in Kind]),
        "size_class": _categories(np.concatenate([nothing, *sizes]) % len(_SIZES), _SIZES),
        "low_ns": bucket_low_ns(buckets),
        "high_ns": bucket_high_ns(buckets),
        "count": np.concatenate([nothing, *(p.latency.counts[f] for p, f in zip(record.phases, found, strict=True))]),
        "max_ns": np.concatenate([nothing, *(table.max_ns[rows] for table, rows in keys)]),
        "sum_ns": np.concatenate([nothing, *(table.sum_ns[rows] for table, rows in keys)]),
    }
    return _frame("latency", columns)


def timeline(record: StormRecord) -> pd.DataFrame:
    """One row a node and bin."""
    phases = [phase for phase in record.phases if phase.timeline.bins.size]
    shapes = [phase.timeline.bins.shape for phase in phases]
    nothing: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    nodes = np.concatenate([nothing, *(np.repeat(np.arange(nodes), bins) for nodes, bins in shapes)]).astype(np.uint32)
    widths = [phase.timeline.bin_ns for phase in phases]
    starts = [np.tile(np.arange(s[1]) * width, s[0]) for s, width in zip(shapes, widths, strict=True)]
    columns = _which(record, [nodes * bins for nodes, bins in shapes], phases) | {
        "node": nodes,
        "host": _hosts(record, nodes),
        "start_ns": np.concatenate([nothing, *starts]),
        "bin_ns": np.repeat(np.array(widths, dtype=np.int64), [nodes * bins for nodes, bins in shapes]),
    }
    for name in ("bytes", "data_op_count", "other_op_count"):
        columns[name] = np.concatenate([nothing[:0], *(phase.timeline.bins[name].reshape(-1) for phase in phases)])
    return _frame("timeline", columns)


def placement(record: StormRecord) -> pd.DataFrame:
    """One row a rank, file and target; ranks of whose files nothing is known have one row."""
    found = placed(record).files
    pairs: list[tuple[int, str | None, str | None]] = [(f.rank, f.name, target) for f in found for target in f.targets]
    known = {rank for rank, _, _ in pairs}
    pairs += [(rank, None, None) for rank in range(len(record.node_of_rank)) if rank not in known]
    pairs.sort(key=lambda pair: pair[0])
    ranks = np.array([rank for rank, _, _ in pairs], dtype=np.uint32)
    nodes = np.array(record.node_of_rank, dtype=np.uint32)[ranks]
    storm = _categories(np.zeros(len(pairs), dtype=np.int8), [record.storm_id])
    columns = {"storm_id": storm, "rank": ranks, "node": nodes, "host": _hosts(record, nodes)}
    targets = sorted({target for _, _, target in pairs if target is not None})
    at: dict[str | None, int] = {None: -1} | {target: index for index, target in enumerate(targets)}
    columns["file"] = pd.array([name for _, name, _ in pairs], dtype="str")
    columns["target"] = _categories(np.array([at[target] for _, _, target in pairs], dtype=np.int32), targets)
    return _frame("placement", columns)


def loads(record: StormRecord) -> pd.DataFrame:
    """One row a load's stage (or a window of one beside a save), round and action."""
    rows = []
    for phase in record.phases:
        load = phase.load
        if load is None:
            continue
        seconds = load.beside.seconds if load.beside is not None else phase_summary(phase, record).seconds
        kept = load.beside or Beside("", seconds, 0, 0, 0)
        which = {"storm_id": record.storm_id, "phase": phase.word, "round": phase.round, "load": load.load}
        for each in summarize_actions(load, seconds):
            times = {f"{name}_ns": getattr(each.latency_ns, name) for name in ("p50", "p90", "p99", "p999", "max")}
            rows.append(which | asdict(kept) | asdict(each) | times)
    return pd.DataFrame(rows, columns=list(COLUMNS["loads"]))


def stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Frames of several storms, one below the other; categories stay categories."""
    words = [name for name in frames[0].columns if isinstance(frames[0][name].dtype, pd.CategoricalDtype)]
    for name in words:
        merged = pd.api.types.union_categoricals([frame[name] for frame in frames])
        ends = np.cumsum([len(frame) for frame in frames])[:-1]
        for frame, codes in zip(frames, np.split(merged.codes, ends), strict=True):
            frame[name] = pd.Categorical.from_codes(codes, dtype=merged.dtype)
    return pd.concat(frames, ignore_index=True)


def _which(record: StormRecord, counts: list[int], phases: list[PhaseRecord] | None = None) -> dict[str, Column]:
    """The columns that say which storm, phase and round: `counts` rows of each phase."""
    of = list(record.phases) if phases is None else phases
    words = list(dict.fromkeys(phase.word for phase in record.phases))
    numbers = np.repeat(np.array([words.index(phase.word) for phase in of], dtype=np.int32), counts)
    rounds = np.repeat(np.array([phase.round for phase in of], dtype=np.int32), counts)
    return {
        "storm_id": _categories(np.zeros(len(numbers), dtype=np.int8), [record.storm_id]),
        "phase": _categories(numbers, words),
        "round": rounds,
    }


def _hosts(record: StormRecord, nodes: NDArray[Any]) -> pd.Categorical:
    """Host names by node; two nodes may bear one name."""
    names = sorted({node.host for node in record.nodes})
    code_of = {name: code for code, name in enumerate(names)}
    codes = np.array([code_of[node.host] for node in record.nodes], dtype=np.int32)
    return _categories(codes[nodes] if len(nodes) else np.zeros(0, dtype=np.int32), names)


def _seconds(rows: Rows) -> NDArray[np.float64]:
    first = int(rows["release_ns"].min()) if len(rows) else 0
    durable = rows["durable_ns"]
    return np.where(durable >= 0, (durable - first) / NS_PER_S, np.nan)


def _stacked_rows(parts: list[Rows]) -> Rows:
    return np.concatenate([np.zeros(0, dtype=PHASE_ROW_DTYPE), *parts])


def _categories(codes: NDArray[Any], names: Any) -> pd.Categorical:
    return pd.Categorical.from_codes(codes, categories=pd.Index(list(names), dtype=object))


def _frame(name: str, columns: dict[str, Column]) -> pd.DataFrame:
    """The frame with its documented columns, in their order."""
    plain = {key: np.ascontiguousarray(c) if isinstance(c, np.ndarray) else c for key, c in columns.items()}
    return pd.DataFrame({key: plain[key] for key in COLUMNS[name]}, copy=False)
