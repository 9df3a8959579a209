"""The compiled engine: op tables run in C without the GIL, by system calls, io_uring, libaio or mappings.

This is the thin half in Python, which can be imported everywhere: it says what the engine can do on
this machine, and refuses by name what it cannot.
"""

from __future__ import annotations

import errno
import importlib
from typing import ClassVar, cast

from ckptstorm.engines.contract import Prepared, Setup
from ckptstorm.errors import JobError
from ckptstorm.payload import Payload
from ckptstorm.program import Program

_MODULE = "ckptstorm.engines.native"
MODES = ("sync", "libaio", "io_uring", "mmap")
#: Those that keep more than one op in flight.
_QUEUES = ("libaio", "io_uring")
#: A ring holds 32768; more than this in one rank is a mistake, and costs twice the largest op each.
QUEUE_DEPTH_MAX = 4096


class NativeEngine:
    """sync, libaio, io_uring or mmap; buffered or O_DIRECT; payload made and verified beside the I/O."""

    name: ClassVar[str] = "native"
    moves_data: ClassVar[bool] = True
    honours: ClassVar[dict[str, tuple[object, ...]]] = {
        "mode": MODES,
        "direct": (False, True),
        "queue_depth": (...,),
    }

    def __init__(self, setup: Setup) -> None:
        """Take the setup.

        Raises:
            JobError: not compiled here, or a setting that this machine or this engine cannot honour.
        """
        complaint, hint = _split(self.missing())
        if not complaint:
            complaint, hint = refusal(setup)
        if complaint:
            raise JobError(complaint, hint)
        self._setup = setup

    @classmethod
    def missing(cls) -> str:
        """See `contract.Engine.missing`."""
        try:
            importlib.import_module(_MODULE)
        except ImportError as error:
            return (
                f"the native engine was not compiled for this Python ({error}); "
                'install ckptstorm where there is a C compiler, or take [io] engine = "posix"'
            )
        return ""

    def prepare(self, program: Program, payload: Payload | None) -> Prepared:
        """See `contract.Engine.prepare`."""
        return cast(Prepared, importlib.import_module(_MODULE).NativeProgram(self._setup, program, payload))


def refusal(setup: Setup) -> tuple[str, str]:
    """Why a setup cannot be honoured here, and what to do about it; two empty strings when it can."""
    if setup.mode not in (*MODES, "null"):
        return f'[io] mode = "{setup.mode}": the native engine has no such mode', f"allowed: {', '.join(MODES)}"
    if not 1 <= setup.queue_depth <= QUEUE_DEPTH_MAX:
        return f"[io] queue_depth = {setup.queue_depth}: out of range", f"allowed: 1 to {QUEUE_DEPTH_MAX}"
    if setup.queue_depth > 1 and setup.mode not in _QUEUES:
        return (
            f'[io] queue_depth = {setup.queue_depth}: mode = "{setup.mode}" has one op in flight',
            'set mode = "io_uring" or "libaio", or leave queue_depth out',
        )
    if setup.is_direct and setup.mode == "mmap":
        return (
            '[io] direct = true: mode = "mmap" goes through the page cache by its nature',
            'set direct = false, or another mode: "sync", "libaio", "io_uring"',
        )
    return _kernel_refusal(setup.mode)


def memory_bytes(program: Program, queue_depth: int) -> int:
    """The buffers that one program of this engine takes at most.

    Twice the largest op for each place in the queue (one under way, one being made or verified);
    at least a few batches of 256 KiB for small ops. Nothing grows while the program runs.
    """
    return int(importlib.import_module(_MODULE).buffer_bytes(program, queue_depth))


def _kernel_refusal(mode: str) -> tuple[str, str]:
    number = int(importlib.import_module(_MODULE).probe(mode))
    if number == 0:
        return "", ""
    use_instead = 'use mode = "libaio" (for O_DIRECT) or "sync" instead'
    if mode == "libaio":
        hint = "see /proc/sys/fs/aio-nr and aio-max-nr (requests in use and allowed on this machine)"
        return f'[io] mode = "libaio": the kernel gives no AIO context ({_word(number)})', hint
    if number == errno.ENOSYS:
        return '[io] mode = "io_uring": this kernel has no io_uring (ENOSYS; it came with Linux 5.1)', use_instead
    why = f'[io] mode = "io_uring": this kernel does not let us have a ring ({_word(number)})'
    look = "see /proc/sys/kernel/io_uring_disabled (0: allowed, 1: only for a group, 2: for nobody); "
    if number == errno.ENOMEM:
        look = "see `ulimit -l` (locked memory: rings count against it before Linux 5.12); "
    return why, look + "a container's seccomp filter may forbid it too; " + use_instead


def _word(number: int) -> str:
    return errno.errorcode.get(number, str(number))


def _split(sentence: str) -> tuple[str, str]:
    complaint, _, hint = sentence.partition("; ")
    return complaint, hint
