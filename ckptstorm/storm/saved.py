"""What a save on its own leaves beside its checkpoints, so that another storm, elsewhere and later, can restore them.

`.ckptstorm-saved` stands next to the mark: each file with its size and the machines that wrote it, the
round that it is of, and the number that its content is made from. It is read as data from a stranger.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from ckptstorm.errors import PlaceError
from ckptstorm.job import Job, to_builtins
from ckptstorm.jobfile import from_builtins
from ckptstorm.storm.manifest import SAVED

_BYTES_MAX = 1 << 30
Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class SavedFile(msgspec.Struct, frozen=True):
    """A file: its name below the step directory, its size, and who wrote it (indices of `Saved.machines`)."""

    name: str
    bytes: Natural
    writers: tuple[Natural, ...]


class SavedRound(msgspec.Struct, frozen=True):
    """A checkpoint: which save of the storm made it (from 0), as which round, and its files."""

    index: Natural
    round: int
    step: Annotated[str, msgspec.Meta(pattern=r"^step-[0-9]{1,12}$")]
    files: tuple[SavedFile, ...]


class Saved(msgspec.Struct, frozen=True):
    """All that a restore must know.

    Attributes:
        storm_id, seed: of the storm that saved, and what its payload is made from.
        job: the resolved job.
        rank_count: of its world.
        machines: what tells one page cache from another: Slurm's node names, else the kernels' boot ids.
        machine_of_rank: index of `machines` for each rank.
        result: the result folder of the save, absolute.
        rounds: the checkpoints that are there, oldest first.
    """

    storm_id: str
    seed: Natural
    job: dict[str, Any]
    rank_count: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
    machines: tuple[str, ...]
    machine_of_rank: tuple[Natural, ...]
    result: str
    rounds: tuple[SavedRound, ...]


def write(root_fd: int, saved: Saved) -> None:
    """Leave it in the directory, synced. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(SAVED, flags, 0o644, dir_fd=root_fd)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(saved), indent=1) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(directory: str) -> Saved:
    """What a directory holds for a restore.

    Raises:
        PlaceError: nothing was left to restore there, or what says so is damaged.
    """
    where = os.path.join(directory, SAVED)
    try:
        fd = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise PlaceError(
            f"{directory}: nothing to restore: there is no {SAVED}",
            f"save first: ckptstorm run JOB --only save --dir {directory}",
        ) from None
    except OSError as error:
        raise PlaceError(f"{where}: cannot be read: {error.strerror}") from None
    try:
        with os.fdopen(fd, "rb") as file:
            raw = file.read(_BYTES_MAX) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError as error:
        raise PlaceError(
            f"{where}: cannot be read: {error.strerror}, although its sync had returned: the storage did not keep it",
            "save again with durable syncs",
        ) from None
    try:
        saved = msgspec.json.decode(raw, type=Saved)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PlaceError(f"{where}: damaged: {error}", "save again") from None
    problem = _impossible(saved)
    if problem:
        raise PlaceError(f"{where}: damaged: {problem}", "save again")
    return saved


def _impossible(saved: Saved) -> str:
    count = len(saved.machines)
    if len(saved.machine_of_rank) != saved.rank_count or any(at >= count for at in saved.machine_of_rank):
        return "ranks and machines do not fit together"
    if any(at >= count for each in saved.rounds for file in each.files for at in file.writers):
        return "a file was written by a machine that there is not"
    if not saved.rounds:
        return "it names no checkpoint"
    names = (file.name for each in saved.rounds for file in each.files)
    return "a file's name leads elsewhere" if any(_leads_elsewhere(name) for name in names) else ""


def _leads_elsewhere(name: str) -> bool:
    return name.startswith("/") or ".." in name.split("/") or not re.fullmatch(r"[^\0]+", name)


def job_to_restore(saved: Saved, asked: Job, origin: str) -> Job:
    """The job of the restore: its own `[restore]`, `[io]` and `[slo]`, and all else as it was saved.

    Raises:
        JobError: what was saved cannot be decoded any more.
        PlaceError: the job asks for another model, cut or layout than what lies there; names the key.
    """
    was = from_builtins(saved.job, origin)
    there, here = to_builtins(was), to_builtins(asked)
    for name in ("model", "parallel", "layout"):
        for key in sorted({*there[name], *here[name]}):
            if there[name].get(key) != here[name].get(key):
                raise PlaceError(
                    f"{origin} was saved with [{name}] {key} = {there[name].get(key)!r}, and this job says"
                    f" {here[name].get(key)!r}",
                    "restore with the job that saved",
                )
    storm = msgspec.structs.replace(
        asked.storm,
        rounds=was.storm.rounds,
        duration=was.storm.duration,
        warmup=was.storm.warmup,
        keep=was.storm.keep,
        staging=was.storm.staging,
    )
    io = msgspec.structs.replace(asked.io, durability=was.io.durability)
    return msgspec.structs.replace(asked, storm=storm, io=io)


def sources(machine_of_writer: Sequence[str], machine_of_reader: Sequence[str]) -> list[int]:
    """Whose shards each rank restores, so that as few as can be were written on the reader's own machine.

    A bijection. Ranks that would read what their own machine wrote swap with others until none is left that
    can: rank i with its writer on its own machine h finds a partner j unless every other rank reads on h or has
    its writer on h, so none is left whenever readers on h + writers on h <= ranks, for every machine h.
    """
    found = list(range(len(machine_of_reader)))
    by_pair: dict[tuple[str, str], list[int]] = {}
    for rank, reader in enumerate(machine_of_reader):
        by_pair.setdefault((reader, machine_of_writer[rank]), []).append(rank)
    for own in sorted(set(machine_of_reader) & set(machine_of_writer)):
        mine = by_pair.get((own, own), [])
        while mine:
            pair = next((p for p in by_pair if own not in p and by_pair[p]), None)
            if pair is None:
                other = next((p for p in by_pair if p[0] == p[1] != own and by_pair[p]), None)
                if other is None:
                    break
                pair = other
            first, second = mine.pop(), by_pair[pair].pop()
            found[first], found[second] = found[second], found[first]
            by_pair.setdefault((own, pair[1]), []).append(first)
            by_pair.setdefault((pair[0], own), []).append(second)
    return found
