"""How bytes move: one file an engine, one line here; loaded on first use.

A new engine is a class with the shape of `contract.Engine`; `ckptstorm.testing.engines` is its test suite.
"""

from __future__ import annotations

from typing import Literal

from ckptstorm.registry import Entry, find

ENGINES = {
    "posix": Entry(
        "ckptstorm.engines.posix:PosixEngine",
        "pread and pwrite from pure Python: the reference",
        "POSIX.1-2017, through Python's os module",
    ),
    "native": Entry(
        "ckptstorm.engines.native_engine:NativeEngine",
        "compiled: sync, libaio, io_uring, mmap; O_DIRECT",
        "Linux man pages pwrite(2), io_submit(2), io_uring(7), mmap(2), open(2)",
    ),
    "mpiio": Entry(
        "ckptstorm.engines.mpiio:MpiioEngine",
        "MPI.File, independent or collective; hints; N-1",
        "the MPI standard's chapter on I/O, through mpi4py",
    ),
    "hdf5": Entry(
        "ckptstorm.engines.hdf5:Hdf5Engine",
        "h5py: a file a rank, or one for all when built with MPI",
        "The HDF Group's library, through h5py",
    ),
    "torch": Entry(
        "ckptstorm.engines.torch:TorchEngine",
        "torch.save and torch.load of generated tensors: the framework in the loop",
        "PyTorch itself, as installed",
    ),
    "null": Entry(
        "ckptstorm.engines.null:NullEngine", "moves nothing: the cost of the instrument itself", "this project's own"
    ),
}

#: What `engine = "auto"` takes: the first of these that is not missing here.
_FASTEST_FIRST = ("native", "posix")


def missing(name: str) -> str:
    """Why an engine cannot be used on this machine, and the remedy; "" when it can."""
    return str(find("engine", ENGINES, name).missing())


def choose() -> str:
    """The engine that "auto" stands for here."""
    return next(name for name in _FASTEST_FIRST if name in ENGINES and not missing(name))


def thread_of(name: str) -> Literal["own", "main"]:
    """Where an engine's programs run: each on a thread of its own, or all on the main one."""
    return getattr(find("engine", ENGINES, name), "thread", "own")


def missing_for_shared(name: str) -> str:
    """Why ranks cannot share a file in an engine, and the remedy; "" when they can (or it makes no difference)."""
    look = getattr(find("engine", ENGINES, name), "missing_for_shared", None)
    return str(look()) if look else ""
