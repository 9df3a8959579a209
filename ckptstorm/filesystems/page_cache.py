"""The page cache of this node: how much of a file it holds, and asking it to let go."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_CACHESTAT = 451  # the same number on every architecture; Linux 6.5 and later
_PAGE_BYTES = mmap.PAGESIZE
#: mincore looks at this much at a time: its vector stays at 1 MiB.
_WINDOW_BYTES = _PAGE_BYTES << 20


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Counts(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recent"))


def resident_bytes(fd: int) -> int:
    """How many bytes of an open file are in this node's page cache; -1 when it cannot be told.

    cachestat(2) where the kernel has it; else mincore(2), which says "all" to those who may not write the file.
    """
    size = os.fstat(fd).st_size
    if size == 0:
        return 0
    counts = _Counts()
    if _LIBC.syscall(_CACHESTAT, fd, ctypes.byref(_Range(0, 0)), ctypes.byref(counts), 0) == 0:
        return min(int(counts.cached) * _PAGE_BYTES, size)
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP):
        return -1
    return _by_mincore(fd, size)


def drop(fd: int) -> None:
    """Ask the kernel to let go of an open file's clean pages (dirty ones stay: sync first)."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _by_mincore(fd: int, size: int) -> int:
    total = 0
    for start in range(0, size, _WINDOW_BYTES):
        length = min(_WINDOW_BYTES, size - start)
        try:
            area = mmap.mmap(fd, length, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=start)
        except OSError:
            return -1
        with area:
            pages = np.zeros(-(-length // _PAGE_BYTES), dtype=np.uint8)
            view = np.frombuffer(area, dtype=np.uint8)
            failed = _LIBC.mincore(
                ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(length), ctypes.c_void_p(pages.ctypes.data)
            )
            del view
        if failed:
            return -1
        total += int((pages & 1).sum()) * _PAGE_BYTES
    return min(total, size)
