"""Rank 0's deputy: under a foreign launcher no parent looks on, so the lowest other rank looks after rank 0."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import monotonic_ns
from ckptstorm.errors import LostRankError
from ckptstorm.measure.rows import Phase
from ckptstorm.record import last_words
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.lookout import Names, Patience
from ckptstorm.storm.lost import Finder
from ckptstorm.storm.naming import OpNamer
from ckptstorm.storm.watch import LookOut


def look_after_rank_0(crew: Crew) -> LookOut:
    """What the deputy does with rank 0's board line; it raises when rank 0 is lost, which ends the world."""
    orders, timeout_ns = crew.orders, int(crew.job.storm.timeout)
    namer = OpNamer(orders.job, crew.world, orders.block_size_bytes)
    names = Names(lambda _: orders.host, namer.name)
    finder, patience = Finder(timeout_ns), Patience(names, timeout_ns, orders.job.storm.on_timeout)

    def look(phase: Phase, round_number: int, lines: NDArray[np.void]) -> None:
        del phase, round_number
        # A stuck op of rank 0 is rank 0's own to tell: its main thread still looks out.
        lost = [one for one in finder.find(lines, monotonic_ns()) if one.how != "stuck"]
        try:
            said = patience.judge(lost)
        except LostRankError as error:
            raise _with_last_words(error, orders.partial, orders.directory) from None
        for sentence in said:
            sys.stderr.write(f"ckptstorm: {sentence}\n")
            sys.stderr.flush()

    return look


def _with_last_words(error: LostRankError, partial: str, directory: str) -> LostRankError:
    is_kept = last_words.say(Path(partial), str(error))
    known = f"what is known: ckptstorm report {shlex.quote(partial)}" if is_kept else ""
    remedy = f"remove the files: ckptstorm clean {shlex.quote(directory)}"
    return LostRankError(str(error), "\n".join(line for line in (known, error.hint, remedy) if line))
