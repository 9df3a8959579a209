"""The trace: what Perfetto needs to open it, and the times of the record in it."""

from __future__ import annotations

import json

from ckptstorm.measure.rows import STATE_INCOMPLETE
from ckptstorm.report.perfetto import pieces
from tests.record import synthetic
from tests.record.synthetic import Make, with_column


def _trace(record) -> dict:
    return json.loads("".join(pieces(record)))


def test_every_rank_has_a_track_with_its_phases():
    """Named after rank and node; slices that are complete, in order, and do not overlap on a track."""
    made = synthetic.record(Make(ranks=6, nodes=2, rounds=2, late={5: 3.0}))
    events = _trace(made)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(names.values()) == [f"rank {rank}" for rank in range(6)]
    nodes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert nodes == {1: "node 0 (gpu000)", 2: "node 1 (gpu001)"}
    for track in names:
        slices = [e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == track]
        whole = [e["name"] for e in slices if e["name"] in ("save", "restore")]
        assert whole == ["save", "restore", "save", "restore"]
        ends = 0.0
        for each in slices:
            assert each["ts"] >= ends - 1e-6
            assert each["dur"] >= 0
            ends = each["ts"] + each["dur"]


def test_times_are_the_records():
    """In microseconds; the straggler's save is three seconds longer, and the others wait for it."""
    made = synthetic.record(Make(ranks=4, rounds=1, late={2: 3.0}))
    events = _trace(made)["traceEvents"]
    saves = {e["tid"] - 1: e for e in events if e["name"] == "save"}
    rows = made.phases[0].rows
    for rank, each in saves.items():
        assert each["dur"] * 1000 == int(rows["durable_ns"][rank] - rows["release_ns"][rank])
    waits = {e["tid"] - 1: e["dur"] for e in events if e["name"] == "waits for the others" and e["ts"] < 10e6}
    assert waits[0] > 2.8e6 > waits[2]
    assert saves[2]["args"]["fsync_ms"] > 3000


def test_a_rank_that_did_not_finish_is_named_so():
    """Its slice lasts until it knew."""
    made = with_column(synthetic.record(Make(rounds=1)), 0, "state", [0, STATE_INCOMPLETE, 0, 0])
    made = with_column(made, 0, "durable_ns", [1, -1, 1, 1])
    assert [e["tid"] for e in _trace(made)["traceEvents"] if e["name"] == "save (not finished)"] == [2]


def test_a_node_has_its_bytes():
    """As a counter whose integral is what the timeline moved, and which ends at 0."""
    made = synthetic.record(Make(ranks=4, nodes=2, rounds=1))
    events = _trace(made)["traceEvents"]
    for phase in made.phases[:1]:
        for node in range(2):
            found = [e for e in events if e["ph"] == "C" and e["pid"] == node + 1]
            assert found and found[-1]["args"]["bytes_per_s"] == 0.0
            peak = int(phase.timeline.bins[node]["bytes"].max()) * 1e9 / phase.timeline.bin_ns
            assert max(e["args"]["bytes_per_s"] for e in found) >= peak


def test_an_empty_record_is_a_trace_too():
    """A storm that was lost before its first phase."""
    assert _trace(synthetic.record(phases=()))["traceEvents"]
