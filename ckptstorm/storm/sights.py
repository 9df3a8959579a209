"""After the commit: when does every other node see the new checkpoint?

A training job that restarts elsewhere reads the pointer (`latest`, a tracker, the renamed `.metadata`) on nodes
that did not write it, and a client may go on believing its own cache. One rank of each node looks: before the
save once, as a node does that knows the checkpoint before; after the commit again and again, until it sees
what was committed, by size and content.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ckptstorm.clock import NS_PER_S, monotonic_ns
from ckptstorm.measure.phase_row import phase_row
from ckptstorm.measure.visibility import NEVER, NOTHING, VISIBILITY_DTYPE, WAYS, Visibility, not_looked_at
from ckptstorm.payload import FileImage, Payload
from ckptstorm.plan import facts_of, plan
from ckptstorm.program import READS, WRITES, Kind, Path, Program
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.lowered import LoweredRun, lowered
from ckptstorm.storm.phase import Seen

#: NFS keeps a directory's attributes for a minute at most (nfs(5), acdirmax): a look that is longer than this tells
#: of a client that never looks again.
LIMIT_NS = 90 * NS_PER_S
#: Engines whose files hold payload, byte for byte: of the others' files nobody knows what should be in them.
_WRITE_PAYLOAD = ("native", "posix", "mpiio")
_NAP_LEAST_S, _NAP_MOST_S = 1e-3, 20e-3
#: Files whose sizes stand for the complete step: looking at all would be a metadata storm of our own.
_FILES_LOOKED_AT = 4
#: Of the pointer's content so much is compared.
_COMPARED_BYTES = 4096


@dataclass(frozen=True, slots=True)
class _Target:
    """The file whose appearance is the commit.

    Attributes:
        program, file: where it is named.
        is_renamed: it appears by a rename; else it is written in place, and a descriptor held before sees it.
    """

    program: Program
    file: int
    is_renamed: bool

    @property
    def path(self) -> Path:
        """Its path in the program."""
        return self.program.paths[self.file]


class Sights:
    """One rank's looks; only the leaders of nodes have any, and only when there is more than one node."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        nodes = int(crew.cluster.node_of_rank.max()) + 1
        self._is_asked = crew.job.storm.visibility and nodes > 1 and crew.orders.engine in _WRITE_PAYLOAD
        self._looks = self._is_asked and crew.cluster.place.local_index == 0
        self._target = _target(crew) if self._looks else None
        self._directory_fd = self._file_fd = -1

    def before(self, step: str) -> None:
        """Know the checkpoint before, as a node does that has looked at it: handles are held from here on."""
        self._let_go()
        if self._target is None:
            return
        location = self._target.program.in_step(step).location(self._target.file)
        self._directory_fd = self._open(os.path.dirname(location) or ".", os.O_DIRECTORY)
        if not self._target.is_renamed:
            self._file_fd = self._open(location, 0)
            self._read(self._file_fd)

    def after(self, seen: Seen, payload: Payload, step: str) -> Visibility:
        """When each node saw it, on rank 0 (nothing elsewhere); a collective of all ranks."""
        cluster = self._crew.cluster
        if not self._is_asked:
            return not_looked_at()
        row = phase_row(seen.observed)
        news = np.array([row["committed_ns"], seen.has_failed or seen.observed.was_stopped], dtype=np.int64)
        committed_ns, has_failed = cluster.greatest(news).tolist()
        if has_failed or committed_ns < 0:
            self._let_go()
            return not_looked_at()
        found = np.zeros(1, dtype=VISIBILITY_DTYPE)
        for way in WAYS:
            found[way] = NOTHING
        # A node is told apart by its leader; the others' rows are left out on rank 0.
        found["node"] = cluster.place.node_index if self._looks else np.iinfo(np.uint32).max
        if self._looks:
            self._look(found, seen.observed.announced_release_ns + committed_ns, payload, step)
        self._let_go()
        rows = cluster.rows_on_rank_0(found)
        kept: Visibility = rows[rows["node"] < np.iinfo(np.uint32).max]
        return kept

    def _look(self, found: Visibility, commit_ns: int, payload: Payload, step: str) -> None:
        """Every way until it shows what was committed, or time is up."""
        target, sizes = self._target, self._sizes(step)
        ways: dict[str, Callable[[], bool]] = {}
        if target is not None:
            location = target.program.in_step(step).location(target.file)
            image = payload.image(target.path)
            ways["pointer_ns"] = lambda: self._is_new(self._open(location, 0), image, closes=True)
            if self._file_fd >= 0:
                ways["handle_ns"] = lambda: self._is_new(self._file_fd, image)
            elif self._directory_fd >= 0:
                name, directory = os.path.basename(location), self._directory_fd
                ways["handle_ns"] = lambda: self._is_new(_open_at(directory, name, 0), image, closes=True)
        if sizes:
            ways["step_ns"] = lambda: all(self._size(name) == size for name, size in sizes.items())
        for way in ways:
            found[way] = NEVER
        nap_s, end_ns = _NAP_LEAST_S, monotonic_ns() + LIMIT_NS
        while ways and monotonic_ns() < end_ns:
            for way in [way for way, is_seen in ways.items() if is_seen()]:
                found[way] = max(monotonic_ns() - commit_ns, 0)
                del ways[way]
            if ways:
                self._crew.cluster.tick()
                time.sleep(nap_s)
                nap_s = min(2 * nap_s, _NAP_MOST_S)

    def _sizes(self, step: str) -> dict[str, int]:
        """The files that this rank is about to read most ops of, with their sizes."""
        sizes: dict[str, int] = {}
        for stage in self._crew.restore:
            for program in stage.programs if isinstance(stage, LoweredRun) else ():
                reads = program.ops["file"][np.isin(program.ops["kind"], READS)]
                for file in np.unique(reads).tolist():
                    path = program.paths[file]
                    if path.size_bytes and len(sizes) < _FILES_LOOKED_AT:
                        sizes[program.in_step(step).location(file)] = path.size_bytes
        return sizes

    def _size(self, location: str) -> int:
        try:
            return os.stat(location, dir_fd=self._crew.root_fd).st_size
        except OSError:
            return -1

    def _open(self, location: str, flags: int) -> int:
        return _open_at(self._crew.root_fd, location, flags)

    def _is_new(self, fd: int, image: FileImage, *, closes: bool = False) -> bool:
        """Whether what the descriptor shows is what was committed."""
        content = self._read(fd)
        if closes and fd >= 0:
            os.close(fd)
        return bool(content) and image.check(np.frombuffer(content, dtype=np.uint8), 0, "") is None

    def _read(self, fd: int) -> bytes:
        try:
            return os.pread(fd, _COMPARED_BYTES, 0) if fd >= 0 else b""
        except OSError:
            return b""

    def _let_go(self) -> None:
        for fd in (self._directory_fd, self._file_fd):
            if fd >= 0:
                os.close(fd)
        self._directory_fd = self._file_fd = -1


def _open_at(directory_fd: int, location: str, flags: int) -> int:
    try:
        return os.open(location, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=directory_fd)
    except OSError:
        return -1


def _target(crew: Crew) -> _Target | None:
    """What rank 0 renames or writes last in its commit; None for a layout that commits nothing of its own."""
    steps = lowered(plan(crew.job, crew.world, 0).save, facts_of(crew.job, crew.orders.block_size_bytes), crew.job.io)
    steps = crew.located(steps, crew.own_index)
    commits = [stage for stage in steps if isinstance(stage, LoweredRun) and stage.part == "commit"]
    for stage in reversed(commits):
        for program in reversed(stage.programs):
            for row in program.ops[::-1]:
                if row["kind"] == Kind.RENAME:
                    return _Target(program, int(row["offset_bytes"]), is_renamed=True)
                if row["kind"] in WRITES:
                    return _Target(program, int(row["file"]), is_renamed=False)
    return None
