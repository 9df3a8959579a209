"""A record as a trace that ui.perfetto.dev opens: a track a rank, a slice a phase, and the bytes of each node.

The format is Chrome's trace event format (JSON), which Perfetto reads. Each phase of a record has its own zero, the
announced release; here they stand one after the other, for what passed between two phases is not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from ckptstorm.clock import NS_PER_S
from ckptstorm.measure.rows import STATE_INCOMPLETE
from ckptstorm.program import Kind
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.stragglers import host_of
from ckptstorm.record.words import round_words

Event = dict[str, Any]

#: Between two phases, so that their slices do not touch.
_GAP_NS = 10_000_000


def pieces(record: StormRecord) -> Iterator[str]:
    """The JSON of the trace, piece by piece: a large world's does not fit into memory as a whole."""
    yield '{"displayTimeUnit":"ms","otherData":'
    yield json.dumps({"storm_id": record.storm_id, "note": "phases stand one after the other"})
    yield ',"traceEvents":['
    encoder = msgspec.json.Encoder()
    for index, event in enumerate(_events(record)):
        yield f"{',' if index else ''}\n{encoder.encode(event).decode()}"
    yield "\n]}\n"


def _events(record: StormRecord) -> Iterator[Event]:
    yield from _names(record)
    origin_ns = 0
    for phase in record.phases:
        yield from _ranks(phase, origin_ns)
        yield from _bytes(phase, origin_ns)
        origin_ns += _whole_ns(phase) + _GAP_NS


def _names(record: StormRecord) -> Iterator[Event]:
    """A process a node, a thread a rank; numbers from 1, for 0 means something else to a reader."""
    for node in range(len(record.nodes)):
        yield _name("process_name", f"node {node} ({host_of(record, node)})", node, 0)
        yield {"ph": "M", "name": "process_sort_index", "pid": node + 1, "tid": 0, "args": {"sort_index": node}}
    for rank, node in enumerate(record.node_of_rank):
        yield _name("thread_name", f"rank {rank}", node, rank + 1)


def _name(kind: str, name: str, node: int, tid: int) -> Event:
    return {"ph": "M", "name": kind, "pid": node + 1, "tid": tid, "args": {"name": name}}


def _whole_ns(phase: PhaseRecord) -> int:
    columns = ("durable_ns", "committed_ns", "done_ns")
    return max((int(phase.rows[name].max(initial=0)) for name in columns), default=0)


#: Columns of a phase row that a slice is made of, taken out at once: row by row a large world takes minutes.
_COLUMNS = (
    "node", "rank", "state", "release_ns", "durable_ns", "committed_ns", "done_ns", "bytes", "data_op_count",
    "error_count",
)  # fmt: skip


def _ranks(phase: PhaseRecord, origin_ns: int) -> Iterator[Event]:
    columns = [phase.rows[name].tolist() for name in _COLUMNS]
    kinds = [kind for kind in Kind if len(phase.kind_ns) == len(phase.rows) and phase.kind_ns[:, kind].any()]
    spent = [(phase.kind_ns[:, kind] / 1e6).tolist() for kind in kinds]
    names = [f"{kind.word}_ms" for kind in kinds]
    number = round_words(phase.round)
    for index, row in enumerate(zip(*columns, strict=True)):
        node, rank, state, release_ns, durable_ns, committed_ns, done_ns, moved, ops, errors = row
        at = {"pid": node + 1, "tid": rank + 1}
        ended_ns = durable_ns if durable_ns >= 0 else done_ns
        name = phase.word + (" (not finished)" if state & STATE_INCOMPLETE else "")
        about = {"round": number, "bytes": moved, "data_op_count": ops, "error_count": errors}
        about |= {word: ms[index] for word, ms in zip(names, spent, strict=True) if ms[index]}
        yield _slice(name, origin_ns + release_ns, ended_ns - release_ns, at, about)
        if committed_ns > ended_ns:
            yield _slice("commit", origin_ns + ended_ns, committed_ns - ended_ns, at, {})
        waits_from_ns = max(ended_ns, committed_ns)
        if done_ns > waits_from_ns:
            yield _slice("waits for the others", origin_ns + waits_from_ns, done_ns - waits_from_ns, at, {})


def _slice(name: str, start_ns: int, lasts_ns: int, at: dict[str, int], about: dict[str, Any]) -> Event:
    """Times in microseconds, as the format has them; thousandths of one are kept."""
    times = {"ts": start_ns / 1000, "dur": max(lasts_ns, 0) / 1000}
    return {"ph": "X", "name": name, "cat": "ckptstorm"} | times | at | {"args": about}


def _bytes(phase: PhaseRecord, origin_ns: int) -> Iterator[Event]:
    """A counter a node: bytes per second in each stretch of time, and 0 after the last."""
    bins, bin_ns = phase.timeline.bins, phase.timeline.bin_ns
    for node in range(bins.shape[0]):
        rates = [int(moved) * NS_PER_S / bin_ns for moved in bins[node]["bytes"]] + [0.0]
        for index, rate in enumerate(rates):
            if index == 0 or rate != rates[index - 1]:
                stamp = (origin_ns + index * bin_ns) / 1000
                named = {"name": "bytes per second", "args": {"bytes_per_s": rate}}
                yield {"ph": "C", "ts": stamp, "pid": node + 1, "tid": 0} | named
