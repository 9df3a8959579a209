"""Megatron-LM `torch`, the legacy format: a directory for each model-parallel rank, two files of its first data rank.

Facts from NVIDIA/Megatron-LM@d98e8a6 (2026-08-22), its checkpoint code run on CPU under strace; tests/real
compares them again wherever it is. With the distributed optimizer all parameters are
views of one buffer, so a model file holds one record of the whole buffer; and the first data-parallel
rank gathers the optimizer's slices and stores three flat tensors. Nothing is synced.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.contract import Census, LayoutOptions, Pointer, Reader, Scene
from ckptstorm.layouts.formats import torch_save
from ckptstorm.layouts.formats.torch_save import Archive
from ckptstorm.layouts.megatron_common import (
    CREATE,
    DIRECTORY,
    DIRECTORY_MODE,
    TRACKER,
    check_scene,
    find_latest,
    write_text,
)
from ckptstorm.layouts.megatron_files import MODEL_BYTES, STATE_BYTES, STATE_COUNT, Group
from ckptstorm.layouts.megatron_groups import Groups, check_reshard
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Draft, Meet, ReadFile, Record, Run, Step, WriteFile

Int64s = NDArray[np.int64]

_MODEL, _OPTIMIZER = "model_optim_rng.pt", "distrib_optim.pt"
#: States of the generators that are tensors: torch on the CPU, CUDA, and three of Megatron's own.
_RANDOM_BYTES = (5056, 16, 16, 16, 16)
#: Estimates: the pickles' fixed part (the job's arguments and lists of numbers), and a parameter's entry.
_ARGUMENTS_BYTES, _ENTRY_BYTES, _STATES_BYTES = 40_000, 150, 450


class MegatronLegacyOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "megatron_legacy"."""

    #: `--overlap-grad-reduce`: the optimizer's buffer is cut into buckets (which pad it on the first stage).
    overlap_grad_reduce: bool = True


class MegatronLegacyLayout:
    """`--ckpt-format torch` with the distributed optimizer."""

    Options: ClassVar[type[LayoutOptions]] = MegatronLegacyOptions
    pointer: ClassVar[Pointer | None] = Pointer(TRACKER.name, "tracker", TRACKER.size_bytes)

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene = scene
        buckets = "overlapped" if options.overlap_grad_reduce else "one"
        self._groups = Groups(scene.model, scene.parallel, 1, "first", buckets)

    def check(self) -> None:
        """Refuse what Megatron is not made of here."""
        check_scene(self._scene, "megatron_legacy")

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: all make directories, first members write, rank 0 points to the iteration."""
        group, member = self._groups.of(rank)
        made = self._makedirs(rank)
        again = (made[0], *made[2:])  # the iteration's directory is there now
        files = (
            (
                Run(((*self._write(rank, _OPTIMIZER, self._optimizer_archive(group)),),)),
                Run(
                    (
                        (
                            *again,
                            *self._write(rank, _MODEL, self._model_archive(group)),
                        ),
                    )
                ),
            )
            if member == 0
            else ()
        )
        return (
            Run((made,)),
            Meet("barrier", "optimizer slices to the first data-parallel rank (gathers, played as a barrier)", "data"),
            *files,
            Meet("barrier", "all files are written"),
            *((Run(((write_text(TRACKER),),), part="commit"),) if rank == 0 else ()),
            Meet("barrier", "the tracker is written"),
        )

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load what `rank` holds: the model file by every member, the optimizer's by the first."""
        return self.loaded(self._groups, rank)

    def resharded(self, scene: Scene) -> Reader:
        """Another data parallelism, whose optimizer buckets are the same; model parallelism stays."""
        check_scene(scene, "megatron_legacy", "restore.parallel")
        return MegatronLegacyReader(self, check_reshard(self._groups, scene, "megatron_legacy"))

    def loaded(self, loading: Groups, rank: int) -> tuple[Step, ...]:
        """Steps of a rank of `loading`."""
        member, at = loading.of(rank)[1], loading.parallel.coords(rank)
        group, holder = self._groups.group(at.tensor, at.pipeline), self._groups.rank_of(at.tensor, at.pipeline, 0)
        finding, agreed = find_latest()
        # Which format is it? Not torch_dist, which would have these.
        form = (
            Call(Kind.READDIR, DIRECTORY),
            Call(Kind.STAT, Path(STEP, ".metadata"), expect=errno.ENOENT),
            Call(Kind.STAT, Path(STEP, "metadata.json"), expect=errno.ENOENT),
        )
        model = self._read(holder, _MODEL, self._model_archive(group))
        optimizer = (self._read(holder, _OPTIMIZER, self._optimizer_archive(group)),) if member == 0 else ()
        return (
            Run((finding,)),
            agreed,
            Run(((*form, model, *optimizer),)),
            Meet("barrier", "optimizer slices to all members (scatters, played as a barrier)", "data"),
            Meet("barrier", "all ranks have loaded"),
        )

    def created(self, rank: int) -> tuple[str, ...]:
        """Files of a first member, in its model-parallel rank's directory; rank 0 also makes the tracker."""
        if self._groups.of(rank)[1]:
            return ()
        directory = self._directory(rank)
        tracker = (TRACKER.name,) if rank == 0 else ()
        return (f"{directory}/{_OPTIMIZER}", f"{directory}/{_MODEL}", *tracker)

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """Rank 0, other first members, and all who only make directories."""
        return self._classes

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """First and other members of each set of equal model-parallel ranks."""
        return _load_classes(self._groups)

    def census(self) -> Census:
        """Counts over all ranks, from each set of equal model-parallel ranks."""
        records = Counter[Record]()
        sizes = np.zeros(self._scene.rank_count, dtype=np.int64)
        for group, places in self._groups.alike:
            archives = (self._optimizer_archive(group), self._model_archive(group))
            for archive in archives:
                records[torch_save.record(archive)] += len(places)
            for tensor, pipeline in places:
                sizes[self._groups.rank_of(tensor, pipeline, 0)] = sum(map(torch_save.size_bytes, archives))
        return Census(
            records=records,
            file_bytes=sizes,
            file_count=2 * self._scene.parallel.tensor * self._scene.parallel.pipeline,
            commit_bytes=TRACKER.size_bytes,
            commit_files=1,
        )

    @cached_property
    def _classes(self) -> tuple[tuple[int, int], ...]:
        writers = self._scene.parallel.tensor * self._scene.parallel.pipeline
        classes = [(0, 1)]
        if writers > 1:
            place = (1, 0) if self._scene.parallel.tensor > 1 else (0, 1)
            classes.append((self._groups.rank_of(*place, 0), writers - 1))
        if self._groups.member_count > 1:
            classes.append((self._groups.rank_of(0, 0, 1), self._scene.rank_count - writers))
        return tuple(classes)

    def _first(self, rank: int) -> int:
        """The member that writes for the group of `rank`."""
        at = self._scene.parallel.coords(rank)
        return self._groups.rank_of(at.tensor, at.pipeline, 0)

    def _directory(self, rank: int) -> str:
        at = self._scene.parallel.coords(rank)
        stage = f"_{at.pipeline:03d}" if self._scene.parallel.pipeline > 1 else ""
        return f"mp_rank_{at.tensor:02d}{stage}"

    def _makedirs(self, rank: int) -> Draft:
        """`os.makedirs(…, exist_ok=True)` of all members; who comes first is a race, so all are planned as early."""
        own = Path(STEP, self._directory(rank))
        return (
            Call(Kind.STAT, DIRECTORY, expect=errno.ENOENT),
            Call(Kind.MKDIR, DIRECTORY, expect=errno.EEXIST, mode=DIRECTORY_MODE),
            Call(Kind.MKDIR, own, expect=errno.EEXIST, mode=DIRECTORY_MODE),
            Call(Kind.STAT, own),
        )

    def _model_archive(self, group: Group) -> Archive:
        """The buffer of all parameters, padding included, and the generators' states."""
        held = group.buffer
        elements = int((held.bucket_starts + held.slice_elements * group.member_count)[-1])
        pickle = _ARGUMENTS_BYTES + _ENTRY_BYTES * len(group.parameters)
        return Archive(torch_save.stem_bytes(_MODEL), pickle, (elements * MODEL_BYTES, *_RANDOM_BYTES))

    def _optimizer_archive(self, group: Group) -> Archive:
        """fp32 parameters and both moments, each one flat tensor without the buckets' padding."""
        state = int(group.buffer.bucket_elements.sum()) * STATE_BYTES
        return Archive(torch_save.stem_bytes(_OPTIMIZER), _STATES_BYTES, (state,) * STATE_COUNT)

    def _path(self, rank: int, name: str, archive: Archive) -> Path:
        return Path(STEP, f"{self._directory(rank)}/{name}", rank, torch_save.size_bytes(archive))

    def _write(self, rank: int, name: str, archive: Archive) -> Draft:
        path = self._path(rank, name, archive)
        parent = Call(Kind.STAT, Path(STEP, self._directory(rank)))
        return (parent, WriteFile(path, (torch_save.record(archive),), "ofstream", False, CREATE))

    def _read(self, rank: int, name: str, archive: Archive) -> ReadFile:
        return ReadFile(self._path(rank, name, archive), (0,), (torch_save.read(archive),), "python")


@dataclass(frozen=True, eq=False)
class MegatronLegacyReader:
    """The load of another world.

    Attributes:
        layout: what is loaded.
        loading: who loads.
    """

    layout: MegatronLegacyLayout
    loading: Groups

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load what `rank` holds."""
        return self.layout.loaded(self.loading, rank)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """First and other members of each set of equal model-parallel ranks."""
        return _load_classes(self.loading)


def _load_classes(groups: Groups) -> tuple[tuple[int, int], ...]:
    others, places_of = groups.member_count - 1, [places for _, places in groups.alike]
    classes = [(groups.rank_of(*places[0], 0), len(places)) for places in places_of]
    if others:
        classes += [(groups.rank_of(*places[0], 1), others * len(places)) for places in places_of]
    return tuple(classes)
