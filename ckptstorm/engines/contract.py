"""What an engine is: it runs op tables and tells the time of each op; it knows no jobs and no worlds.

Engines never raise for an I/O error and never retry: the error is a measurement. A program is
prepared before the release (buffers allocated, nothing moved), then run, whole or in spans: the
spans let a planted fault fall between two ops without the engine knowing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from ckptstorm.payload import Mismatch, Payload
from ckptstorm.program import Program
from ckptstorm.sinks import Sink


@dataclass(frozen=True, slots=True)
class Setup:
    """All that an engine is told.

    Attributes:
        root_fd: the storm's directory, open; every path of a program is relative to it.
        verify_share: the share of the reads that is compared with the payload, 0 to 1.
        on_error: "stop" ends the program at the first op that fails; "continue" goes on.
        mode, queue_depth: `[io]` of the job; only what `honours` allows arrives here.
        is_direct: some opens of the program carry O_DIRECT, so buffers must be aligned for it. Which
            opens do is the op table's business.
        comm: the communicator of all ranks of the phase, for engines that run on the main thread; else None.
        hints: `[io] hints`, for MPI.File.Open.
    """

    root_fd: int
    verify_share: float = 1.0
    on_error: Literal["stop", "continue"] = "stop"
    mode: str = "sync"
    is_direct: bool = False
    queue_depth: int = 1
    comm: Any = None
    hints: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Notes:
    """What a finished program leaves behind besides its times.

    Attributes:
        generate_wait_ns, verify_wait_ns: what the ops waited for payload to be made or compared.
        verified_bytes: how many of the bytes read were compared.
        mismatch_count: reads that differed.
        mismatches: the first few of them.
        direct_file_count: files that were open with O_DIRECT in force, as the kernel itself said (F_GETFL).
    """

    generate_wait_ns: int = 0
    verify_wait_ns: int = 0
    verified_bytes: int = 0
    mismatch_count: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    direct_file_count: int = 0


#: How many mismatches are described; all are counted.
MISMATCHES_KEPT = 8


class Prepared(Protocol):
    """A program with its buffers, ready to run on one thread."""

    def run(self, sink: Sink, first: int, stop: int) -> int:
        """Run the ops [first, stop) and store their times.

        Returns:
            The index after the last op run: less than `stop` when an op failed under
            `on_error = "stop"` (that op is included) or when the sink asked to stop.
        """

    def finish(self) -> Notes:
        """Close what the program left open, free the buffers, say what there is to say."""


class Repeating(Prepared, Protocol):
    """A program that can also go round in rings: what loads need of an engine (native, posix, null)."""

    def repeat(
        self,
        sink: Sink,
        first: int,
        stop: int,
        deadline_ns: int,
        op_limit: int | None = None,
        refill: Callable[[], None] | None = None,
    ) -> int:
        """Run the ops [first, stop) again and again, until the deadline or the limit.

        Args:
            sink: takes the times; its indices go on counting from lap to lap, from 0.
            first, stop: the ring.
            deadline_ns: on CLOCK_MONOTONIC; no op begins after it.
            op_limit: how many ops in all; None: as many as there is time for.
            refill: called between two laps, when nothing is in flight and no payload is being made ahead:
                may write other offsets into the program's own table (no other column: buffers were
                measured by the first lap). Without it every lap is the same, and payload is made ahead
                across laps.

        Returns:
            How many ops were run: fewer when an op failed under `on_error = "stop"`, or on a stop.
        """


class Preparer(Protocol):
    """What a storm needs of an engine once it is made (a wrapper around one has no more than this)."""

    def prepare(self, program: Program, payload: Payload) -> Prepared:
        """Allocate all that running needs; called before the release, moves nothing."""


class LoadEngine(Protocol):
    """What a load needs of an engine once it is made."""

    def prepare(self, program: Program, payload: Payload | None) -> Repeating:
        """As `Preparer.prepare`; without payload the same incompressible bytes are written again and again."""


class Engine(Preparer, Protocol):
    """How bytes move.

    Attributes:
        name: its word in job files.
        moves_data: False for an engine that only measures the instrument.
        honours: per key of `[io]`, the values it can honour; `...` among them for any value. A key
            that is absent takes the default only.

    An engine whose library must be called from the main thread says so with `thread = "main"`; it is then
    handed a communicator, and runs all of its program's calls of all ranks whatever happens.
    """

    name: ClassVar[str]
    moves_data: ClassVar[bool]
    honours: ClassVar[dict[str, tuple[object, ...]]]

    def __init__(self, setup: Setup) -> None: ...

    @classmethod
    def missing(cls) -> str:
        """Why it cannot be used on this machine, and the remedy; "" when it can."""

    def prepare(self, program: Program, payload: Payload) -> Prepared:
        """Allocate all that running needs; called before the release, moves nothing."""
