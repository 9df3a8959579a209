"""Rank 0's numbers of a running storm in a file of OpenMetrics text, for node_exporter's textfile collector.

What is timed must not wait for it: the text is made on the main thread, which only watches while others move bytes, and
seldom; a thread of its own writes it, under another name first, so that no reader meets half a file.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.cluster.slots import Ages, State
from ckptstorm.errors import PlaceError
from ckptstorm.measure.rows import Phase
from ckptstorm.record.openmetrics import PREFIX, Gauge, text
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.summary import PhaseSummary, phase_summary
from ckptstorm.storm.watch import LookOut

#: A file is written so long after a phase began (shorter ones are told when they are over), and then this often.
_FIRST_NS, _INTERVAL_NS = NS_PER_S, 5 * NS_PER_S
#: How long the last writing may take before the storm ends without it.
_PATIENCE_S = 10
_HINT = "name a new file on a local disk, such as /var/lib/node_exporter/storm.prom"


class LiveMetrics:
    """The file, kept up to date.

    Attributes:
        problem: why it could not be written, once it could not; the storm goes on.
    """

    def __init__(self, path: str, directory: str, storm_id: str, rank_count: int) -> None:
        """Write the first text, so that a file that cannot be written is refused before the first byte.

        Raises:
            PlaceError: it stands in the directory under test, is somebody else's, or cannot be written.
        """
        self._path, self._storm = Path(path), {"storm_id": storm_id}
        if self._path.resolve().is_relative_to(Path(directory).resolve()):
            raise PlaceError(f"--metrics {path} stands in the directory under test", _HINT)
        self.problem = ""
        self._rank_count, self._said_ns, self._began_ns = rank_count, 0, 0
        self._now: tuple[Phase, int] | None = None
        self._ages = Ages()
        self._finished: dict[Phase, PhaseSummary] = {}
        self._refuse_foreign()
        self._write(self._text("running", ()))
        if self.problem:
            raise PlaceError(f"--metrics {path}: {self.problem}", _HINT)
        self._pen = _Pen(self._write)

    def look(self, phase: Phase, round_number: int, lines: NDArray[np.void]) -> None:
        """What all ranks are at; called often, says little."""
        now_ns = monotonic_ns()
        idle_ns = self._ages.look(lines, "ops_done", now_ns)
        if self._now != (phase, round_number):
            self._now, self._began_ns = (phase, round_number), now_ns
            self._said_ns = now_ns + _FIRST_NS - _INTERVAL_NS
        if now_ns - self._said_ns >= _INTERVAL_NS:
            self._said_ns = now_ns
            stuck_ns = int(idle_ns[lines["state"] == State.RUNNING].max(initial=0))
            labels = self._storm | {"phase": phase.word, "round": str(round_number)}
            self._pen.write(self._text("running", _underway(labels, lines, now_ns - self._began_ns, stuck_ns)))

    def take(self, phase: PhaseRecord, record: StormRecord) -> None:
        """A finished phase."""
        self._finished[phase.phase] = phase_summary(phase, record)
        self._pen.write(self._text("running", ()))

    def end(self) -> None:
        """The storm is over: the file stays, and says so."""
        self._pen.write(self._text("over", ()))
        self._pen.close(_PATIENCE_S)
        if self.problem:
            sys.stderr.write(f"ckptstorm: --metrics {self._path}: {self.problem}; the storm went on without it\n")

    def _refuse_foreign(self) -> None:
        """A file that is not one of ours is never replaced."""
        try:
            with self._path.open("rb") as file:
                start = file.read(64)
        except FileNotFoundError:
            return
        except OSError as error:
            raise PlaceError(f"--metrics {self._path}: {error.strerror}", _HINT) from None
        if not start.startswith(f"# TYPE {PREFIX}".encode()):
            raise PlaceError(f"--metrics {self._path}: there is another file of that name, not made by us", _HINT)

    def _write(self, content: str) -> None:
        growing = self._path.with_name(f".{self._path.name}.growing-{os.getpid()}")
        try:
            growing.write_text(content, encoding="utf-8")
            growing.replace(self._path)
        except OSError as error:
            self.problem = self.problem or f"cannot be written: {error.strerror}"
            with contextlib.suppress(OSError):  # what cannot be written cannot be removed either
                growing.unlink(missing_ok=True)

    def _text(self, state: Literal["running", "over"], underway: tuple[Gauge, ...]) -> str:
        running = Gauge("storm_running", "", "1 until the storm is over.", ((self._storm, float(state == "running")),))
        ranks = Gauge("storm_ranks", "", "Ranks of the world.", ((self._storm, float(self._rank_count)),))
        return text((running, ranks, *underway, *self._of_finished()))

    def _of_finished(self) -> tuple[Gauge, ...]:
        """The newest of each phase."""
        found = [(self._storm | {"phase": phase.word}, each) for phase, each in self._finished.items()]
        return (
            Gauge(
                "last_round", "", "Round of the newest finished phase.", tuple((at, each.round) for at, each in found)
            ),
            Gauge("last_seconds", "seconds", "How long it took.", tuple((at, each.seconds) for at, each in found)),
            Gauge("last_moved_bytes", "bytes", "What it moved.", tuple((at, each.bytes) for at, each in found)),
            Gauge("last_bytes_per_second", "", "Its bandwidth.", tuple((at, each.bytes_per_s) for at, each in found)),
            Gauge("last_errors", "", "Ops that failed in it.", tuple((at, each.error_count) for at, each in found)),
        )


def _underway(labels: dict[str, str], lines: NDArray[np.void], elapsed_ns: int, stuck_ns: int) -> tuple[Gauge, ...]:
    def gauge(name: str, unit: str, meaning: str, value: float) -> Gauge:
        return Gauge(name, unit, meaning, ((labels, value),))

    return (
        gauge("current_ranks_done", "", "Ranks that are done with it.", int((lines["state"] == State.DONE).sum())),
        gauge("current_moved_bytes", "bytes", "Bytes moved in it by now.", int(lines["bytes_moved"].sum())),
        gauge("current_elapsed_seconds", "seconds", "How long it lasts by now.", _s(elapsed_ns)),
        gauge("current_stuck_seconds", "seconds", "Longest time of a rank without progress.", _s(stuck_ns)),
    )


def both(first: LookOut, second: LookOut) -> LookOut:
    """One after the other; the second may raise."""

    def look(phase: Phase, round_number: int, lines: NDArray[np.void]) -> None:
        first(phase, round_number, lines)
        second(phase, round_number, lines)

    return look


def _s(ns: int) -> float:
    return ns / NS_PER_S


class _Pen:
    """A thread that writes the newest text there is; a slow disk makes it skip some, and holds up nobody."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._latest: str | None = None
        self._is_closing = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._work, daemon=True, name="metrics")
        self._thread.start()

    def write(self, content: str) -> None:
        """Soon."""
        with self._wake:
            self._latest = content
            self._wake.notify()

    def close(self, patience_s: float) -> None:
        """Write what is left."""
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        self._thread.join(patience_s)

    def _work(self) -> None:
        while True:
            with self._wake:
                while self._latest is None and not self._is_closing:
                    self._wake.wait()
                content, self._latest = self._latest, None
            if content is None:
                return
            self._write(content)
