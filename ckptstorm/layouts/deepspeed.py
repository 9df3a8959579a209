"""DeepSpeed's ZeRO checkpoints: flat optimizer files of every rank, a mkdir storm, and `latest` as a plain file.

Facts from DeepSpeed 0.19.6 under strace; tests/real compares them again wherever it is installed. Nothing
is synced, and rank 0 writes `latest` before the last barrier: it may name a checkpoint whose other files
are still being written. The tag directory is the step directory here; `latest` and `zero_to_fp32.py`, which
DeepSpeed keeps one level above it, lie in it too, so that each round can be cleaned up by its names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from ckptstorm.errors import JobError
from ckptstorm.layouts import archives
from ckptstorm.layouts.contract import Census, LayoutOptions, Pointer, Reader, Scene, no_reshard
from ckptstorm.layouts.deepspeed_experts import check_experts
from ckptstorm.layouts.deepspeed_files import Files
from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.program import ROOT, STEP, Kind, Path
from ckptstorm.steps import Call, Draft, Meet, ReadFile, ReadRecord, Record, Run, Seek, Step, WriteFile

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_STAGES = {"zero1": 1, "zero2": 2, "zero3": 3}
_ROOT, _STEP = Path(ROOT, ""), Path(STEP, "")
#: DeepSpeed's own conversion script, copied beside every checkpoint (with sendfile; one write here).
_SCRIPT = Path(STEP, "zero_to_fp32.py", 0, 34_918)
#: Its content is the tag's name.
_LATEST = Path(STEP, "latest", 0, len("global_step1"))
_TAG_READ = ReadRecord(_LATEST.size_bytes, (Seek(0, _LATEST.size_bytes),))
#: `os.makedirs(tag, exist_ok=True)`; whoever finds the directory made looks whether it is one.
_MAKE_TAG = (Call(Kind.STAT, _ROOT), Call(Kind.MKDIR, _STEP, expect=errno.EEXIST, mode=0o777))
_LOOK_AT_TAG = Call(Kind.STAT, _STEP)
#: More barriers than this one after another are refused: the plan holds a step for each.
_BARRIERS_MOST = 4096


class DeepSpeedOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "deepspeed"."""

    #: Of the weights; it shows in the names of the optimizer files.
    precision: Literal["bf16", "fp16"] = "bf16"
    #: Barriers before the optimizer files: none as in 0.19.6; one after each data rank's turn as in
    #: releases that create the files one after another; or one in place of those.
    barriers: Literal["none", "each", "one"] = "none"
    #: Experts are DeepSpeed's own MoE layers, with a file each; always so with [parallel] expert above 1.
    expert_files: bool = False


class DeepSpeedLayout:
    """ZeRO stages 1, 2 and 3 with the default checkpoint engine (`torch.save` to a path)."""

    Options: ClassVar[type[LayoutOptions]] = DeepSpeedOptions
    pointer: ClassVar[Pointer | None] = Pointer(_LATEST.name, "tracker", _LATEST.size_bytes)

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene, self._barriers = scene, options.barriers
        self._looks_by_part: dict[int, tuple[Call, ...]] = {}
        experts: Literal["files", "plain"] = "files" if scene.parallel.expert > 1 or options.expert_files else "plain"
        stage = _STAGES.get(scene.sharding, 0)
        self._files = Files(scene.model, scene.parallel, stage, options.precision, experts)

    def check(self) -> None:
        """Refuse what ZeRO is not, or what is not planned here."""
        scene = self._scene
        if scene.sharding not in _STAGES:
            raise JobError(
                f'[parallel] sharding = "{scene.sharding}" is not planned for [layout] name = "deepspeed"',
                f"allowed: {', '.join(_STAGES)}",
            )
        if scene.model.architecture == "opaque":
            raise JobError(
                '[model] shard_bytes does not say what [layout] name = "deepspeed" saves: weights, and states in fp32',
                "give [model] name, or architecture with its constants",
            )
        if scene.model.element_bytes != 4:
            raise JobError(
                '[model] states = "bf16" is not planned for [layout] name = "deepspeed": ZeRO keeps its states in fp32',
                "remove [model] states",
            )
        if self._files.experts == "files":
            check_experts(scene)
        if scene.parallel.pipeline > 1 and scene.sharding != "zero1":
            raise JobError(
                f'[parallel] pipeline = {scene.parallel.pipeline}: DeepSpeed refuses it with "{scene.sharding}"',
                'set [parallel] sharding = "zero1", or pipeline = 1',
            )
        if self._barriers == "each" and self._files.data_count > _BARRIERS_MOST:
            raise JobError(
                f'[layout] barriers = "each" means {self._files.data_count} barriers, more than {_BARRIERS_MOST}',
                'set [layout] barriers = "one"',
            )

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank` up to the barrier after `latest`."""
        made = (Call(Kind.MKDIR, _ROOT, expect=errno.EEXIST, mode=0o777), Call(Kind.STAT, _ROOT))
        first = (Run((made,)),) if rank == 0 else ()
        # Which rank makes the tag directory is a race; all others find it made and look at it.
        found = (_LOOK_AT_TAG,) if rank > 0 else ()
        commit = (Run((_commit(),), part="commit"),) if rank == 0 else ()
        return (
            *first,
            Meet("barrier", "the save directory is there"),
            Meet("barrier", "tag hash: all-reduce of 20 bytes (maximum)", bytes_per_rank=20),
            Meet("barrier", "tag hash: all-reduce of 20 bytes (minimum)", bytes_per_rank=20),
            Run(((*_MAKE_TAG, *found, *self._expert_writes(rank), *self._model_file(rank)),)),
            *self._turns(rank),
            Run((self._optimizer_file(rank),)),
            *commit,
            Meet("barrier", "all ranks have saved"),
        )

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load the shards of `rank`: the first model file, its own, and its optimizer file.

        Every rank of stages 1 and 2 reads the model file of model-parallel rank 0 to look at it, then its
        own; and looks for the optimizer files of its whole data group.
        """
        data, part = self._files.place(rank)
        group = data if self._files.stage == 3 else 0
        writer, first = self._files.rank_of(group, part), self._files.rank_of(group, 0)
        own = self._model_path(writer)
        return (
            Run((
                (
                    Call(Kind.STAT, _LATEST),
                    ReadFile(_LATEST, (0,), (_TAG_READ,), "direct"),
                    Call(Kind.READDIR, _STEP),
                    _load(self._model_path(first), self._files.model_archive(first)),
                    Call(Kind.STAT, own),
                    _load(own, self._files.model_archive(writer)),
                    *self._layer_reads(part),
                    *self._expert_reads(rank),
                    *self._looks(part),
                    _load(self._optimizer_path(rank), self._files.optimizer_archive(rank)),
                ),
            )),
        )  # fmt: skip

    def resharded(self, scene: Scene) -> Reader:
        """Refused by name."""
        raise no_reshard(
            "deepspeed",
            "is refused by DeepSpeed in another world: ZeRO loads another data-parallel size only from a"
            " universal checkpoint",
            "remove [restore.parallel] (converting to a universal checkpoint, ds_to_universal.py, is not planned)",
        )

    def created(self, rank: int) -> tuple[str, ...]:
        """The rank's files; rank 0 also makes the script and `latest`."""
        data, part = self._files.place(rank)
        layers = tuple(name for name, _ in self._files.layer_files(part)) if data == 0 else ()
        experts = tuple(name for name, _ in self._own_experts(rank))
        model = (*layers, self._files.model_name(rank)) if self._files.has_model_file(rank) else ()
        commit = (_SCRIPT.name, _LATEST.name) if rank == 0 else ()
        return (*experts, *model, self._files.optimizer_name(rank), *commit)

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """By whether they are rank 0, stand among the first d ranks, and by their files."""
        ranks, class_of = np.arange(self._scene.rank_count), self._files.classes()[1]
        keys = np.stack([ranks == 0, ranks < self._files.data_count, class_of])
        _, first, counts = np.unique(keys, axis=1, return_index=True, return_counts=True)
        return tuple(zip(first.tolist(), counts.tolist(), strict=True))

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each set of equal files (names of equal length, shards of equal size)."""
        return archives.pairs(self._files.classes())

    def census(self) -> Census:
        """Counts over all ranks, from one rank of each class."""
        commit = _SCRIPT.size_bytes + _LATEST.size_bytes
        return replace(archives.census(self._files.classes(), self._archives), commit_bytes=commit, commit_files=2)

    def _archives(self, rank: int) -> list[Archive]:
        """What is in the files of `rank`."""
        data, part = self._files.place(rank)
        found = [self._files.optimizer_archive(rank)]
        if self._files.has_model_file(rank):
            found.append(self._files.model_archive(rank))
        if data == 0:
            found += [archive for _, archive in self._files.layer_files(part)]
        return found + [archive for _, archive in self._own_experts(rank)]

    def _looks(self, part: int) -> tuple[Call, ...]:
        """A stat of every optimizer file of a data group; the same for all its ranks."""
        if part not in self._looks_by_part:
            peers = (self._files.rank_of(data, part) for data in range(self._files.data_count))
            self._looks_by_part[part] = tuple(Call(Kind.STAT, self._optimizer_path(peer)) for peer in peers)
        return self._looks_by_part[part]

    def _turns(self, rank: int) -> Iterator[Step]:
        """The data group's makedirs before the optimizer files; only the world's first d ranks have a turn."""
        count = self._files.data_count
        turn = Run(((*_MAKE_TAG, _LOOK_AT_TAG),))
        if self._barriers != "each":
            yield from (turn,) if rank < count else ()
            yield from (Meet("barrier", "all data ranks had their turn"),) if self._barriers == "one" else ()
            return
        for other in range(count):
            yield from (turn,) if rank == other else ()
            yield Meet("barrier", "a data rank had its turn")

    def _model_path(self, rank: int) -> Path:
        return _path(self._files.model_name(rank), rank, self._files.model_archive(rank))

    def _optimizer_path(self, rank: int) -> Path:
        return _path(self._files.optimizer_name(rank), rank, self._files.optimizer_archive(rank))

    def _model_file(self, rank: int) -> Draft:
        if not self._files.has_model_file(rank):
            return ()
        return (*self._layer_writes(rank), *_stored(self._model_path(rank), self._files.model_archive(rank)))

    def _layer_writes(self, rank: int) -> Draft:
        """A pipeline module makes the directory once more, then saves layer by layer."""
        files = self._files.layer_files(self._files.place(rank)[1])
        if not files:
            return ()
        stored = (_stored(_path(name, rank, archive), archive) for name, archive in files)
        return (*_MAKE_TAG, _LOOK_AT_TAG, *(item for draft in stored for item in draft))

    def _layer_reads(self, part: int) -> Iterator[Call | ReadFile]:
        """For each layer: a listing, the file of the first tensor rank, a look at its own, its own."""
        first = part - part % self._scene.parallel.tensor
        names = zip(self._files.layer_files(first), self._files.layer_files(part), strict=True)
        for (name, archive), (own_name, own_archive) in names:
            own = _path(own_name, self._files.rank_of(0, part), own_archive)
            yield Call(Kind.READDIR, _STEP)
            yield _load(_path(name, self._files.rank_of(0, first), archive), archive)
            yield Call(Kind.STAT, own)
            yield _load(own, own_archive)

    def _own_experts(self, rank: int) -> tuple[tuple[str, Archive], ...]:
        """(name, content) of each expert that `rank` writes: it is the first of those that hold it."""
        return self._files.expert_files(rank) if self._files.expert_place(rank)[0] == 0 else ()

    def _expert_writes(self, rank: int) -> Draft:
        stored = (_stored(_path(name, rank, archive), archive) for name, archive in self._own_experts(rank))
        return tuple(item for draft in stored for item in draft)

    def _expert_reads(self, rank: int) -> Iterator[ReadFile]:
        """Each expert that the rank holds, by whoever wrote it."""
        data, part = self._files.place(rank)
        writer = self._files.rank_of(data % self._scene.parallel.expert, part)
        for name, archive in self._files.expert_files(rank):
            yield _load(_path(name, writer, archive), archive)

    def _optimizer_file(self, rank: int) -> Draft:
        return _stored(self._optimizer_path(rank), self._files.optimizer_archive(rank))


def _path(name: str, rank: int, archive: Archive) -> Path:
    return Path(STEP, name, rank, torch_save.size_bytes(archive))


def _stored(path: Path, archive: Archive) -> Draft:
    """`torch.save(state, path)`: a look at the parent, then a C++ stream, never synced."""
    return (Call(Kind.STAT, _STEP), WriteFile(path, (torch_save.record(archive),), "ofstream", False, _CREATE))


def _load(path: Path, archive: Archive) -> ReadFile:
    return ReadFile(path, (0,), (torch_save.read(archive),), "python")


def _commit() -> Draft:
    """The conversion script with its mode, then `latest`: truncated, written, closed."""
    script = Record((_SCRIPT.size_bytes,), tensor_count=0)
    tag = Record((_LATEST.size_bytes,), tensor_count=0)
    look = Call(Kind.STAT, _SCRIPT, expect=errno.ENOENT)
    return (
        look,
        look,
        WriteFile(_SCRIPT, (script,), "direct", False, _CREATE),
        Call(Kind.STAT, _SCRIPT),
        Call(Kind.CHMOD, _SCRIPT, mode=0o744),
        WriteFile(_LATEST, (tag,), "python", False, _CREATE),
    )
