"""What only a look from a node tells: its mount, its memory, and what a small file of ours can do there.

The file is made with a name that nobody has, in the nearest directory that exists, and removed at once;
nothing of the checkpoint is written.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ckptstorm.clock import NS_PER_S
from ckptstorm.cluster.comm import Cluster
from ckptstorm.filesystems.mount import MEMORY_TYPES, Mount, differs, mount_of
from ckptstorm.storm.findings import Finding
from ckptstorm.storm.memory import available_bytes
from ckptstorm.storm.pressure import to_hold_bytes
from ckptstorm.units import bytes_text, time_text

#: Servers count in seconds or jiffies; a clock that is off by more will confuse tools, though no duration of ours.
_CLOCK_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Question:
    """What rank 0 wants to know of every node.

    Attributes:
        directory: where to look: the nearest directory to the one under test that exists.
        mount: rank 0's mount of it.
        memory_bytes: what the ranks of a node will need.
        file_bytes: size of the largest file.
        is_direct: whether the job asks for O_DIRECT.
        memory_pressure: the share of a node's memory that the storm will hold in use.
    """

    directory: str
    mount: Mount
    memory_bytes: int
    file_bytes: int
    is_direct: bool
    memory_pressure: float = 0.0


def answer(cluster: Cluster, message: dict[str, Any]) -> list[str]:
    """Every rank's part in a survey, of which one a node looks; what they found, as JSON on rank 0 ("" of others)."""
    if cluster.place.local_index:
        return cluster.texts_on_rank_0("")
    question = Question(**{**message, "mount": Mount(**message["mount"])})
    findings = [asdict(one) for one in look(question)]
    return cluster.texts_on_rank_0(json.dumps({"host": cluster.place.host, "findings": findings}))


def look(question: Question) -> list[Finding]:
    """All probes on this node, always the same subjects in the same order."""
    found = [_mount(question), _memory(question), _file_size(question.file_bytes)]
    name = os.path.join(question.directory, f".ckptstorm-probe-{os.urandom(8).hex()}")
    try:
        began_s = time.time()
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = f"no file can be made in {question.directory}: {error.strerror}"
        return [*found, Finding("permission", "stops", why, "name another --dir"), *_unknown()]
    try:
        os.write(fd, b"ckptstorm")
        clock = _clock(fd, began_s)
        return [
            *found,
            Finding("permission", "fine", f"files can be made in {question.directory}"),
            _direct(name, question),
            _locks(fd),
            clock,
        ]
    finally:
        os.close(fd)
        os.unlink(name)


def _unknown() -> list[Finding]:
    return [Finding(subject, "warning", "not tried: no file can be made") for subject in ("O_DIRECT", "locks", "clock")]


def _mount(question: Question) -> Finding:
    try:
        own = mount_of(question.directory)
    except OSError as error:
        return Finding("mount", "stops", f"{question.directory}: cannot be looked at: {error.strerror}")
    difference = differs(question.mount, own)
    if difference:
        return Finding("mount", "stops", difference, "mount it in the same way on every node, or leave that node out")
    return Finding("mount", "fine", f"{own.type} from {own.source}, st_blksize {bytes_text(own.block_size_bytes)}")


def _memory(question: Question) -> Finding:
    need, held = question.memory_bytes, to_hold_bytes(question.memory_pressure) if question.memory_pressure else 0
    available = max(0, available_bytes() - held)
    under = f" when [io] memory_pressure holds {bytes_text(held)}" * bool(held)
    sentence = f"{bytes_text(need)} needed by a node's ranks, {bytes_text(available)} available{under}"
    if need > available:
        hint = "put fewer ranks on a node" + ", or lower [io] memory_pressure" * bool(held)
        return Finding("memory of nodes", "stops", f"not enough memory: {sentence}", hint)
    return Finding("memory of nodes", "fine", sentence)


def _file_size(largest: int) -> Finding:
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and largest > limit:
        sentence = f"the largest file has {bytes_text(largest)}, and this process may write {bytes_text(limit)}"
        return Finding("file size", "stops", sentence, "raise it: ulimit -f unlimited")
    return Finding("file size", "fine", f"the largest file has {bytes_text(largest)}; no limit below that")


def _direct(name: str, question: Question) -> Finding:
    """An aligned write and its read, and what O_DIRECT is worth where there is no device."""
    if question.mount.type in MEMORY_TYPES:
        state: Literal["fine", "warning"] = "warning" if question.is_direct else "fine"
        return Finding("O_DIRECT", state, "accepted on memory, where it means nothing")
    page = mmap.mmap(-1, mmap.PAGESIZE)
    page[:] = b"x" * len(page)
    try:
        fd = os.open(name, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        try:
            written, read = os.pwrite(fd, page, 0), os.preadv(fd, [page], 0)
        finally:
            os.close(fd)
    except OSError as error:
        why = f"an aligned write is refused: {error.strerror}"
        if question.is_direct:
            return Finding("O_DIRECT", "stops", f"{why}, and the job asks for it", "leave out [io] direct")
        return Finding("O_DIRECT", "warning", f"{why}: a job that asks for it would be refused")
    return Finding("O_DIRECT", "fine", f"an aligned write of {written} bytes, and its read of {read}, were done")


def _locks(fd: int) -> Finding:
    lacking = [name for name, lock in (("flock", _flock), ("fcntl", _posix_lock)) if not _is_done(lock, fd)]
    if lacking:
        sentence = f"{' and '.join(lacking)} locks are refused: two storms are kept apart by the mark alone"
        return Finding("locks", "warning", sentence)
    return Finding("locks", "fine", "flock and fcntl locks are given")


def _flock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(fd, fcntl.LOCK_UN)


def _posix_lock(fd: int) -> None:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(fd, fcntl.LOCK_UN)


def _is_done(lock: Callable[[int], None], fd: int) -> bool:
    try:
        lock(fd)
    except OSError:
        return False
    return True


def _clock(fd: int, began_s: float) -> Finding:
    """The time that the server gave the file, against this node's own clock around it."""
    os.fsync(fd)
    given_s, ended_s = os.fstat(fd).st_mtime, time.time()
    ahead_s = max(given_s - ended_s, min(given_s - began_s, 0.0))
    if abs(ahead_s) > _CLOCK_TOLERANCE_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        sentence = f"the file system's is {time_text(abs(ahead_s) * NS_PER_S)} {way} this node's"
        return Finding("clock", "warning", sentence, "no duration of a storm uses it; tools that compare times may err")
    return Finding("clock", "fine", f"the file system's agrees with this node's within {_CLOCK_TOLERANCE_S:g} s")
