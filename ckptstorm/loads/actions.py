"""The actions of metadata loads: what a word of the job means in ops.

An action is a lead word, and for `create` and `open` what is done while the file is open: "create+write+fsync",
"open+read", "open+append+utime". The ops of many files are made at once, a column an op.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ckptstorm.errors import JobError
from ckptstorm.program import OP_DTYPE, Kind, Ops, open_length
from ckptstorm.registry import allowed, suggestion

Int64s = NDArray[np.int64]

#: What can stand first.
LEADS = {
    "create": "a file that is not there yet, opened with O_EXCL and closed",
    "open": "a file opened and closed",
    "log": "the rank's own log file opened to append, made when it is not there, and closed",
    "stat": "a file looked up and its inode read",
    "exists": "the same, asked by a program that only wants to know whether it is there",
    "miss": "the same of a name that is not there: ENOENT is the answer",
    "list": "a directory opened, all its entries read, closed",
    "utime": "both times of a file set to now",
    "chmod": "a file's mode set",
    "rename": "a file to its other name in the same directory, and back the next time",
    "link": "a second name for a file",
    "delete": "a file unlinked",
    "mkdir": "a directory made beside the files",
    "rmdir": "such a directory removed",
}
#: What can be done while a file is open.
PARTS = {
    "write": "its whole size written from the start",
    "append": "more written at its end",
    "read": "its whole size read",
    "fsync": "fsync",
    "fstat": "fstat",
    "setxattr": "an extended attribute of 64 bytes set",
    "flock": "flock taken and given back",
    "lock": "a byte range locked (OFD) and given back",
    "utime": "both times set to now, by name",
}
_XATTR_BYTES = 64
#: `flags` of lock and unlock: an OFD lock of the op's range; LOCK_EX.
_RANGE, _EXCLUSIVE = 0x10, 2


@dataclass(frozen=True, slots=True)
class Action:
    """A word of the job, understood.

    Attributes:
        word: as the job writes it.
        lead: what stands first.
        parts: what follows.
    """

    word: str
    lead: str
    parts: tuple[str, ...] = ()

    @property
    def locks(self) -> bool:
        """Whether a lock is taken."""
        return "flock" in self.parts or "lock" in self.parts


def parse(word: str, where: str) -> Action:
    """ "create+write+fsync" -> its lead and parts.

    Raises:
        JobError: no such word, or parts where there can be none.
    """
    lead, *parts = (piece.strip() for piece in word.split("+"))
    if lead not in LEADS:
        raise JobError(f'{where} "{word}": there is no action "{lead}"{suggestion(lead, LEADS)}', allowed(LEADS))
    can = {"create": tuple(PARTS), "open": tuple(PARTS), "log": ("append", "fsync", "utime"), "list": ("stat",)}.get(
        lead, ()
    )
    for part in parts:
        if part not in can:
            hint = allowed(can) if can else f"{lead} stands alone"
            raise JobError(f'{where} "{word}": "{part}" cannot follow {lead}{suggestion(part, can)}', hint)
    return Action("+".join((lead, *parts)), lead, tuple(parts))


def counted_words(acts: tuple[Action, ...]) -> tuple[str, ...]:
    """What is counted, each word once: a flow may read ten files before it writes one."""
    return tuple(dict.fromkeys(action.word for action in acts))


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What each of many actions of one kind is done to; all arrays are of one length.

    Attributes:
        file: path index of the file, under the name that it has then.
        other: path index of the name that a rename or a link gives it.
        directory: path index of its directory.
        size_bytes: of the file then.
        append_bytes: that an append adds.
        lock_file: path index of what is locked; the file itself when that is negative.
        lock_offset: first byte of the range that is locked.
        log_file: path index of the rank's log.
    """

    file: Int64s
    other: Int64s
    directory: Int64s
    size_bytes: Int64s
    append_bytes: Int64s
    lock_file: int = -1
    lock_offset: int = 0
    log_file: int = -1


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """The same op for every action: each value is one number for all, or one for each."""

    kind: Kind
    file: Int64s
    offset: Int64s | int = 0
    length: Int64s | int = 0
    flags: int = 0
    expect: int = 0


def rows(action: Action, on: Targets) -> Ops:
    """The ops of many actions, one after the other: shape (actions, ops of one)."""
    columns = _OPENING[action.lead](action, on) if action.lead in _OPENING else [_ALONE[action.lead](on)]
    ops: Ops = np.zeros((len(on.file), len(columns)), dtype=OP_DTYPE)
    for number, column in enumerate(columns):
        ops["kind"][:, number], ops["file"][:, number] = column.kind, column.file
        ops["offset_bytes"][:, number], ops["length_bytes"][:, number] = column.offset, column.length
        ops["flags"][:, number], ops["expect"][:, number] = column.flags, column.expect
    return ops


def _create(action: Action, on: Targets) -> list[_Column]:
    flags = os.O_CREAT | os.O_EXCL | (os.O_RDWR if "read" in action.parts else os.O_WRONLY)
    return _held(action, on, flags)


def _open(action: Action, on: Targets) -> list[_Column]:
    writes = {"write", "append", "lock", "setxattr", "cut"} & set(action.parts)
    flags = (os.O_RDWR if writes else os.O_RDONLY) | (os.O_APPEND if "append" in action.parts else 0)
    return _held(action, on, flags)


def _log(action: Action, on: Targets) -> list[_Column]:
    assert on.log_file >= 0
    own = replace(on, file=np.full_like(on.file, on.log_file), size_bytes=np.zeros_like(on.file))
    return _held(action, own, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def _held(action: Action, on: Targets, flags: int) -> list[_Column]:
    """Open, what is done meanwhile, close."""
    file = on.file if on.lock_file < 0 or not action.locks else np.full_like(on.file, on.lock_file)
    middle = [column for part in action.parts for column in _HELD[part](file, on)]
    return [_Column(Kind.OPEN, file, length=open_length(flags)), *middle, _Column(Kind.CLOSE, file)]


_OPENING: dict[str, Callable[[Action, Targets], list[_Column]]] = {"create": _create, "open": _open, "log": _log}

_HELD: dict[str, Callable[[Int64s, Targets], list[_Column]]] = {
    "write": lambda file, on: [_Column(Kind.WRITE, file, 0, on.size_bytes)] if on.size_bytes.any() else [],
    "append": lambda file, on: [_Column(Kind.WRITE, file, on.size_bytes, on.append_bytes)],
    # An empty file is read too: that it ends at once is what the reader learns.
    "read": lambda file, on: [_Column(Kind.READ, file, 0, np.maximum(on.size_bytes, 1))],
    "fsync": lambda file, on: [_Column(Kind.FSYNC, file)],
    "fstat": lambda file, on: [_Column(Kind.FSTAT, file)],
    "setxattr": lambda file, on: [_Column(Kind.SETXATTR, file, 0, _XATTR_BYTES)],
    "flock": lambda file, on: [_Column(Kind.LOCK, file, flags=_EXCLUSIVE), _Column(Kind.UNLOCK, file)],
    "lock": lambda file, on: [
        _Column(Kind.LOCK, file, on.lock_offset, 1, _RANGE | _EXCLUSIVE),
        _Column(Kind.UNLOCK, file, on.lock_offset, 1, _RANGE),
    ],
    "utime": lambda file, on: [_Column(Kind.UTIME, file)],
    # Not a word of a job: how a lap of a mix undoes what was appended.
    "cut": lambda file, on: [_Column(Kind.TRUNCATE, file, 0, on.size_bytes)],
}

_ALONE: dict[str, Callable[[Targets], _Column]] = {
    "stat": lambda on: _Column(Kind.STAT, on.file),
    "exists": lambda on: _Column(Kind.STAT, on.file),
    "miss": lambda on: _Column(Kind.STAT, on.other, expect=errno.ENOENT),
    "list": lambda on: _Column(Kind.READDIR, on.directory),
    "utime": lambda on: _Column(Kind.UTIME, on.file),
    "chmod": lambda on: _Column(Kind.CHMOD, on.file, length=0o640),
    "rename": lambda on: _Column(Kind.RENAME, on.file, on.other),
    "link": lambda on: _Column(Kind.LINK, on.file, on.other),
    "delete": lambda on: _Column(Kind.UNLINK, on.file),
    "mkdir": lambda on: _Column(Kind.MKDIR, on.file, length=0o777),
    "rmdir": lambda on: _Column(Kind.RMDIR, on.file),
}
