"""The independent check on T: a barrier on rank 0's clock knows nothing of offsets, rows or programs.

Both start at the announced release. The closing barrier returns on rank 0 after the last rank has
entered it, so barrier-to-barrier can never be shorter than T: if it is, a clock or a row lies, and
no allowance is made. It is longer by what the barrier costs:

    its own cost, measured in this storm with all ranks arriving together
  + 2 × the clock's uncertainty
  + one sleep of a polite wait for each step of the barrier's tree, 1 + ceil(log2 ranks): ranks that
    have waited long look only every `POLITE_SLEEP_NS`, and each step waits for a look
  + `SCHEDULING_NS`: on a node with more ranks than cores a woken rank waits for its turn

A gap above that is time in which something was done that no row tells of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ckptstorm.measure.rows import Rows
from ckptstorm.record.record import PhaseRecord

#: The longest sleep of a rank that waits politely in a barrier.
POLITE_SLEEP_NS = 10_000_000
#: A few time slices of an oversubscribed node.
SCHEDULING_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class ClockCheck:
    """How barrier-to-barrier compares with the time that the rows tell.

    Attributes:
        barrier_to_barrier_ns: rank 0's clock; 0 when it was not taken, and nothing is checked.
        rows_ns: from the earliest release to the last rank that knew the phase to be over.
        allowed_ns: how much longer barrier-to-barrier may be.
    """

    barrier_to_barrier_ns: int = 0
    rows_ns: int = 0
    allowed_ns: int = 0

    @property
    def is_taken(self) -> bool:
        """Whether there is anything to compare."""
        return self.barrier_to_barrier_ns > 0 and self.rows_ns > 0

    @property
    def gap_ns(self) -> int:
        """Barrier-to-barrier minus the rows' time."""
        return self.barrier_to_barrier_ns - self.rows_ns

    @property
    def agrees(self) -> bool:
        """Whether both tell the same time, within what is allowed."""
        return not self.is_taken or 0 <= self.gap_ns <= self.allowed_ns


def clock_check(phase: PhaseRecord) -> ClockCheck:
    """Compare the rows of a phase with its barriers."""
    steps = 1 + math.ceil(math.log2(max(len(phase.rows), 1)))
    allowed_ns = phase.barrier_cost_ns + 2 * phase.clock_uncertainty_ns + steps * POLITE_SLEEP_NS + SCHEDULING_NS
    return ClockCheck(phase.barrier_to_barrier_ns, _rows_ns(phase.rows), allowed_ns)


def _rows_ns(rows: Rows) -> int:
    if not len(rows):
        return 0
    last = max(int(rows[name].max()) for name in ("durable_ns", "committed_ns", "done_ns"))
    return max(last - int(rows["release_ns"].min()), 0)
