"""DLIO's per-rank files: what every rank took, beside the headline, which is rank 0's own time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ckptstorm.report.importers.reading import json_of, not_one
from ckptstorm.report.importers.seen import PhaseSeen, RankSeen, Seen
from ckptstorm.units import GIB

_TOOL = "DLIO"
_STATS = re.compile(r"(\d{1,7})_per_epoch_stats\.json\Z")
_PHASE = re.compile(r"(save|load)_ckpt(\d{1,6})\Z")
_WORDS = {"save": "save", "load": "restore"}
_BASIS = "the slowest rank's own time on its own wall clock; the benchmark's headline is rank 0's own time alone"
_NOT_ALL = "not told: the files of some ranks are missing, and each of them may have been the last"


#: A hundred times the largest cluster there is; loops over ranks must end.
_Count = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]


class _Metric(msgspec.Struct, frozen=True):
    checkpoint_size_GB: float | None = None


class _Summary(msgspec.Struct, frozen=True):
    num_accelerators: _Count | None = None
    num_hosts: _Count | None = None
    start: str = ""
    metric: _Metric = _Metric()


class _Checkpoint(msgspec.Struct, frozen=True):
    duration: float
    throughput: float = 0.0


Key = tuple[str, int]


def read(path: str) -> tuple[Seen, ...]:
    """One run: the folder that DLIO wrote its output into.

    Raises:
        PlaceError: it is no such folder, has no checkpoint in it, or a file in it is damaged.
    """
    home = Path(path)
    if not home.is_dir():
        raise not_one(home, _TOOL, "it is no folder; DLIO writes N_per_epoch_stats.json, a file a rank, into one")
    files = {int(match[1]): each for each in home.iterdir() if (match := _STATS.match(each.name))}
    if not files:
        raise not_one(home, _TOOL, "it holds no N_per_epoch_stats.json")
    summary = json_of(home / "summary.json", _TOOL, _Summary) if (home / "summary.json").exists() else _Summary()
    ranks = {rank: _checkpoints(files[rank]) for rank in sorted(files)}
    keys = list(dict.fromkeys(key for each in ranks.values() for key in each))
    if not keys:
        raise not_one(home, _TOOL, "it tells of no checkpoint: a training run without one")
    world = summary.num_accelerators or len(files)
    phases = tuple(_phase(key, ranks, world, summary) for key in keys)
    return (
        Seen(
            "DLIO", "", f"dlio:{home.name}", path, world, summary.num_hosts, summary.start, phases, _notes(ranks, world)
        ),
    )


def _notes(ranks: dict[int, Any], world: int) -> tuple[str, ...]:
    missing = [rank for rank in range(world) if rank not in ranks]
    return (
        *((f"{len(missing)} of {world} ranks have no file, the first of them rank {missing[0]}",) if missing else ()),
        "without checkpoint.rank_sync nothing waits for the slower ranks before the clock is read",
    )


def _checkpoints(file: Path) -> dict[Key, _Checkpoint]:
    """What one rank says of each checkpoint, saves first."""
    epochs = json_of(file, _TOOL, dict[str, dict[str, Any]])
    found: dict[Key, _Checkpoint] = {}
    for epoch in epochs.values():
        for name, value in epoch.items():
            match = _PHASE.match(name)
            if match is None:
                continue
            try:
                told = msgspec.convert(value, _Checkpoint, strict=False)
            except msgspec.ValidationError as error:
                raise not_one(file, _TOOL, f'"{name}": {error}') from None
            if not 0 <= told.duration < 1e9 or not 0 <= told.throughput < 1e12:
                raise not_one(file, _TOOL, f'"{name}": a time or rate that cannot be')
            found[(_WORDS[match[1]], int(match[2]))] = told
    return found


def _phase(key: Key, ranks: dict[int, dict[Key, _Checkpoint]], world: int, summary: _Summary) -> PhaseSeen:
    told = {rank: each[key] for rank, each in ranks.items() if key in each}
    times = [each.duration for each in told.values()]
    is_whole = len(told) >= world
    first = told.get(0)
    return PhaseSeen(
        *key,
        (max(times) or None) if is_whole else None,
        _BASIS if is_whole else _NOT_ALL,
        tool_seconds=first.duration if first else None,
        tool_bytes_per_s=first.throughput * GIB if first else None,
        bytes=_bytes(first, summary),
        first_done_s=min(times) if is_whole else None,
        ranks=tuple(RankSeen(rank, each.duration) for rank, each in told.items()),
    )


def _bytes(first: _Checkpoint | None, summary: _Summary) -> int | None:
    """The size that the summary tells (GiB, for all its name), else what rank 0's rate and time imply."""
    size = summary.metric.checkpoint_size_GB
    if size is not None and 0 < size < 1e9:
        return round(size * GIB)
    return round(first.throughput * first.duration * GIB) if first and first.throughput else None
