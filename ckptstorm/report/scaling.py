"""The scaling table: a folder of result folders as rows, each storm against the smallest one that asked the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ckptstorm.errors import PlaceError
from ckptstorm.measure.rows import Phase
from ckptstorm.program import DATA
from ckptstorm.record import files
from ckptstorm.record.record import StormRecord
from ckptstorm.record.summary import PhaseSummary
from ckptstorm.record.words import counted, percent
from ckptstorm.report import growth
from ckptstorm.report.facts import Known, know
from ckptstorm.report.parts import Fact, Line, Section, Table
from ckptstorm.units import count_text, rate_text, time_text

#: A sweep's folder holds a folder a storm, which holds its result: so deep, and no deeper, is looked.
_DEPTH = 2
_FOLDERS_MAX = 10_000
#: A storm that somebody or something ended has no place in a law of growth.
_CUT_OFF = ("interrupted", "lost_rank")
#: Keys of a job that do not make it another question.
_NO_QUESTION = ("slo.",)
_LAW = (
    "rate(N) = a N ÷ (1 + b (N - 1) + c N (N - 1)) for N ranks: a alone, b one after the other, c a pair's cost; the"
    " Universal Scalability Law, N. J. Gunther 2007; 95 % intervals over rounds"
)


@dataclass(frozen=True, slots=True)
class PhaseNumbers:
    """A phase of one storm, over its measured rounds.

    Attributes:
        seconds, bytes_per_s, iops: of the median round.
        p99_ns: of the data ops of the worst round.
        straggler_ratio: slowest ÷ median rank, of the worst round.
        rates: bytes per second of each measured round.
        efficiency: bandwidth a rank ÷ that of the smallest storm that asked the same; 0 unknown.
    """

    seconds: float
    bytes_per_s: float
    iops: float
    p99_ns: int
    straggler_ratio: float
    rates: tuple[float, ...] = ()
    efficiency: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """One storm.

    Attributes:
        folder: its result folder, as found.
        storm_id: its name.
        varied: the keys in which the storms differ, with this one's values.
        rank_count, node_count: its world.
        save, restore: None where no measured round was finished.
        valid, met: its verdict.
        exit_code: of it.
    """

    folder: str
    storm_id: str
    varied: dict[str, str]
    rank_count: int
    node_count: int
    save: PhaseNumbers | None
    restore: PhaseNumbers | None
    valid: bool
    met: bool
    exit_code: int


@dataclass(frozen=True, slots=True)
class Scaling:
    """A folder of results.

    Attributes:
        rows: by what varies, then by ranks.
        skipped: folders that could not be read, or whose storm was cut off, with the reason.
    """

    rows: tuple[Row, ...]
    skipped: tuple[tuple[str, str], ...]

    def data(self) -> dict[str, Any]:
        """For programs."""
        laws = [
            {"series": list(series), "phase": name, "law": growth.data(points)}
            for (series, name), points in _series(self.rows).items()
        ]
        storms, skipped = [asdict(row) for row in self.rows], [list(one) for one in self.skipped]
        return {"storms": storms, "skipped": skipped, "laws": laws}


def is_folder_of_folders(folder: str) -> bool:
    """Whether there are results below a folder that is none itself."""
    home = Path(folder)
    return home.is_dir() and not (home / files.JSON_NAME).exists() and any(True for _ in result_folders(home))


def result_folders(home: Path) -> Iterator[Path]:
    """Every result folder below, in the order of names; what a storm left unfinished (`.partial`) among them."""
    level = [home]
    for _ in range(_DEPTH):
        level = [child for folder in level for child in _children(folder)][:_FOLDERS_MAX]
        yield from (folder for folder in level if (folder / files.JSON_NAME).is_file())
        level = [folder for folder in level if not (folder / files.JSON_NAME).exists()]


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir() and not child.is_symlink())
    except OSError:
        return []


def scaling(folder: str) -> Scaling:
    """Read all results below a folder and set them against each other.

    Raises:
        PlaceError: there is none.
    """
    found: list[tuple[Path, StormRecord]] = []
    skipped: list[tuple[str, str]] = []
    for path in result_folders(Path(folder)):
        if path.name.endswith(".partial"):
            skipped.append((str(path), "the storm did not come to its end"))
            continue
        try:
            record = files.load(path)
        except PlaceError as error:
            skipped.append((str(path), str(error)))
            continue
        if record.ended in _CUT_OFF:
            skipped.append((str(path), record.ended_because or record.ended))
        else:
            found.append((path, record))
    if not found and not skipped:
        raise PlaceError(f"{folder} holds no result folder", "a result folder holds job.toml, storm.json and storm.h5")
    varied = _varied([record for _, record in found])
    rows = [_row(path, know(record), varied) for path, record in found]
    return Scaling(tuple(_with_efficiency(sorted(rows, key=_order))), tuple(skipped))


def _varied(records: Sequence[StormRecord]) -> list[str]:
    """The keys in which the jobs differ, in the order of the job's tables."""
    jobs = [dict(_flat(record.job)) for record in records]
    keys = dict.fromkeys(key for job in jobs for key in job if not key.startswith(_NO_QUESTION))
    return [key for key in keys if len({job.get(key, "") for job in jobs}) > 1]


def _flat(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", str(value)


def _row(path: Path, known: Known, varied: Iterable[str]) -> Row:
    record, job = known.record, dict(_flat(known.record.job))
    return Row(
        str(path),
        record.storm_id,
        {key: job.get(key, "-") for key in varied},
        len(record.node_of_rank),
        len(record.nodes),
        _numbers(known, Phase.SAVE),
        _numbers(known, Phase.RESTORE),
        known.verdict.valid,
        known.verdict.met,
        known.verdict.exit_code,
    )


def _numbers(known: Known, phase: Phase) -> PhaseNumbers | None:
    rounds = known.over_rounds(phase)
    if rounds is None:
        return None
    return PhaseNumbers(
        rounds.seconds.median,
        rounds.bytes_per_s.median,
        rounds.iops.median,
        max(_p99_ns(summary) for summary in known.rounds(phase)),
        rounds.straggler_ratio.most,
        tuple(summary.bytes_per_s for summary in known.rounds(phase)),
    )


def _p99_ns(summary: PhaseSummary) -> int:
    """Of the data ops, the kind with the longest tail."""
    kinds = [kind.word for kind in DATA]
    return max((int(summary.latency_ns[kind]["all"].p99) for kind in kinds if kind in summary.latency_ns), default=0)


def _order(row: Row) -> tuple[list[str], int, str]:
    return list(row.varied.values()), row.rank_count, row.storm_id


def _with_efficiency(rows: Iterable[Row]) -> Iterator[Row]:
    """Each row against the first of its series: rows come with the smallest world first."""
    base: dict[tuple[tuple[str, ...], str], float] = {}
    for row in rows:
        filled = {}
        for name in ("save", "restore"):
            numbers: PhaseNumbers | None = getattr(row, name)
            if numbers is None or not numbers.bytes_per_s:
                continue
            own = numbers.bytes_per_s / row.rank_count
            first = base.setdefault((tuple(row.varied.values()), name), own)
            filled[name] = PhaseNumbers(**(asdict(numbers) | {"efficiency": own / first}))
        yield Row(**({name: getattr(row, name) for name in row.__dataclass_fields__} | filled))


def sections(found: Scaling) -> tuple[Section, ...]:
    """The tables for a terminal: what varies, then save and restore."""
    names = list(found.rows[0].varied) if found.rows else []
    told = f"{counted(len(found.rows), 'storm')}; they differ in ranks{''.join(', ' + name for name in names)}"
    opening = Section("", (Line(told),))
    tables = [
        Section(title, (_table(found.rows, name),))
        for title, name in (("Save", "save"), ("Restore", "restore"))
        if any(getattr(row, name) is not None for row in found.rows)
    ]
    left = [Fact("skipped", f"{path}: {why}", "doubt") for path, why in found.skipped]
    notes = (
        Fact("efficiency", "bandwidth a rank ÷ that of the smallest storm with the same other keys", "quiet"),
        Fact("p99", "of data ops (the kind with the longest tail), worst measured round", "quiet"),
        Fact("max/med", "slowest ÷ median rank, worst measured round; bandwidth and IOPS: median round", "quiet"),
        Fact("INVALID", "do not quote it; ckptstorm report FOLDER says why", "quiet"),
    )
    return (
        opening,
        *tables,
        *_growth(found.rows),
        *((Section("Left out", tuple(left)),) if left else ()),
        Section("How to read this", notes),
    )


def _growth(rows: Sequence[Row]) -> Iterator[Section]:
    """The scalability law of each series with enough sizes."""
    told: list[Fact] = []
    for (series, name), points in _series(rows).items():
        told += growth.facts(" ".join((*series, name)), points)
    if told:
        told.append(Fact("law", _LAW, "quiet"))
        yield Section("How it grows", tuple(told))


def _series(rows: Sequence[Row]) -> dict[tuple[tuple[str, ...], str], list[tuple[int, tuple[float, ...]]]]:
    """Rounds by world size of the storms that differ in nothing else, for save and restore; valid ones only."""
    found: dict[tuple[tuple[str, ...], str], list[tuple[int, tuple[float, ...]]]] = {}
    for row in rows:
        for name in ("save", "restore"):
            numbers: PhaseNumbers | None = getattr(row, name)
            if row.valid and numbers is not None:
                found.setdefault((tuple(row.varied.values()), name), []).append((row.rank_count, numbers.rates))
    return found


def _table(rows: Sequence[Row], name: str) -> Table:
    head = ("storm", "ranks", "nodes", "bandwidth", "IOPS", "p99", "max/med", "effic.", "")
    shown: list[tuple[str, ...]] = []
    for row in rows:
        numbers: PhaseNumbers | None = getattr(row, name)
        label = " ".join(row.varied.values()) or row.storm_id
        world = (label, str(row.rank_count), str(row.node_count))
        mark = "INVALID" if not row.valid else "" if row.met else "MISSED"
        if numbers is None:
            shown.append((*world, *("-",) * 5, mark))
            continue
        shown.append((*world, *_cells(numbers), mark))
    return Table(head, tuple(shown), left=(8,))


def _cells(numbers: PhaseNumbers) -> tuple[str, ...]:
    return (
        rate_text(numbers.bytes_per_s),
        count_text(numbers.iops),
        time_text(numbers.p99_ns),
        f"{numbers.straggler_ratio:.2f}",
        percent(numbers.efficiency) if numbers.efficiency else "-",
    )
