"""The phase row: all that one rank says of one phase, in 128 bytes, so that 100,000 of them fit anywhere."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray


class Phase(enum.IntEnum):
    """The phases of a round. The numbers are part of the file format: append, never renumber."""

    PREPARE = 1
    SAVE = 2
    SETTLE = 3
    RESTORE = 4
    CLEAN_UP = 5
    DELETE = 6  # of checkpoints beyond those kept, while the storm goes on
    LOAD = 7  # which one, its record says by name
    QUIET_SAVE = 8  # a save without the loads that run beside the others
    RECOVER = 9  # a restore after a rank was lost, in a new world

    @property
    def word(self) -> str:
        """The word that job files, columns and reports use."""
        return self.name.lower().replace("_", " ")


#: Both kinds of saves.
SAVES = (Phase.SAVE, Phase.QUIET_SAVE)

#: Bits of `state`.
STATE_ERRORS = 1  # at least one op failed
STATE_INCOMPLETE = 2  # fewer bytes or ops than planned
STATE_STOPPED = 4  # ended by a signal or by another rank's failure
STATE_MISMATCH = 8  # bytes read differ from bytes written
STATE_SYNCED = 16  # after its last write, each file that this rank wrote was synced
STATE_SYNC_DUE = 32  # the job or the layout claims that each of them is

#: All times are nanoseconds after the announced release, on rank 0's clock; -1: did not happen.
#:   release_ns        when the rank really started
#:   first_op_ns       when its first op started
#:   durable_ns        when its last data op, and the sync that the job asks for, had returned; -1 when
#:                     the rank had nothing to move, or did not get that far
#:   committed_ns      when its part of the commit had returned (durable_ns for ranks that take no part)
#:   done_ns           when it knew that the phase was over for it (after the framework's last collective)
#:   bytes             moved by data ops
#:   *_wait_ns         what ops waited for payload (inside the phase's time), summed over threads
#:   coordination_ns   in the framework's collectives
#:   cpu_ns            CPU time of the rank's process during the phase
PHASE_ROW_DTYPE = np.dtype(
    [
        ("rank", "<u4"),
        ("node", "<u4"),
        ("round", "<i4"),
        ("phase", "u1"),
        ("state", "u1"),
        ("first_errno", "<u2"),
        ("release_ns", "<i8"),
        ("first_op_ns", "<i8"),
        ("durable_ns", "<i8"),
        ("committed_ns", "<i8"),
        ("done_ns", "<i8"),
        ("bytes", "<i8"),
        ("verified_bytes", "<i8"),
        ("generate_wait_ns", "<i8"),
        ("verify_wait_ns", "<i8"),
        ("coordination_ns", "<i8"),
        ("cpu_ns", "<i8"),
        ("data_op_count", "<u4"),
        ("data_op_over_4k_count", "<u4"),
        ("metadata_op_count", "<u4"),
        ("sync_count", "<u4"),
        ("error_count", "<u4"),
        ("mismatch_count", "<u4"),
    ]
)
assert PHASE_ROW_DTYPE.itemsize == 128

Rows = NDArray[np.void]

#: Columns of the table beside the rows that says what a rank's time went into: one an op kind, by number.
KIND_SLOTS = 39
