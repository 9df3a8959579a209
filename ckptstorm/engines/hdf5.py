"""HDF5 through h5py: a file holds one dataset of bytes, and each op reads or writes a range of it.

A file of one rank needs any h5py. A file that all ranks share needs one that was built with MPI; on
others it is refused before the storm starts, with the recipe. The dataset is contiguous, allocated when
it is made and never filled, so that the bytes of an op are the bytes that reach the file. A sync is a
flush of HDF5 and an fsync of the file; through MPI-IO the flush alone, which syncs there.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
from typing import Any, ClassVar, Literal

import numpy as np

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.library import LibraryProgram, OwnMemory
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program

DATASET = b"data"
RECIPE = (
    "build one against the MPI of this environment: CC=mpicc HDF5_MPI=ON HDF5_DIR=<a parallel HDF5> pip install"
    ' --no-build-isolation --no-binary=h5py h5py, or let every rank have a file: [layout] name = "file_per_rank"'
)
_ERRNO = re.compile(r"errno = (\d+)")


class Hdf5Engine:
    """h5py on the main thread."""

    name: ClassVar[str] = "hdf5"
    moves_data: ClassVar[bool] = True
    honours: ClassVar[dict[str, tuple[object, ...]]] = {"mode": ("independent", "collective")}
    thread: ClassVar[Literal["own", "main"]] = "main"

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    @classmethod
    def missing(cls) -> str:
        """See `contract.Engine.missing`."""
        return "" if importlib.util.find_spec("h5py") else "h5py is not installed: pip install h5py"

    @classmethod
    def missing_for_shared(cls) -> str:
        """Why a file cannot be shared by ranks here; "" when it can."""
        import h5py

        if h5py.get_config().mpi:
            return ""
        return f"this h5py ({h5py.__version__}) was built without MPI; {RECIPE}"

    def prepare(self, program: Program, payload: Payload) -> LibraryProgram:
        """See `contract.Engine.prepare`."""
        return LibraryProgram(self._setup, program, payload, _Files(self._setup))


class _Files(OwnMemory):
    """Open HDF5 files with their dataset, by index in the program."""

    def __init__(self, setup: Setup) -> None:
        import h5py

        self._h5py, self._setup = h5py, setup
        self._open: dict[int, tuple[Any, Any]] = {}  # file, dataset
        self._shared: set[int] = set()

    def open(self, file: int, name: str, path: Path, flags: int) -> None:
        """See `library.Backend`: one that may be created is made anew, with its dataset."""
        h5py, access = self._h5py, self._access(path)
        with _os_errors():
            if flags & os.O_CREAT:
                made = h5py.h5f.create(os.fsencode(name), h5py.h5f.ACC_TRUNC, fapl=access)
                data = self._new_dataset(made, path.size_bytes)
            else:
                made = h5py.h5f.open(os.fsencode(name), h5py.h5f.ACC_RDONLY, fapl=access)
                data = h5py.h5d.open(made, DATASET)
            self._open[file] = (made, data)
            if self._is_together(path):
                self._shared.add(file)

    def _access(self, path: Path) -> Any:
        access = self._h5py.h5p.create(self._h5py.h5p.FILE_ACCESS)
        if self._is_together(path):
            from mpi4py import MPI

            access.set_fapl_mpio(self._setup.comm, MPI.INFO_NULL)
        return access

    def _is_together(self, path: Path) -> bool:
        return path.is_shared and self._setup.comm is not None

    def _new_dataset(self, made: Any, size_bytes: int) -> Any:
        h5py = self._h5py
        space = h5py.h5s.create_simple((size_bytes,))
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_layout(h5py.h5d.CONTIGUOUS)
        how.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        how.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        return h5py.h5d.create(made, DATASET, h5py.h5t.NATIVE_UINT8, space, dcpl=how)

    def write(self, file: int, kind: Kind, part: memoryview, offset_bytes: int) -> int:
        """See `library.Backend`."""
        del kind
        data = self._open[file][1]
        with _os_errors():
            memory, space = self._ranges(data, offset_bytes, len(part))
            data.write(memory, space, np.frombuffer(part, dtype=np.uint8), dxpl=self._transfer(file))
        return len(part)

    def read(self, file: int, kind: Kind, into: memoryview, offset_bytes: int) -> int:
        """See `library.Backend`."""
        del kind
        data = self._open[file][1]
        count = max(0, min(len(into), int(data.shape[0]) - offset_bytes))
        with _os_errors():
            memory, space = self._ranges(data, offset_bytes, count)
            data.read(memory, space, np.frombuffer(into[:count], dtype=np.uint8), dxpl=self._transfer(file))
        return count

    def _ranges(self, data: Any, offset_bytes: int, count: int) -> tuple[Any, Any]:
        h5s = self._h5py.h5s
        memory, space = h5s.create_simple((max(count, 1),)), data.get_space()
        if count:
            space.select_hyperslab((offset_bytes,), (count,))
        else:
            memory.select_none()
            space.select_none()
        return memory, space

    def _transfer(self, file: int) -> Any:
        h5py = self._h5py
        how = h5py.h5p.create(h5py.h5p.DATASET_XFER)
        if file in self._shared and self._setup.mode == "collective":
            how.set_dxpl_mpio(h5py.h5fd.MPIO_COLLECTIVE)
        return how

    def sync(self, file: int) -> None:
        """See `library.Backend`."""
        made = self._open[file][0]
        with _os_errors():
            self._h5py.h5f.flush(made)
            if file not in self._shared:
                os.fsync(made.get_vfd_handle())

    def close(self, file: int) -> None:
        """See `library.Backend`."""
        made, data = self._open.pop(file)
        with _os_errors():
            data._close()
            made.close()

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


@contextlib.contextmanager
def _os_errors() -> Any:
    """HDF5 tells the kernel's errno in its message only, and not always: else it is an EIO."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        told = _ERRNO.search(str(error))
        number = error.errno if isinstance(error, OSError) and error.errno else int(told[1]) if told else errno.EIO
        raise OSError(number, os.strerror(number)) from None
