"""Rank 0's record of a storm while it grows, journalled after each round so that a lost storm leaves it behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ckptstorm.errors import PlaceError
from ckptstorm.measure.rows import Phase
from ckptstorm.record import files
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.storm.settle import DirectEvidence

#: What a result folder holds: all that a journal removes of its own earlier version.
_NAMES = (files.JOB_NAME, files.JSON_NAME, files.H5_NAME)


class Recorder:
    """Takes each finished phase.

    Attributes:
        record: all that is known by now.
        folder: where the result will be.
        problem: why a record could not be written; the storm goes on, and says so at its end.
        tell: who else hears of a finished phase.
    """

    def __init__(self, blank: StormRecord, results: str) -> None:
        self.record = replace(
            blank, ended="lost_rank", ended_because="the storm did not come to its end: this is what was known by then"
        )
        self.folder = Path(results) / blank.storm_id
        self._partial = Path(results) / f"{blank.storm_id}.partial"
        self.problem = ""
        self.tell: Callable[[PhaseRecord, StormRecord], None] = _nobody

    def take(self, phase: PhaseRecord) -> None:
        """Add a finished phase; after a restore, journal."""
        self.record = replace(self.record, phases=(*self.record.phases, phase))
        self.tell(phase, self.record)
        if phase.phase == Phase.RESTORE and not self.problem:
            try:
                self.journal()
            except PlaceError as error:  # results are not what is measured: the storm must still end in order
                self.problem = str(error)

    def take_direct(self, evidence: DirectEvidence) -> None:
        """Keep the worst of all saves: one that was not direct is enough."""
        seen = {
            "flag_set": evidence.is_flag_set,
            "aligned_write_count": evidence.aligned_write_count,
            "resident_share": evidence.resident_share,
        }
        before = self.record.environment.get("direct", seen)
        worst = {
            "flag_set": before["flag_set"] and seen["flag_set"],
            "aligned_write_count": min(before["aligned_write_count"], evidence.aligned_write_count),
            "resident_share": max(before["resident_share"], evidence.resident_share),
        }
        self.record = replace(self.record, environment=self.record.environment | {"direct": worst})

    def take_cannot(self, ability: str, reason: str) -> None:
        """Keep what the file system's adapter turned out not to be able to do here."""
        known = dict(self.record.environment["file_system"])
        known["cannot"] = {ability: reason} | known["cannot"]
        self.record = replace(self.record, environment=self.record.environment | {"file_system": known})

    def journal(self) -> Path:
        """Write what is known to `<storm id>.partial`, in place of what was written there before."""
        newer = self._partial.with_suffix(".newer")
        files.write(self.record, newer)
        _remove(self._partial)
        newer.rename(self._partial)
        return self._partial

    def last_words(self) -> Path | None:
        """Journal what is known of a storm that cannot go on; None when that cannot be written."""
        try:
            return self.journal()
        except PlaceError:
            return None

    def finish(self, record: StormRecord) -> Path | None:
        """Write the final result, and remove the journal; None when it cannot be written (see `problem`)."""
        try:
            files.write(record, self.folder)
        except PlaceError as error:
            self.problem = str(error)
            return None
        self.problem = ""
        _remove(self._partial)
        return self.folder


def _nobody(phase: PhaseRecord, record: StormRecord) -> None:
    """Without metrics, nobody hears of a finished phase."""


def _remove(folder: Path) -> None:
    """Remove a result folder of ours: its three files by name, then the folder if that was all."""
    for name in _NAMES:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            (folder / name).unlink()
    with contextlib.suppress(OSError):
        os.rmdir(folder)
