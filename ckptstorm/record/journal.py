"""The journal of a storm under way: `<storm id>.partial`, a result folder that grows by one folder a phase.

    job.toml, storm.json, storm.h5   what was known before the first phase
    phase-00001/ …                   each finished phase, as a result folder of its own
    last-words.json                  why the storm did not come to its end, from whoever was left to say it
    foreboding.json                  who is silent, as long as that is so: for when nobody is left to say that

`files.load` reads it like any other result. Each phase is written once, so that a long storm's journal
costs no more than its record.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path

from ckptstorm.record import files, last_words
from ckptstorm.record.record import PhaseRecord, StormRecord


class Journal:
    """A journal that is being written."""

    def __init__(self, folder: Path, phase_count: int = 0) -> None:
        self.folder = folder
        self._phase_count = phase_count

    def begin(self, record: StormRecord) -> None:
        """Write what is known before the first phase. Raises PlaceError."""
        files.write(replace(record, phases=()), self.folder)

    def add(self, record: StormRecord, phase: PhaseRecord) -> None:
        """Write a finished phase, with the circumstances as they are known by now. Raises PlaceError."""
        self._phase_count += 1
        files.write(replace(record, phases=(phase,)), self.folder / files.phase_name(self._phase_count))


def remove(folder: Path) -> None:
    """Remove a journal of ours: what it holds by name, then the folder if that was all."""
    for inner in files.phase_folders(folder):
        _remove_result(inner)
    for name in (last_words.NAME, last_words.FOREBODING):
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    _remove_result(folder)


def _remove_result(folder: Path) -> None:
    for name in files.LIMITS_BYTES:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    with contextlib.suppress(OSError):
        os.rmdir(folder)
