"""What the chosen engine cannot do, refused by name before anything is made."""

from __future__ import annotations

from ckptstorm import registry
from ckptstorm.engines import ENGINES, choose, missing_for_shared, thread_of
from ckptstorm.engines.contract import Engine, Setup
from ckptstorm.errors import JobError
from ckptstorm.job import IoTable, Job

#: What a library's engine writes: files of plain tensors or blocks. A framework's format is the framework's own.
#: PyTorch's engine writes what PyTorch's own calls write.
_LAYOUTS = {
    "mpiio": ("shared_file", "file_per_rank", "file_per_node"),
    "hdf5": ("shared_file", "file_per_rank"),
    "torch": ("dcp", "fsdp_full", "deepspeed", "megatron_dist", "megatron_legacy", "mlperf"),
}
_PLAIN = "that format is made of system calls"
_WHY = {"mpiio": _PLAIN, "hdf5": _PLAIN, "torch": "PyTorch has no such format"}
#: The layout whose file all ranks share.
_SHARED = "shared_file"


def check_engine(job: Job) -> str:
    """The engine that the job gets.

    Raises:
        JobError: no such engine, or a key of [io] that it cannot honour.
    """
    name = choose() if job.io.engine == "auto" else job.io.engine
    engine: type[Engine] = registry.find("engine", ENGINES, name)
    default = IoTable()
    for key in ("mode", "direct", "queue_depth", "hints"):
        value = getattr(job.io, key)
        can = engine.honours.get(key, ())
        if value != getattr(default, key) and ... not in can and value not in can:
            raise JobError(
                f"[io] {key} = {toml_text(value)}: the {name} engine cannot honour it",
                f"leave it out (default {toml_text(getattr(default, key))}), or choose another engine: "
                "ckptstorm list engines",
            )
    if thread_of(name) == "main":
        _check_library(job, name)
    # An engine refuses by itself what this machine's kernel does not let it do.
    engine(Setup(-1, mode=job.io.mode, is_direct=job.io.direct, queue_depth=job.io.queue_depth))
    return name


def _check_library(job: Job, name: str) -> None:
    """Engines that move bytes through a library: which layouts, and what of [io] has no meaning there."""
    layout = job.layout.name
    if layout not in _LAYOUTS[name]:
        raise JobError(
            f'[io] engine = "{name}" cannot write [layout] name = "{layout}": {_WHY[name]}',
            f"allowed: {', '.join(_LAYOUTS[name])}; or leave [io] engine out",
        )
    if job.io.mode == "collective" and layout != _SHARED:
        raise JobError(
            f'[io] mode = "collective" means nothing to [layout] name = "{layout}": no file is shared by all ranks',
            f'set [layout] name = "{_SHARED}", or [io] mode = "independent"',
        )
    for key, unset in (("coalesce", 0), ("threads", 1)):
        if getattr(job.io, key) != unset:
            raise JobError(
                f"[io] {key}: the {name} engine cannot honour it: its library makes the requests",
                f"leave [io] {key} out",
            )
    if job.io.durability == "odsync":
        raise JobError(
            f'[io] durability = "odsync": the {name} engine cannot honour it: its library opens the files',
            'set [io] durability = "fsync"',
        )
    if layout == _SHARED and (why := missing_for_shared(name)):
        reason, _, remedy = why.partition("; ")
        raise JobError(f'[io] engine = "{name}" with [layout] name = "{layout}": {reason}', remedy)
    if any(fault.errno is not None for fault in job.fault):
        raise JobError(
            f"[[fault]] errno: in the {name} engine a call that one rank does not make leaves the others waiting in it",
            "plant a delay instead, or choose another engine",
        )


def toml_text(value: object) -> str:
    """A value of a job as TOML writes it."""
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
