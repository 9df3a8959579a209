"""The engine that moves nothing: what is left is the cost of the instrument itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ckptstorm.clock import monotonic_ns
from ckptstorm.engines.contract import Notes, Setup
from ckptstorm.payload import Payload
from ckptstorm.program import Program
from ckptstorm.sinks import BYTES_MOVED, OPS_DONE, STOP, OpTimes, Shifted, Sink

_CHUNK_OPS = 1024


class NullEngine:
    """Two clock reads an op and nothing between them; no record of it is ever valid."""

    name: ClassVar[str] = "null"
    moves_data: ClassVar[bool] = False
    honours: ClassVar[dict[str, tuple[object, ...]]] = {}

    def __init__(self, setup: Setup) -> None:
        del setup

    @classmethod
    def missing(cls) -> str:
        """See `contract.Engine.missing`."""
        return ""

    def prepare(self, program: Program, payload: Payload) -> NullProgram:
        """See `contract.Engine.prepare`."""
        del payload
        return NullProgram(program)


class NullProgram:
    """Pretends that each op did all that was planned."""

    def __init__(self, program: Program) -> None:
        self._results = program.expected_bytes()

    def run(self, sink: Sink, first: int, stop: int) -> int:
        """See `contract.Prepared.run`."""
        control = sink.control
        for chunk in range(first, stop, _CHUNK_OPS):
            count = min(_CHUNK_OPS, stop - chunk)
            if control[STOP]:
                return chunk
            times = OpTimes.empty(count)
            starts, ends = times.start_ns, times.end_ns
            for index in range(count):
                starts[index] = monotonic_ns()
                ends[index] = monotonic_ns()
            results = self._results[chunk : chunk + count]
            sink.store(chunk, starts, ends, results)
            control[OPS_DONE] += count
            control[BYTES_MOVED] += int(results.sum())
        return stop

    def repeat(
        self,
        sink: Sink,
        first: int,
        stop: int,
        deadline_ns: int,
        op_limit: int | None = None,
        refill: Callable[[], None] | None = None,
    ) -> int:
        """See `contract.Repeating.repeat`; the deadline is looked at once a chunk."""
        total = 0
        while stop > first and monotonic_ns() < deadline_ns and (op_limit is None or total < op_limit):
            at = first + total % (stop - first)
            wanted = min(stop - at, _CHUNK_OPS, stop if op_limit is None else op_limit - total)
            done = self.run(Shifted(sink, total - at), at, at + wanted) - at
            total += done
            if done < wanted:
                break
            if refill is not None and total % (stop - first) == 0:
                refill()
        return total

    def finish(self) -> Notes:
        """See `contract.Prepared.finish`."""
        return Notes()
