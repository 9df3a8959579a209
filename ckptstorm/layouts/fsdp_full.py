"""FSDP's FULL_STATE_DICT on rank 0: one writer for the whole model, while all other ranks wait.

`get_model_state_dict` and `get_optimizer_state_dict` with `full_state_dict` and `cpu_offload` (FSDP1:
`FULL_STATE_DICT` with `rank0_only`) gather every tensor to rank 0, which hands both to `torch.save(path)`.
The gather runs on the GPUs' network, tensor by tensor; here the ranks meet, and no weights are moved.
"""

from __future__ import annotations

import errno
import os
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from ckptstorm.errors import JobError
from ckptstorm.layouts.contract import Census, LayoutOptions, Reader, Scene, first_apart
from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_pickle import Element, Tensor, Tree, pickle_bytes, tensors
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Meet, ReadFile, Run, Step, WriteFile

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_SHARDINGS = ("fsdp2", "hsdp", "ddp")
_STEP = Path(STEP, "")
#: What an optimizer's parameter groups add to the pickle: AdamW's settings; and for each parameter one
#: fetch of its name from the memo.
_GROUP_BYTES, _GROUP_ENTRY_BYTES = 240, 5


class FsdpFullOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "fsdp_full"."""

    #: Who reads: rank 0, which broadcasts, or every rank the whole files.
    readers: Literal["rank0", "all"] = "rank0"


class FsdpFullLayout:
    """`model.pt` and `optimizer.pt`, both of rank 0; never synced."""

    Options: ClassVar[type[LayoutOptions]] = FsdpFullOptions
    pointer: ClassVar[None] = None

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene, self._options, self._readers = scene, options, options.readers

    def check(self) -> None:
        """Refuse shardings whose full state dict this is not."""
        self.check_scene("parallel")

    def check_scene(self, table: str) -> None:
        """The same, told of the keys of [parallel] or [restore.parallel]."""
        if self._scene.sharding not in _SHARDINGS:
            raise JobError(
                f'[{table}] sharding = "{self._scene.sharding}" is not planned for [layout] name = "fsdp_full"',
                f"allowed: {', '.join(_SHARDINGS)}",
            )
        if self._scene.model.architecture == "opaque":
            raise JobError(
                '[model] shard_bytes means nothing to [layout] name = "fsdp_full": it saves whole tensors',
                "give [model] name, or architecture with its constants",
            )
        for key in ("tensor", "pipeline", "context", "expert"):
            ways = getattr(self._scene.parallel, key)
            if ways > 1:
                raise JobError(
                    f'[{table}] {key} = {ways} is not planned for [layout] name = "fsdp_full"',
                    f"set [{table}] {key} = 1",
                )

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: for each file a gather, then rank 0 writes alone."""
        made = Run(((Call(Kind.MKDIR, _STEP, expect=errno.EEXIST, mode=0o777),),))
        steps: list[Step] = [made] if rank == 0 else []
        for name, archive in self._files.items():
            if self._scene.sharding != "ddp":
                steps.append(Meet("gather", f"{name}: all shards to rank 0, on the GPUs' network"))
            if rank == 0:
                file = WriteFile(self._path(name), (torch_save.record(archive),), "ofstream", False, _CREATE)
                steps.append(Run(((Call(Kind.STAT, _STEP), file),)))
        return (*steps, Meet("barrier", "rank 0 has saved"))

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load both files: on rank 0, which broadcasts them, or on every rank."""
        steps: list[Step] = []
        for name, archive in self._files.items():
            if rank == 0 or self._readers == "all":
                steps.append(Run(((ReadFile(self._path(name), (0,), (torch_save.read(archive),), "python"),),)))
            if self._readers == "rank0":
                steps.append(Meet("bcast", f"{name}: all tensors from rank 0, on the GPUs' network"))
        return (*steps, Meet("barrier", "all ranks have their shards"))

    def resharded(self, scene: Scene) -> Reader:
        """The same two files for any world: whole tensors know no ranks."""
        reader = FsdpFullLayout(scene, self._options)
        reader.check_scene("restore.parallel")
        return reader

    def created(self, rank: int) -> tuple[str, ...]:
        """Both files, on rank 0."""
        return tuple(self._files) if rank == 0 else ()

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """Rank 0 writes, all others wait."""
        return first_apart(self._scene.rank_count)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """All read alike, or rank 0 alone reads."""
        return ((0, self._scene.rank_count),) if self._readers == "all" else self.save_classes()

    def census(self) -> Census:
        """Two files, one record each."""
        sizes = np.zeros(self._scene.rank_count, dtype=np.int64)
        sizes[0] = sum(map(torch_save.size_bytes, self._files.values()))
        records = {torch_save.record(archive): 1 for archive in self._files.values()}
        return Census(records, sizes, len(self._files))

    @cached_property
    def _files(self) -> dict[str, Archive]:
        """By name; the optimizer's states by the parameter's name, then by state."""
        element: Element = "fp32" if self._scene.model.element_bytes == 4 else "bf16"
        held = {tensor.name: Tensor(tensor.shape, element) for tensor in self._scene.model.tensors()}
        step = Tensor((), "fp32")
        states = {name: {"step": step, "exp_avg": tensor, "exp_avg_sq": tensor} for name, tensor in held.items()}
        groups = _GROUP_BYTES + _GROUP_ENTRY_BYTES * len(held)
        return {
            "model.pt": _archive("model.pt", held, 0),
            "optimizer.pt": _archive("optimizer.pt", {"state": states}, groups),
        }

    def _path(self, name: str) -> Path:
        return Path(STEP, name, 0, torch_save.size_bytes(self._files[name]))


def _archive(name: str, tree: Tree, more_bytes: int) -> Archive:
    """An archive whose pickle holds `more_bytes` besides the tensors."""
    data = tuple(tensor.data_bytes for tensor in tensors(tree))
    return Archive(torch_save.stem_bytes(name), pickle_bytes(tree) + more_bytes, data)
