"""MLPerf Storage v2.0's checkpoint workload: the files that DLIO writes for 8B, 70B, 405B and 1T models.

`torch.save` into a Python file object, `torch.load` of the same files by the same rank. The rules ask for
an fsync, and DLIO's workload files set one, but its configuration stores the flag in a field that the saver
does not read (`checkpoint_sync` for `checkpoint_fsync`), so the released code issues none; neither does
this layout, unless `fsync = true`. What submitters ran is not known from that.
"""

from __future__ import annotations

import errno
import os
from typing import Any, ClassVar

import numpy as np

from ckptstorm.errors import JobError
from ckptstorm.layouts import archives
from ckptstorm.layouts.contract import Census, LayoutOptions, Reader, Scene, no_reshard
from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.layouts.mlperf_files import Files
from ckptstorm.program import ROOT, STEP, Kind, Path
from ckptstorm.steps import Call, ReadFile, Run, Step, WriteFile

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_STAGES = {"zero1": 1, "zero2": 2, "zero3": 3}
_ROOT, _STEP = Path(ROOT, ""), Path(STEP, "")
#: `os.makedirs(step, exist_ok=True)`, on every rank, in saves and in loads.
_MAKE = (Call(Kind.STAT, _ROOT), Call(Kind.MKDIR, _STEP, expect=errno.EEXIST, mode=0o777))
_LOOK = Call(Kind.STAT, _STEP)


class MlperfOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "mlperf"."""

    #: Whether files are synced before they are closed, as the rules intend; false is what the code does.
    fsync: bool = False


class MlperfLayout:
    """DLIO's PyTorch checkpointing, as MLPerf Storage v2.0 runs it."""

    Options: ClassVar[type[LayoutOptions]] = MlperfOptions
    pointer: ClassVar[None] = None

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene, self._fsync = scene, options.fsync
        self._files = Files(scene.model, scene.parallel, _STAGES.get(scene.sharding, 0))

    def check(self) -> None:
        """Refuse what DLIO's formulas do not reach."""
        scene = self._scene
        if scene.sharding not in _STAGES:
            raise JobError(
                f'[parallel] sharding = "{scene.sharding}" is not planned for [layout] name = "mlperf"',
                f"allowed: {', '.join(_STAGES)} (the benchmark: zero3 for 8B and 70B, zero1 for 405B and 1T)",
            )
        if scene.model.architecture != "llama" or scene.model.element_bytes != 4:
            raise JobError(
                f'[layout] name = "mlperf" has no formula for {scene.model.name}: only Llama, in fp16 with fp32 states',
                "choose [model] name among llama3-8b, llama3-70b, llama3-405b, mlperf-1t, or architecture = llama",
            )
        for key in ("context", "expert"):
            if getattr(scene.parallel, key) > 1:
                raise JobError(
                    f'[parallel] {key} = {getattr(scene.parallel, key)} means nothing to [layout] name = "mlperf"',
                    f"set [parallel] {key} = 1",
                )
        if scene.sharding == "zero3" and scene.parallel.pipeline > 1:
            raise JobError(
                f'[parallel] pipeline = {scene.parallel.pipeline} with sharding = "zero3" cannot be loaded by DLIO',
                "set [parallel] pipeline = 1, or sharding = zero1",
            )
        if self._files.parameter_count < scene.rank_count:
            raise JobError(
                f"{scene.model.name} has {self._files.parameter_count} parameters, fewer than {scene.rank_count} ranks",
                "start fewer ranks, or choose a larger model",
            )

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: the directory, then one file after the other; nobody waits for anybody."""
        # Which rank makes the directory is a race; all others find it made and look at it.
        look = (_LOOK,) if rank > 0 else ()
        files = (
            WriteFile(self._path(rank, name, archive), (torch_save.record(archive),), "python", self._fsync, _CREATE)
            for name, archive in self._files.files(rank)
        )
        return (Run(((*_MAKE, *look, *files),)),)

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load what `rank` saved; the load makes the directory too."""
        files = (
            ReadFile(self._path(rank, name, archive), (0,), (torch_save.read(archive),), "python")
            for name, archive in self._files.files(rank)
        )
        return (Run(((*_MAKE, _LOOK, *files),)),)

    def resharded(self, scene: Scene) -> Reader:
        """Refused by name."""
        raise no_reshard(
            "mlperf",
            "is read by the ranks that wrote it: DLIO has no restore in another world",
        )

    def created(self, rank: int) -> tuple[str, ...]:
        """The rank's files."""
        return tuple(name for name, _ in self._files.files(rank))

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """Rank 0 makes the directory; the others by the number of their files."""
        _, class_of, _ = self._files.classes()
        keys = np.where(np.arange(len(class_of)) == 0, -1, class_of)
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        return tuple(zip(first.tolist(), counts.tolist(), strict=True))

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each set of equal files."""
        return archives.pairs(self._files.classes())

    def census(self) -> Census:
        """Counts over all ranks, from one rank of each class."""
        return archives.census(self._files.classes(), lambda rank: [archive for _, archive in self._files.files(rank)])

    def _path(self, rank: int, name: str, archive: Archive) -> Path:
        return Path(STEP, name, rank, torch_save.size_bytes(archive))
