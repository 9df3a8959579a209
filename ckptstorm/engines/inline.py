"""Payload made and compared by the I/O thread itself, with what that took and what it found.

For engines in pure Python: the wait is inside the phase's time and in the notes. The native engine has helper
threads for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ckptstorm.clock import monotonic_ns
from ckptstorm.engines.contract import MISMATCHES_KEPT, Notes
from ckptstorm.payload import FileImage, Mismatch, Payload
from ckptstorm.program import Program

#: Verifying a share picks whole reads by this multiplicative hash of their index (Knuth's constant).
_PICK = 2654435761


class InlinePayload:
    """The bytes of one program's files, and the tally of making and comparing them."""

    def __init__(self, program: Program, payload: Payload, verify_share: float) -> None:
        self._program, self._payload, self._share = program, payload, verify_share
        self._images: dict[int, FileImage] = {}
        self._generate_wait_ns = self._verify_wait_ns = self._verified_bytes = self._mismatch_count = 0
        self._mismatches: list[Mismatch] = []

    def fill(self, file: int, room: NDArray[np.uint8], offset_bytes: int) -> None:
        """Make what a write at that offset of that file carries."""
        begun = monotonic_ns()
        if len(room):
            self._image(file).fill(room, offset_bytes)
        self._generate_wait_ns += monotonic_ns() - begun

    def is_picked(self, index: int) -> bool:
        """Whether the read that is the op of that index is among the share to be compared."""
        return self._share >= 1.0 or (index * _PICK % (1 << 32)) < self._share * (1 << 32)

    def compare(self, file: int, found: NDArray[np.uint8], offset_bytes: int, moved_bytes: int) -> None:
        """Compare what a read at that offset of that file brought, and count it as the bytes that it moved."""
        begun = monotonic_ns()
        mismatch = self._image(file).check(found, offset_bytes, self._program.location(file))
        self._verify_wait_ns += monotonic_ns() - begun
        self._verified_bytes += moved_bytes
        if mismatch is not None:
            self._mismatch_count += 1
            if len(self._mismatches) < MISMATCHES_KEPT:
                self._mismatches.append(mismatch)

    def notes(self, direct_file_count: int = 0) -> Notes:
        """The tally so far; how many files were open with O_DIRECT is the engine's to know."""
        return Notes(
            self._generate_wait_ns,
            self._verify_wait_ns,
            self._verified_bytes,
            self._mismatch_count,
            tuple(self._mismatches),
            direct_file_count,
        )

    def _image(self, file: int) -> FileImage:
        if file not in self._images:
            self._images[file] = self._payload.image(self._program.paths[file])
        return self._images[file]
