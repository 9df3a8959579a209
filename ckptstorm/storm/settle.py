"""Between save and restore: make the restore cold, and prove it.

A restore that reads what this node's own page cache holds measures memory. So each rank asks the
kernel to let go of the files it wrote, and then counts what is still held of what it will read.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np

from ckptstorm.cluster.comm import Cluster
from ckptstorm.filesystems import page_cache
from ckptstorm.program import READS
from ckptstorm.storm.crew import Crew, LoweredRun

#: Residency is counted in the files that a rank reads most of: opening all the files that a rank
#: touches (a thousand, in a large world) would be a metadata storm of our own.
_FILES_LOOKED_AT = 4


def drop_written(crew: Crew, step: str) -> None:
    """Ask this node's page cache to let go of all that this rank wrote."""
    for name in crew.plan.created:
        with _opened(crew.root_fd, f"{step}/{name}") as fd:
            if fd >= 0:
                page_cache.drop(fd)


def resident_share(crew: Crew, step: str) -> float:
    """Of the bytes that all ranks are about to read (in the files they read most of), the share in page caches.

    Returns:
        0 to 1; -1 where it cannot be told.
    """
    held = looked_at = 0
    for location in _most_read(crew, step):
        with _opened(crew.root_fd, location) as fd:
            resident = page_cache.resident_bytes(fd) if fd >= 0 else 0
            if resident < 0:
                looked_at = -1
                break
            held, looked_at = held + resident, looked_at + (os.fstat(fd).st_size if fd >= 0 else 0)
    return _share_of_all(crew.cluster, held, looked_at)


def _share_of_all(cluster: Cluster, held: int, looked_at: int) -> float:
    cannot = cluster.greatest(np.array([looked_at < 0], dtype=np.int8))[0]
    sums = cluster.sum_on_rank_0(np.array([held, max(0, looked_at)], dtype=np.int64))
    return -1.0 if cannot else float(sums[0]) / max(1.0, float(sums[1]))


def _most_read(crew: Crew, step: str) -> list[str]:
    volume: Counter[str] = Counter()
    for stage in crew.restore:
        for program in stage.programs if isinstance(stage, LoweredRun) else ():
            reads = program.ops[np.isin(program.ops["kind"], READS)]
            in_step = program.in_step(step)
            for file in np.unique(reads["file"]):
                volume[in_step.location(int(file))] += int(reads["length_bytes"][reads["file"] == file].sum())
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
            os.close(self._fd)
