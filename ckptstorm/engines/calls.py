"""System calls by op kind, for engines in Python: each returns a call ready to be timed.

Paths are relative to the storm's root; an open file is known by its path. A file that is not open
answers EBADF, as the kernel would. A file is never opened through a symbolic link: a link in the
way would lead a storm out of its own directory.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable
from contextlib import suppress

from ckptstorm.program import Kind, open_flags

Call = Callable[[], int]

_LIBC = ctypes.CDLL(None, use_errno=True)
_UTIME_NOW = None  # os.utime(times=None): the server's idea of now
#: Python has no name for it: wait for a lock that belongs to the open file, not to the process.
_F_OFD_SETLKW = 38
#: In `flags` of lock and unlock: such a lock of the op's range, not flock(2).
LOCK_OPEN_FILE = 0x10
_XATTR_NAME = "user.ckptstorm"
_HEAD_BYTES = 64


class OpenFiles:
    """The files that one program has open, by path index."""

    def __init__(self, root_fd: int, locations: list[str]) -> None:
        self._root_fd = root_fd
        self._locations = [location or "." for location in locations]
        self._fds: dict[int, int] = {}
        self._replaced: list[int] = []
        #: Files that were open with O_DIRECT in force, as the kernel itself said when they were closed.
        self.direct_file_count = 0

    def close_all(self) -> None:
        """Close what is still open (after a stop or an error); a close that fails has nothing to tell any more."""
        self._replaced += self._fds.values()
        self._fds.clear()
        self._close_replaced()

    def _close_replaced(self) -> None:
        while self._replaced:
            with suppress(OSError):
                os.close(self._replaced.pop())

    def write(self, file: int, part: memoryview, offset_bytes: int) -> Call:
        """pwrite of `part`."""
        fd = self._fds.get(file, -1)
        return lambda: os.pwrite(fd, part, offset_bytes)

    def gather(self, file: int, part: memoryview, offset_bytes: int, part_count: int) -> Call:
        """pwritev of `part` in so many parts: heads of 64 bytes each, as a stream's buffer has them, and the rest."""
        fd, heads = self._fds.get(file, -1), min(part_count - 1, len(part) // _HEAD_BYTES)
        ends = [_HEAD_BYTES * index for index in range(heads + 1)]
        buffers = [part[low : low + _HEAD_BYTES] for low in ends[:-1]] + [part[ends[-1] :]]
        return lambda: os.pwritev(fd, buffers, offset_bytes)

    def read(self, file: int, into: memoryview, offset_bytes: int) -> Call:
        """pread into `into`."""
        fd, buffers = self._fds.get(file, -1), [into]
        return lambda: os.preadv(fd, buffers, offset_bytes)

    def descriptor(self, file: int) -> int:
        """The descriptor of an open file; -1, which answers EBADF, when it is not open."""
        return self._fds.get(file, -1)

    def other(self, kind: Kind, row: tuple[int, ...]) -> Call:
        """Any op that moves no data; an op that this machine's Python cannot make answers ENOSYS."""
        make = _MAKERS.get(kind)
        return _no_such_call if make is None else make(self, row)

    def _open(self, row: tuple[int, ...]) -> Call:
        file, (flags, mode) = row[3], open_flags(row[5])
        name, root, fds, replaced = self._locations[file], self._root_fd, self._fds, self._replaced
        self._close_replaced()  # what earlier opens took the place of: closed here, where nothing is timed

        def call() -> int:
            fd = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode, dir_fd=root)
            if file in fds:
                replaced.append(fds[file])
            fds[file] = fd
            return 0

        return call

    def _close(self, row: tuple[int, ...]) -> Call:
        fd = self._fds.pop(row[3], -1)
        if fd >= 0 and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            self.direct_file_count += 1

        def call() -> int:
            os.close(fd)
            return 0

        return call

    def _on_fd(self, row: tuple[int, ...], make: Callable[[int], object]) -> Call:
        fd = self._fds.get(row[3], -1)
        if fd < 0:  # Python refuses some calls on -1 by itself, and not as an OSError
            return _not_open

        def call() -> int:
            make(fd)
            return 0

        return call

    def _on_name(self, row: tuple[int, ...], make: Callable[[str, int], object]) -> Call:
        name, root = self._locations[row[3]], self._root_fd

        def call() -> int:
            make(name, root)
            return 0

        return call

    def _on_two_names(self, row: tuple[int, ...], make: Callable[[str, str, int], object]) -> Call:
        source, target, root = self._locations[row[3]], self._locations[row[4]], self._root_fd

        def call() -> int:
            make(source, target, root)
            return 0

        return call


def _not_open() -> int:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _no_such_call() -> int:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def syncfs(fd: int) -> None:
    """syncfs(2), which `os` does not offer.

    Raises:
        OSError: what the kernel answered.
    """
    if _LIBC.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def fsync_directory(name: str, root_fd: int) -> None:
    """Open a directory, fsync it, close it: what makes a rename in it durable."""
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root_fd)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def list_directory(name: str, root_fd: int) -> None:
    """Open a directory, read all its entries, close it."""
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root_fd)
    try:
        os.listdir(fd)
    finally:
        os.close(fd)


def lock_range(fd: int, row: tuple[int, ...], kind: int) -> None:
    """An open-file-description lock of the op's range taken (waiting) or given back; length 0: to the end."""
    # struct flock of 64-bit Linux: type, whence, start, length, pid (which must be 0).
    fcntl.fcntl(fd, _F_OFD_SETLKW, struct.pack("hhqqi4x", kind, os.SEEK_SET, row[4], row[5], 0))


def _lock(fd: int, row: tuple[int, ...]) -> None:
    how = row[1] & ~LOCK_OPEN_FILE
    if row[1] & LOCK_OPEN_FILE:
        lock_range(fd, row, fcntl.F_RDLCK if how == fcntl.LOCK_SH else fcntl.F_WRLCK)
    else:
        fcntl.flock(fd, how or fcntl.LOCK_EX)


def _unlock(fd: int, row: tuple[int, ...]) -> None:
    if row[1] & LOCK_OPEN_FILE:
        lock_range(fd, row, fcntl.F_UNLCK)
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _set_xattr(fd: int, length: int) -> None:
    os.setxattr(fd, _XATTR_NAME, b"x" * max(1, length))


_MAKERS: dict[Kind, Callable[[OpenFiles, tuple[int, ...]], Call]] = {
    Kind.MKDIR: lambda s, row: s._on_name(row, lambda n, d: os.mkdir(n, row[5] or 0o777, dir_fd=d)),
    Kind.OPEN: OpenFiles._open,
    Kind.FSYNC: lambda s, row: s._on_fd(row, os.fsync),
    Kind.FDATASYNC: lambda s, row: s._on_fd(row, os.fdatasync),
    Kind.SYNCFS: lambda s, row: s._on_fd(row, syncfs),
    Kind.FSYNC_DIR: lambda s, row: s._on_name(row, fsync_directory),
    Kind.CLOSE: OpenFiles._close,
    Kind.RENAME: lambda s, row: s._on_two_names(row, lambda a, b, d: os.rename(a, b, src_dir_fd=d, dst_dir_fd=d)),
    Kind.STAT: lambda s, row: s._on_name(row, lambda n, d: os.stat(n, dir_fd=d)),
    Kind.FSTAT: lambda s, row: s._on_fd(row, os.fstat),
    Kind.STATFS: lambda s, row: s._on_fd(row, os.fstatvfs),
    Kind.READDIR: lambda s, row: s._on_name(row, list_directory),
    Kind.UNLINK: lambda s, row: s._on_name(row, lambda n, d: os.unlink(n, dir_fd=d)),
    Kind.RMDIR: lambda s, row: s._on_name(row, lambda n, d: os.rmdir(n, dir_fd=d)),
    Kind.UTIME: lambda s, row: s._on_name(row, lambda n, d: os.utime(n, _UTIME_NOW, dir_fd=d)),
    Kind.CHMOD: lambda s, row: s._on_name(row, lambda n, d: os.chmod(n, row[5], dir_fd=d)),
    Kind.TRUNCATE: lambda s, row: s._on_fd(row, lambda fd: os.ftruncate(fd, row[5])),
    Kind.FALLOCATE: lambda s, row: s._on_fd(row, lambda fd: os.posix_fallocate(fd, row[4], row[5])),
    Kind.FADVISE: lambda s, row: s._on_fd(row, lambda fd: os.posix_fadvise(fd, row[4], row[5], row[1])),
    Kind.LOCK: lambda s, row: s._on_fd(row, lambda fd: _lock(fd, row)),
    Kind.UNLOCK: lambda s, row: s._on_fd(row, lambda fd: _unlock(fd, row)),
    Kind.LINK: lambda s, row: s._on_two_names(row, lambda a, b, d: os.link(a, b, src_dir_fd=d, dst_dir_fd=d)),
    Kind.SETXATTR: lambda s, row: s._on_fd(row, lambda fd: _set_xattr(fd, row[5])),
}
