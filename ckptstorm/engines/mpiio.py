"""MPI-IO: `MPI.File` in place of reads and writes, independent or collective, with hints.

A file that all ranks share is opened with the communicator of the phase, any other one by its rank alone.
`MPI_File_open` cannot truncate, so that an O_TRUNC is a `Set_size(0)` within the open's time; nor can it
refuse to follow a symbolic link, so that a link in the way is looked for before.
"""

from __future__ import annotations

import errno
import os
from typing import ClassVar, Literal

from mpi4py import MPI

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.library import LibraryProgram, OwnMemory
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program

#: The errno that an MPI error class stands for; any other is an EIO.
_ERRNOS = {
    MPI.ERR_NO_SUCH_FILE: errno.ENOENT,
    MPI.ERR_FILE_EXISTS: errno.EEXIST,
    MPI.ERR_ACCESS: errno.EACCES,
    MPI.ERR_NO_SPACE: errno.ENOSPC,
    MPI.ERR_QUOTA: errno.EDQUOT,
    MPI.ERR_READ_ONLY: errno.EROFS,
    MPI.ERR_BAD_FILE: errno.EINVAL,
    MPI.ERR_AMODE: errno.EINVAL,
    MPI.ERR_FILE_IN_USE: errno.EBUSY,
    MPI.ERR_UNSUPPORTED_OPERATION: errno.EOPNOTSUPP,
}
_ACCESS = {os.O_RDONLY: MPI.MODE_RDONLY, os.O_WRONLY: MPI.MODE_WRONLY, os.O_RDWR: MPI.MODE_RDWR}


class MpiioEngine:
    """MPI.File on the main thread."""

    name: ClassVar[str] = "mpiio"
    moves_data: ClassVar[bool] = True
    honours: ClassVar[dict[str, tuple[object, ...]]] = {"mode": ("independent", "collective"), "hints": (...,)}
    thread: ClassVar[Literal["own", "main"]] = "main"

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    @classmethod
    def missing(cls) -> str:
        """See `contract.Engine.missing`."""
        return ""

    def prepare(self, program: Program, payload: Payload) -> LibraryProgram:
        """See `contract.Engine.prepare`."""
        return LibraryProgram(self._setup, program, payload, _Files(self._setup))


class _Files(OwnMemory):
    """Open MPI files, by index in the program."""

    def __init__(self, setup: Setup) -> None:
        self._comm: MPI.Intracomm = setup.comm if setup.comm is not None else MPI.COMM_SELF
        self._info = MPI.Info.Create(dict(setup.hints)) if setup.hints else MPI.INFO_NULL
        self._open: dict[int, MPI.File] = {}
        self._status = MPI.Status()

    def open(self, file: int, name: str, path: Path, flags: int) -> None:
        """See `library.Backend`."""
        mode = _ACCESS[flags & os.O_ACCMODE]
        mode |= (MPI.MODE_CREATE if flags & os.O_CREAT else 0) | (MPI.MODE_EXCL if flags & os.O_EXCL else 0)
        comm = self._comm if path.is_shared else MPI.COMM_SELF
        try:
            opened = MPI.File.Open(comm, name, mode, self._info)
            self._open[file] = opened
            if flags & os.O_TRUNC:
                opened.Set_size(0)
        except MPI.Exception as error:
            raise _os_error(error) from None

    def write(self, file: int, kind: Kind, part: memoryview, offset_bytes: int) -> int:
        """See `library.Backend`."""
        opened = self._open[file]
        act = opened.Write_at_all if kind is Kind.MPI_WRITE_AT_ALL else opened.Write_at
        try:
            act(offset_bytes, [part, MPI.BYTE], self._status)
        except MPI.Exception as error:
            raise _os_error(error) from None
        return self._status.Get_count(MPI.BYTE) if len(part) else 0

    def read(self, file: int, kind: Kind, into: memoryview, offset_bytes: int) -> int:
        """See `library.Backend`."""
        opened = self._open[file]
        act = opened.Read_at_all if kind is Kind.MPI_READ_AT_ALL else opened.Read_at
        try:
            act(offset_bytes, [into, MPI.BYTE], self._status)
        except MPI.Exception as error:
            raise _os_error(error) from None
        return self._status.Get_count(MPI.BYTE) if len(into) else 0

    def sync(self, file: int) -> None:
        """See `library.Backend`."""
        try:
            self._open[file].Sync()
        except MPI.Exception as error:
            raise _os_error(error) from None

    def close(self, file: int) -> None:
        """See `library.Backend`."""
        try:
            self._open.pop(file).Close()
        except MPI.Exception as error:
            raise _os_error(error) from None

    def is_open(self, file: int) -> bool:
        """See `library.Backend`."""
        return file in self._open

    def close_all(self) -> None:
        """See `library.Backend`; a shared file is open here only where it is so on all ranks."""
        for file in list(self._open):
            try:
                self.close(file)
            except OSError:  # after an error a close has nothing to tell any more
                continue
        if self._info != MPI.INFO_NULL:
            self._info.Free()


def _os_error(error: MPI.Exception) -> OSError:
    number = _ERRNOS.get(error.Get_error_class(), errno.EIO)
    return OSError(number, os.strerror(number))
