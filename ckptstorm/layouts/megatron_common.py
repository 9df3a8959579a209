"""What Megatron-LM's two formats share: the tracker file, small text files, and what neither expresses here."""

from __future__ import annotations

import os

from ckptstorm.errors import JobError
from ckptstorm.layouts.contract import Scene
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Meet, ReadFile, ReadRecord, Record, Seek, Step, WriteFile

CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
DIRECTORY_MODE = 0o777
DIRECTORY = Path(STEP, "")
#: Megatron keeps it beside the iterations' directories; here it lies in the step, so that rounds stay apart.
TRACKER = Path(STEP, "latest_checkpointed_iteration.txt", 0, len("1000"))
_MIXED = ("mixtral", "deepseek")


def check_scene(scene: Scene, layout: str, table: str = "parallel") -> None:
    """Refuse what Megatron's dense models with the distributed optimizer are not.

    Raises:
        JobError: names the key, the value, and what to do.
    """
    model, here = scene.model, f'[layout] name = "{layout}"'
    if scene.sharding != "distributed_optimizer":
        raise JobError(
            f'[{table}] sharding = "{scene.sharding}" is not planned for {here}',
            f'set [{table}] sharding = "distributed_optimizer"',
        )
    if model.architecture == "opaque":
        raise JobError(
            f"[model] shard_bytes says nothing of parameters and buckets, which {here} is made of",
            'give [model] name, or choose [layout] name = "file_per_rank"',
        )
    if model.architecture in _MIXED or scene.parallel.expert > 1:
        raise JobError(
            f'[model] "{model.name}": experts have optimizer buffers of their own, which {here} does not plan yet',
            "choose a dense model (llama or gpt) and [parallel] expert = 1",
        )
    if model.element_bytes != 4:
        raise JobError(
            f'[model] states = "bf16" is not what {here} stores: bf16 weights beside fp32 master weights and moments',
            "remove [model] states",
        )


def write_text(path: Path) -> WriteFile:
    """A small text file, in place and unsynced: `open(path, "w")`, one write at close."""
    record = Record((path.size_bytes,), is_flushed=False, tensor_count=0)
    return WriteFile(path, (record,), "python", False, CREATE)


def read_text(path: Path) -> ReadFile:
    """`open(path).read()`."""
    return ReadFile(path, (0,), (ReadRecord(path.size_bytes, (Seek(0, path.size_bytes),)),), "direct")


def find_latest() -> tuple[tuple[Call | ReadFile, ...], Step]:
    """Look for the tracker and read it; then all ranks agree on the largest iteration."""
    agreed = Meet("barrier", "largest iteration of all ranks (all-reduce)")
    return (Call(Kind.STAT, TRACKER), read_text(TRACKER)), agreed
