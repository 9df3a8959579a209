"""Reads through a mapping of a file: what a framework that loads by mmap asks of the kernel.

A mapping is made by the first read of a file, inside that read's time, and lasts until the file is
closed. A read touches its range (MADV_POPULATE_READ, which answers an I/O error with an errno where
a plain access would end the process with SIGBUS), then copies it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes8 = NDArray[np.uint8]

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
# Python has no names for these: Linux 5.14's madvise, and the errno of a page with a memory error.
_MADV_POPULATE_READ, _EHWPOISON = 22, 133


class Mappings:
    """The files that one program has mapped, by path index."""

    def __init__(self) -> None:
        self._bytes: dict[int, Bytes8] = {}

    def read(self, file: int, fd: int, into: Bytes8, offset_bytes: int) -> Callable[[], int]:
        """A call that fills `into` from a mapping of the file open as `fd`; short at its end."""

        def call() -> int:
            mapped = self._bytes.get(file)
            if mapped is None:
                mapped = self._bytes[file] = _map(fd)
            part = mapped[offset_bytes : offset_bytes + len(into)]
            if len(part):
                _touch(part)
                # A copy by NumPy: it lets other threads run meanwhile.
                np.copyto(into[: len(part)], part)
            return len(part)

        return call

    def drop(self, file: int) -> None:
        """Unmap a file that is about to be closed."""
        self._bytes.pop(file, None)

    def drop_all(self) -> None:
        """Unmap what is left."""
        self._bytes.clear()


def _map(fd: int) -> Bytes8:
    size = os.fstat(fd).st_size
    if size == 0:  # the kernel maps no empty file; a read of one is short
        return np.empty(0, dtype=np.uint8)
    return np.frombuffer(mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ), dtype=np.uint8)


def _touch(part: Bytes8) -> None:
    """Have every page of the range in memory.

    Raises:
        OSError: the kernel could not read one.
    """
    address: Any = part.ctypes.data
    lead = address % mmap.PAGESIZE
    if _LIBC.madvise(address - lead, len(part) + lead, _MADV_POPULATE_READ) == 0:
        return
    number = ctypes.get_errno()
    if number == errno.EINVAL:  # an older kernel: the copy will touch them
        return
    # EFAULT and EHWPOISON are how the kernel says here that a page could not be had.
    number = errno.EIO if number in (errno.EFAULT, _EHWPOISON) else number
    raise OSError(number, os.strerror(number))
