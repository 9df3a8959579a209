"""Between save and restore: make the restore cold, and prove it.

A restore that reads what this node's own page cache holds measures memory. So each rank asks the
kernel to let go of the files it wrote, and then counts what is still held of what it will read.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.cluster.comm import Cluster
from ckptstorm.filesystems import page_cache
from ckptstorm.filesystems.contract import CannotError, drop_pages
from ckptstorm.program import READS, WRITES, Kind, Program
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.lowered import Lowered, programs_of
from ckptstorm.storm.phase import Seen

#: Residency is counted in the files that a rank reads most of: opening all the files that a rank
#: touches (a thousand, in a large world) would be a metadata storm of our own.
_FILES_LOOKED_AT = 4


@dataclass(frozen=True, slots=True)
class DirectEvidence:
    """What shows that O_DIRECT was in force.

    Attributes:
        is_flag_set: the kernel told the flag back for every file that was opened with it.
        aligned_write_count: writes made.
        resident_share: of the bytes written, the share in page caches right after; -1 when unknown.
    """

    is_flag_set: bool
    aligned_write_count: int
    resident_share: float


def drop_written(crew: Crew, step: str) -> str:
    """Have this node forget all that this rank wrote (a shared file may be another's to create).

    Returns:
        Why that could not be done; "" when it was. What is left then shows in residency and counters.
    """
    return drop_files(crew, sorted(written(crew, step) | {f"{step}/{name}" for name in crew.plan.created}))


def drop_files(crew: Crew, locations: Iterable[str]) -> str:
    """Have this node forget these files, where they are there.

    Returns:
        Why that could not be done; "" when it was.
    """
    paths = [os.path.join(crew.directory, location) for location in locations]
    try:
        for path in paths:
            crew.file_system.drop_cache(path)
        if crew.is_reader:
            crew.file_system.drop_cache(crew.directory)
    except CannotError as error:
        for path in paths:
            drop_pages(path)
        return error.reason
    return ""


def written(crew: Crew, step: str) -> set[str]:
    """Where this rank's bytes stand after the save: "step-0/__0_0.distcp"."""
    return {
        f"{step}/{program.paths[int(file)].content_name}"
        for program in programs_of(crew.save)
        for file in np.unique(program.ops["file"][np.isin(program.ops["kind"], WRITES)])
    }


def resident_share(crew: Crew, step: str) -> float:
    """Of the bytes that all ranks are about to read (in the files they read most of), the share in page caches.

    Returns:
        0 to 1; -1 where it cannot be told. Of meaning on rank 0 only.
    """
    return _resident_share(crew, _most_moved(crew.restore, READS, step), 0)


def direct_evidence(crew: Crew, seen: Seen, step: str) -> DirectEvidence:
    """Whether O_DIRECT was in force in the save just made: flags, writes, and what the page cache holds of it.

    Of meaning on rank 0 only.
    """
    programs = [part.program for part in seen.observed.parts if part.part == "data"]
    asked = sum(int(_direct_opens(program).sum()) for program in programs)
    held = sum(getattr(notes, "direct_file_count", 0) for notes in seen.observed.tallies)
    writes = sum(int(np.isin(program.ops["kind"], WRITES).sum()) for program in programs)
    sums = crew.cluster.sum_on_rank_0(np.array([asked, held, writes], dtype=np.int64))
    # Cutting a file to its size, after a padded last write, brings its last page into the cache.
    share = _resident_share(crew, _most_moved(crew.save, WRITES, step), mmap.PAGESIZE)
    return DirectEvidence(bool(sums[1] >= sums[0] > 0), int(sums[2]), share)


def _direct_opens(program: Program) -> NDArray[np.bool_]:
    flags = program.ops["length_bytes"].astype(np.int64)
    return np.asarray((program.ops["kind"] == Kind.OPEN) & ((flags & os.O_DIRECT) != 0))


def _resident_share(crew: Crew, locations: list[str], forgiven_bytes: int) -> float:
    """Over all ranks' files at these places; up to `forgiven_bytes` a file are not counted as held."""
    held = looked_at = 0
    for location in locations:
        with _opened(crew.root_fd, location) as fd:
            resident = page_cache.resident_bytes(fd) if fd >= 0 else 0
            if resident < 0:
                looked_at = -1
                break
            held, looked_at = (
                held + max(0, resident - forgiven_bytes),
                looked_at + (os.fstat(fd).st_size if fd >= 0 else 0),
            )
    return _share_of_all(crew.cluster, held, looked_at)


def _share_of_all(cluster: Cluster, held: int, looked_at: int) -> float:
    cannot = cluster.greatest(np.array([looked_at < 0], dtype=np.int8))[0]
    sums = cluster.sum_on_rank_0(np.array([held, max(0, looked_at)], dtype=np.int64))
    return -1.0 if cannot else float(sums[0]) / max(1.0, float(sums[1]))


def _most_moved(stages: tuple[Lowered, ...], kinds: tuple[Kind, ...], step: str) -> list[str]:
    """The files of which most bytes move by ops of these kinds."""
    volume: Counter[str] = Counter()
    for program in programs_of(stages):
        moves = program.ops[np.isin(program.ops["kind"], kinds)]
        in_step = program.in_step(step)
        for file in np.unique(moves["file"]):
            volume[in_step.location(int(file))] += int(moves["length_bytes"][moves["file"] == file].sum())
    return [location for location, _ in volume.most_common(_FILES_LOOKED_AT)]


class _opened:
    """A file open for looking at; the descriptor is -1 when it is not there."""

    def __init__(self, root_fd: int, location: str) -> None:
        try:
            # Read and write: mincore tells the truth only to those who may write.
            self._fd = os.open(location, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root_fd)
        except OSError:
            self._fd = -1

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *exception: object) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # nothing was written through it
                os.close(self._fd)
