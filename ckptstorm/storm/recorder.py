"""Rank 0's record of a storm while it grows, journalled phase by phase so that a lost storm leaves it behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ckptstorm.errors import PlaceError
from ckptstorm.record import files, journal, last_words, settings
from ckptstorm.record.receipts import COLD_RESIDENT_SHARE
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.storm.saved import SavedRound
from ckptstorm.storm.settle import DirectEvidence
from ckptstorm.units import parse_duration, time_text

#: Other processes come and go: memory in use may be so far from what was asked.
_PRESSURE_WITHIN = 0.05


class Recorder:
    """Takes each finished phase.

    Attributes:
        record: all that is known by now.
        folder: where the result will be.
        saved: the checkpoints that a save on its own has left.
        problem: why a record could not be written; the storm goes on, and says so at its end.
        tell: who else hears of a finished phase.
    """

    def __init__(self, blank: StormRecord, results: str) -> None:
        self.record = replace(
            blank, ended="lost_rank", ended_because="the storm did not come to its end: this is what was known by then"
        )
        self.folder = Path(results) / blank.storm_id
        self.partial = partial_folder(results, blank.storm_id)
        self._journal = journal.Journal(self.partial)
        self.problem = ""
        self.saved: tuple[SavedRound, ...] = ()
        self.tell: Callable[[PhaseRecord, StormRecord], None] = _nobody
        self._pauses = 0
        self._late_ns: list[int] = []
        if not self.partial.exists():
            self._try(self._journal.begin, self.record)

    @classmethod
    def going_on(cls, record: StormRecord, partial: Path) -> Recorder:
        """A record that is taken up again where a lost world left it: more phases go into the same journal."""
        recorder = cls(record, str(partial.parent))
        recorder.record = record
        recorder._journal = journal.Journal(partial, len(files.phase_folders(partial)))
        return recorder

    def take(self, phase: PhaseRecord) -> None:
        """Add a finished phase, and journal it."""
        self.record = replace(self.record, phases=(*self.record.phases, phase))
        self.tell(phase, self.record)
        self._try(self._journal.add, self.record, phase)

    def _try(self, write: Callable[..., None], *arguments: object) -> None:
        """Results are not what is measured: when they cannot be written, the storm must still end in order."""
        if self.problem:
            return
        try:
            write(*arguments)
        except PlaceError as error:
            self.problem = str(error)

    def take_lateness(self, late_ns: int) -> None:
        """How late a save was after `[storm] interval`; what is more than a twentieth of it is told as not kept."""
        word = settings.text(self.record.job, "storm", "interval")
        self._pauses += 1
        if late_ns > parse_duration(word) // 20:
            self._late_ns.append(late_ns)
        if not self._late_ns:
            return
        most = time_text(max(self._late_ns))
        kept = f"{word}, but {len(self._late_ns)} of {self._pauses} saves were late, by up to {most}"
        self.record = replace(self.record, asked=self.record.asked | {"storm.interval": (word, kept)})

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

    def take_placement(self, placement: dict[str, Any]) -> None:
        """Keep which server holds which file."""
        self.record = replace(self.record, environment=self.record.environment | {"placement": placement})

    def take_pressure(self, held_bytes: int, in_use: float) -> None:
        """Keep what memory is held, and what took effect of the share that was asked for."""
        asked = str(self.record.job["io"]["memory_pressure"])
        took = asked if abs(in_use - float(asked.rstrip("%")) / 100) < _PRESSURE_WITHIN else f"{100 * in_use:.0f}%"
        self.record = replace(self.record, asked=self.record.asked | {"io.memory_pressure": (asked, took)})
        self.add_facts({"memory_pressure": {"held_bytes": held_bytes, "in_use": in_use}})

    def take_targets(self, round_number: int, targets: list[str]) -> None:
        """Keep which server holds each rank's main file in a round: names once, then their numbers (-1: unknown)."""
        known = self.record.environment.get("placement_by_round", {"names": [], "rounds": {}})
        names = [*known["names"], *sorted(set(targets) - set(known["names"]) - {""})]
        numbers = {name: index for index, name in enumerate(names)}
        rounds = known["rounds"] | {str(round_number): [numbers.get(target, -1) for target in targets]}
        self.add_facts({"placement_by_round": {"names": names, "rounds": rounds}})

    def take_cannot(self, ability: str, reason: str) -> None:
        """Keep what the file system's adapter turned out not to be able to do here."""
        known = dict(self.record.environment["file_system"])
        known["cannot"] = {ability: reason} | known["cannot"]
        self.record = replace(self.record, environment=self.record.environment | {"file_system": known})

    def add_facts(self, facts: dict[str, Any]) -> None:
        """Add to what is known of the circumstances."""
        self.record = replace(self.record, environment=self.record.environment | facts)

    def take_saved(self, rounds: tuple[SavedRound, ...]) -> None:
        """Keep what a save on its own has left, for its manifest."""
        self.saved = rounds

    def take_own_share(self, share: float) -> None:
        """Keep the worst: of what the restores read, the share that the reader's own machine wrote."""
        before = self.record.environment.get("own_written_share", 0.0)
        environment = self.record.environment | {"own_written_share": max(before, share)}
        took = "other-node" if environment["own_written_share"] <= COLD_RESIDENT_SHARE else "own"
        asked = self.record.asked | {"restore.from": (self.record.asked["restore.from"][0], took)}
        self.record = replace(self.record, environment=environment, asked=asked)

    def take_waits(self, waits: list[dict[str, Any]]) -> None:
        """Keep which ranks were waited for beyond the time-out."""
        if waits:
            self.record = replace(self.record, environment=self.record.environment | {"waits": list(waits)})

    def last_words(self, because: str) -> Path | None:
        """Leave what is known of a storm that cannot go on; None when that cannot be written."""
        self.record = replace(self.record, ended_because=because)
        is_kept = not self.problem and last_words.say(self.partial, because)
        return self.partial if is_kept else None

    def finish(self, record: StormRecord) -> Path | None:
        """Write the final result, and remove the journal; None when it cannot be written (see `problem`)."""
        try:
            files.write(record, self.folder)
        except PlaceError as error:
            self.problem = str(error)
            return None
        self.problem = ""
        journal.remove(self.partial)
        return self.folder


def partial_folder(results: str, storm_id: str) -> Path:
    """Where a storm journals while it runs."""
    return Path(results) / f"{storm_id}.partial"


def _nobody(phase: PhaseRecord, record: StormRecord) -> None:
    """Without metrics, nobody hears of a finished phase."""
