"""A wrapper that plants delays, errors and ends of ranks into another engine's programs: a fault on demand.

It has no other way in than `[[fault]]`, and the record says that it was there. The wrapped engine
runs the ops before and after untouched; the planted op itself is run alone, and its time shows the delay.
"""

from __future__ import annotations

import errno as errno_names
import fnmatch
import os
import signal
import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ckptstorm.clock import monotonic_ns
from ckptstorm.engines.contract import Notes, Prepared, Preparer
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Program
from ckptstorm.sinks import OPS_DONE, STOP, Int64s, Sink

#: A planted delay looks at the sink this often, so that a stop is obeyed within 100 ms.
_NAP_S = 0.05


@dataclass(frozen=True, slots=True)
class Planted:
    """One fault for this rank and phase.

    Attributes:
        kind: the op kind it falls on.
        nth: which of them, from 1, in the order of the rank's programs in that phase.
        file: a shell pattern over the op's path ("*" for any).
        delay_ns: how much longer the op takes; 0: none.
        errno: how the op ends instead of being made; 0: it is made.
        ends: what the rank's process does to itself before the op: kill, stop; "" for nothing.
    """

    kind: Kind
    nth: int
    file: str = "*"
    delay_ns: int = 0
    errno: int = 0
    ends: Literal["", "kill", "stop"] = ""


def errno_number(name: str) -> int:
    """The number of "EIO", "ENOSPC" …; 0 when there is no such errno."""
    return int(getattr(errno_names, name, 0)) if name in errno_names.errorcode.values() else 0


class SlowEngine:
    """An engine with faults planted; everything else is the wrapped engine's."""

    def __init__(self, inner: Preparer, planted: tuple[Planted, ...], on_error: str) -> None:
        self._inner, self._planted, self._on_error = inner, planted, on_error
        self._seen = [0] * len(planted)  # ops of each fault's kind in the programs prepared so far

    def prepare(self, program: Program, payload: Payload) -> Prepared:
        """See `contract.Engine.prepare`."""
        inner = self._inner.prepare(program, payload)
        at = {}
        for number, fault in enumerate(self._planted):
            candidates = matching_ops(program, fault.kind, fault.file)
            if 0 < fault.nth - self._seen[number] <= len(candidates):
                at[int(candidates[fault.nth - self._seen[number] - 1])] = fault
            self._seen[number] += len(candidates)
        return _SlowProgram(inner, program, dict(sorted(at.items())), self._on_error) if at else inner


class _SlowProgram:
    """The wrapped program, run in spans between the planted ops."""

    def __init__(self, inner: Prepared, program: Program, at: dict[int, Planted], on_error: str) -> None:
        self._inner, self._program, self._at, self._on_error = inner, program, at, on_error

    def run(self, sink: Sink, first: int, stop: int) -> int:
        """See `contract.Prepared.run`."""
        index = first
        for position, fault in self._at.items():
            if not index <= position < stop:
                continue
            index = self._inner.run(sink, index, position)
            if index < position or sink.control[STOP]:
                return index
            index, goes_on = self._run_planted(sink, position, fault)
            if not goes_on:
                return index
        return self._inner.run(sink, index, stop)

    def finish(self) -> Notes:
        """See `contract.Prepared.finish`."""
        return self._inner.finish()

    def _run_planted(self, sink: Sink, position: int, fault: Planted) -> tuple[int, bool]:
        start = monotonic_ns()
        _sleep_until(start + fault.delay_ns, sink)
        if fault.ends:
            os.kill(os.getpid(), signal.SIGKILL if fault.ends == "kill" else signal.SIGSTOP)
        if fault.errno:
            sink.store(position, _one(start), _one(monotonic_ns()), _one(-fault.errno))
            sink.control[OPS_DONE] += 1
            is_error = fault.errno != int(self._program.ops["expect"][position])
            return position + 1, not (is_error and self._on_error == "stop")
        index = self._inner.run(_Earlier(sink, start), position, position + 1)
        return index, index == position + 1


class _Earlier:
    """A sink that starts the one op it takes at the moment the delay began."""

    def __init__(self, sink: Sink, start_ns: int) -> None:
        self.control = sink.control
        self._sink, self._start_ns = sink, start_ns

    def store(self, first: int, start_ns: Int64s, end_ns: Int64s, result: Int64s) -> None:
        """See `Sink.store`."""
        self._sink.store(first, np.full_like(start_ns, self._start_ns), end_ns, result)


def matching_ops(program: Program, kind: Kind, file: str) -> Int64s:
    """Indices of the ops of a kind whose path matches a shell pattern."""
    candidates = np.flatnonzero(program.ops["kind"] == kind).astype(np.int64)
    if file == "*":
        return candidates
    places = [program.location(int(program.ops["file"][index])) for index in candidates]
    return candidates[[fnmatch.fnmatch(place, file) for place in places]] if places else candidates


def _sleep_until(deadline_ns: int, sink: Sink) -> None:
    while (left_ns := deadline_ns - monotonic_ns()) > 0 and not sink.control[STOP]:
        time.sleep(min(left_ns / 1e9, _NAP_S))


def _one(value: int) -> Int64s:
    return np.array([value], dtype=np.int64)
