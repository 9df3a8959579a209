"""How bytes move: one file an engine, one line here; loaded on first use.

A new engine is a class with the shape of `contract.Engine`; `ckptstorm.testing.engines` is its test suite.
"""

from __future__ import annotations

from ckptstorm.registry import Entry, find

ENGINES = {
    "posix": Entry("ckptstorm.engines.posix:PosixEngine", "pread and pwrite from pure Python: the reference"),
    "native": Entry("ckptstorm.engines.native_engine:NativeEngine", "compiled: sync, libaio, io_uring, mmap; O_DIRECT"),
    "null": Entry("ckptstorm.engines.null:NullEngine", "moves nothing: the cost of the instrument itself"),
}

#: What `engine = "auto"` takes: the first of these that is not missing here.
_FASTEST_FIRST = ("native", "posix")


def missing(name: str) -> str:
    """Why an engine cannot be used on this machine, and the remedy; "" when it can."""
    return str(find("engine", ENGINES, name).missing())


def choose() -> str:
    """The engine that "auto" stands for here."""
    return next(name for name in _FASTEST_FIRST if name in ENGINES and not missing(name))
