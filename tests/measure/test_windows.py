"""Windows of an open-loop load: every action in the window in which it was due, counted from then."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.measure import windows as module
from ckptstorm.measure.windows import Windows
from ckptstorm.sinks import KeepTimes

MS = 1_000_000


class _Noted(KeepTimes):
    """Keeps what it is given, with its indices."""

    def __init__(self):
        super().__init__(0)
        self.rows = []

    def store(self, first, start_ns, end_ns, result):
        index = range(first, first + len(start_ns))
        self.rows += zip(index, start_ns.tolist(), end_ns.tolist(), result.tolist(), strict=True)


def _ring(period_ns=MS, actions=4, ops_each=2):
    leads = np.tile([True] + [False] * (ops_each - 1), actions)
    due = np.repeat(np.arange(actions, dtype=np.int64) * period_ns, ops_each)
    return leads, due, actions * period_ns


def _run(count, cuts, late_ns=0, chunk=7):
    """An op takes 0.1 ms and starts `late_ns` after it was due (or after the op before it)."""
    leads, due, lap_ns = _ring()
    sink = Windows(_Noted, leads, due, lap_ns)
    sink.begin(1000 * MS)
    index = np.arange(count)
    all_due = 1000 * MS + index // 8 * lap_ns + due[index % 8]
    start = all_due + late_ns + np.where(leads[index % 8], 0, MS // 10)
    end = start + MS // 10
    for instant_ms, name in cuts:
        sink.cut(1000 * MS + instant_ms * MS, name)
    for first in range(0, count, chunk):
        part = slice(first, first + chunk)
        sink.store(first, start[part], end[part], np.zeros(len(start[part]), dtype=np.int64))
    return sink.finish(), all_due, start, end


@given(st.integers(0, 200), st.integers(1, 33), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_every_op_lands_in_the_window_in_which_it_was_due(count, chunk, first_ms, length_ms):
    """However chunks and windows fall: nothing is lost between named windows, nothing counted twice."""
    cuts = [(0, "before"), (first_ms, "during"), (first_ms + length_ms, "after")]
    found, due, start, end = _run(count, cuts, late_ns=3 * MS, chunk=chunk)
    rows = [row for window in found for row in window.inner.rows]
    assert [row[0] for row in rows] == list(range(count))
    for window in found:
        for index, counted_from, ended, _ in window.inner.rows:
            assert window.begin_ns <= due[index] < window.end_ns
            assert counted_from == (due[index] if index % 2 == 0 else start[index])
            assert ended == end[index]
        assert window.due_count == sum(1 for row in window.inner.rows if row[0] % 2 == 0)
        assert window.late_ns_max == (3 * MS if window.due_count else 0)
    assert sum(window.ended_count for window in found) == (count + 1) // 2


def test_what_was_due_in_a_stall_is_counted_from_then():
    """One op of 94 s: it is 94 s in the window in which it was due, and the users who came meanwhile waited too."""
    leads, due, lap_ns = _ring(period_ns=1000 * MS, actions=200, ops_each=1)
    sink = Windows(_Noted, leads, due, lap_ns)
    sink.begin(0)
    sink.cut(0, "before")
    sink.cut(10_000 * MS, "during")
    start, end = due.copy(), due + MS
    end[20] = due[20] + 94_000 * MS  # due at 20 s
    start[21:] = np.maximum(due[21:], end[20] + np.arange(179) * MS)
    end[21:] = start[21:] + MS
    sink.store(0, start, end, np.zeros(200, dtype=np.int64))
    before, during = sink.finish()
    latencies = np.array([row[2] - row[1] for row in during.inner.rows]) // MS
    assert latencies.max() == 94_000
    assert int((latencies > 1000).sum()) > 90
    assert (np.array([row[2] - row[1] for row in before.inner.rows]) == MS).all()
    assert during.late_ns_max == pytest.approx(93_000 * MS, rel=0.001)
    assert during.due_count == 190


def test_memory_is_bounded(monkeypatch):
    """Beyond the limit what was due long ago is handed on, and the rest is held back until its window is known."""
    monkeypatch.setattr(module, "_HELD_OPS", 100)
    monkeypatch.setattr(module, "_HEARD_WITHIN_NS", 10 * MS)
    leads, due, lap_ns = _ring()
    sink = Windows(_Noted, leads, due, lap_ns)
    sink.begin(0)
    sink.cut(0, "before")
    index = np.arange(1000)
    starts = index // 8 * lap_ns + due[index % 8]
    for first in range(0, 1000, 10):
        part = slice(first, first + 10)
        sink.store(first, starts[part], starts[part] + 5, np.zeros(10, dtype=np.int64))
        assert sink._held_count <= 110
        if first == 500:
            sink.cut(int(starts[first]), "during")
    before, during = sink.finish()
    assert (before.due_count, during.due_count) == (250, 250)


def test_time_that_nobody_asks_about_is_dropped():
    """Between windows, and before the first, ops are in no number."""
    found, *_ = _run(80, [(4, "during"), (8, ""), (12, "after")])
    assert [window.name for window in found] == ["during", "after"]
    assert [window.due_count for window in found] == [4, 28]
