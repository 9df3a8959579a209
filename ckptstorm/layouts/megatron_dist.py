"""Megatron-LM `torch_dist` with the distributed optimizer: `.distcp` files, `.metadata`, metadata.json, tracker.

Facts from NVIDIA/Megatron-LM@d98e8a6 (2026-08-22), its checkpoint code run on CPU under strace; tests/real
compares them again wherever it is. Estimates are the sizes of the objects that are no tensors.
Transformer Engine's `_extra_state` objects are left out (`--ckpt-drop-redundant-extra-state`).
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts import megatron_restore
from ckptstorm.layouts.contract import Census, LayoutOptions, Pointer, Reader, Scene, spread_classes
from ckptstorm.layouts.formats import dcp_metadata, torch_zip
from ckptstorm.layouts.megatron_common import CREATE, DIRECTORY, DIRECTORY_MODE, TRACKER, check_scene, write_text
from ckptstorm.layouts.megatron_files import Group
from ckptstorm.layouts.megatron_groups import Groups, check_reshard
from ckptstorm.layouts.megatron_restore import Sides
from ckptstorm.program import ROOT, STEP, Kind, Path
from ckptstorm.steps import Call, Draft, Meet, Record, Run, Step, WriteFile

Int64s = NDArray[np.int64]

CONFIG = Path(STEP, "metadata.json", 0, len('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}'))
#: A key of the optimizer's buffer, on average: "optimizer.distributed.dp_group_idx_12.gbuf_idx_0.dtype_…".
_STATE_NAME_BYTES, _MODEL_NAME_BYTES = 105, 48
# `.metadata` by the law of DCP's, with what an item costs here: in it, and once more in the plan of its rank.
_NAME_BYTES, _NAME_SHARE, _ITEM_BYTES = 105, 1.45, 146 + 160


class MegatronDistOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "megatron_dist"."""

    #: `--dist-ckpt-workers`: files of a rank, each written by a thread of its own.
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    #: `--ckpt-fully-parallel-save`: weights are dealt to all data-parallel ranks; else the first stores them.
    fully_parallel_save: bool = True
    #: `--ckpt-fully-parallel-load`: each weight is read once and exchanged; else every rank reads all of its own.
    fully_parallel_load: bool = False
    #: `--overlap-grad-reduce`: the optimizer's buffer is cut into buckets (on the first pipeline stage).
    overlap_grad_reduce: bool = True


class MegatronDistLayout:
    """Synchronous save of weights in bf16 and optimizer state in `dp_reshardable` buckets."""

    Options: ClassVar[type[LayoutOptions]] = MegatronDistOptions
    pointer: ClassVar[Pointer | None] = Pointer(TRACKER.name, "tracker", TRACKER.size_bytes)

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene, self._options = scene, options
        self._groups = Groups(
            scene.model,
            scene.parallel,
            options.workers,
            "members" if options.fully_parallel_save else "first",
            "overlapped" if options.overlap_grad_reduce else "one",
        )

    def check(self) -> None:
        """Refuse what Megatron is not made of here."""
        check_scene(self._scene, "megatron_dist")

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: data, `.metadata`, metadata.json, tracker, each behind a meet."""
        first = rank == 0
        data = (Run(drafts),) if (drafts := self._drafts(rank)) else ()
        plan, results = (
            self._message_bytes(dcp_metadata.PLAN_ITEM_BYTES),
            self._message_bytes(dcp_metadata.RESULT_ITEM_BYTES),
        )
        return (
            *((Run((self._opening(),)),) if first else ()),
            Meet("barrier", "shards of each data-parallel group (all-gather, played as a barrier)", "data"),
            Run((self._writer_opening(),)),
            Meet("gather", "save plans to rank 0", bytes_per_rank=plan),
            *data,
            Meet("barrier", "all files are written"),
            Meet("gather", "write results to rank 0", bytes_per_rank=results),
            *((Run((self._commit(),), part="commit"),) if first else ()),
            Meet("bcast", "whether a rank failed", bytes_per_rank=4),
            *((Run(((write_text(CONFIG),),), part="commit"),) if first else ()),
            Meet("barrier", "metadata.json is written"),
            Meet("barrier", "the save is over"),
            *((Run(((write_text(TRACKER),),), part="commit"),) if first else ()),
            Meet("barrier", "the tracker is written"),
        )

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load what `rank` holds: directory, tracker and metadata twice over, then tensors."""
        return megatron_restore.steps(Sides(self._groups, self._groups), self._metadata, CONFIG, rank, self._load)

    def resharded(self, scene: Scene) -> Reader:
        """Another data parallelism, whose optimizer buckets are the same; model parallelism stays."""
        check_scene(scene, "megatron_dist", "restore.parallel")
        loading = check_reshard(self._groups, scene, "megatron_dist")
        return MegatronDistReader(Sides(self._groups, loading), self._metadata, self._load)

    def created(self, rank: int) -> tuple[str, ...]:
        """The rank's data files; rank 0 also makes what the commit writes."""
        names = tuple(file_name(rank, index) for index in range(self._groups.file_count(rank)))
        commit = (".metadata.tmp", ".metadata", CONFIG.name, TRACKER.name) if rank == 0 else ()
        return (*names, *commit)

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """Rank 0 commits; all others do alike but for the number of their files."""
        counts = self._groups.file_counts[1:]
        _, first, ranks = np.unique(counts, return_index=True, return_counts=True)
        return ((0, 1), *zip((first + 1).tolist(), ranks.tolist(), strict=True))

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """Members that read equally much, of each set of equal model-parallel ranks."""
        return self._groups.restore_classes(self._load)

    @property
    def _load(self) -> str:
        return "own" if self._options.fully_parallel_load else "all"

    def census(self) -> Census:
        """Counts over all ranks, from each set of equal model-parallel ranks."""
        records = Counter[Record]()
        for size, count in self._groups.tensor_counts.items():
            records[torch_zip.tensor_record(size)] += count
        for size, count in self._groups.blob_counts.items():
            records[torch_zip.blob_record(size)] += count
        commit = (self._metadata.size_bytes, CONFIG.size_bytes, TRACKER.size_bytes)
        return Census(
            records=records,
            file_bytes=self._groups.file_bytes,
            file_count=int(self._groups.file_counts.sum()),
            commit_bytes=sum(commit),
            commit_files=len(commit),
        )

    @cached_property
    def _metadata(self) -> Path:
        """`.metadata`, which also holds all ranks' plans."""
        model, optimizer = self._groups.item_counts
        blobs = sum(self._groups.blob_counts.values())
        states = self._groups.bucket_count * 3
        names = self._groups.key_count * _MODEL_NAME_BYTES + (states + blobs) * _STATE_NAME_BYTES
        of_names = _NAME_BYTES * (self._groups.key_count + states + blobs) + int(_NAME_SHARE * names)
        return Path(STEP, ".metadata", 0, of_names + _ITEM_BYTES * (model + optimizer + blobs))

    def _message_bytes(self, item_bytes: int) -> int:
        """Bytes of a pickled message about the items that a rank stores, on average over all ranks."""
        items = sum(self._groups.item_counts) + sum(self._groups.blob_counts.values())
        return items * (item_bytes + _STATE_NAME_BYTES) // self._scene.rank_count

    def _opening(self) -> Draft:
        """Rank 0 makes the directory and looks whether something is in it."""
        made = Call(Kind.MKDIR, DIRECTORY, expect=errno.EEXIST, mode=DIRECTORY_MODE)
        return (Call(Kind.STAT, Path(ROOT, "")), made, Call(Kind.READDIR, DIRECTORY))

    def _writer_opening(self) -> Draft:
        """DCP's writer on every rank: the directory again, which is there now, and a look for `.metadata`."""
        made = Call(Kind.MKDIR, DIRECTORY, expect=errno.EEXIST, mode=DIRECTORY_MODE)
        return (made, Call(Kind.STAT, DIRECTORY), Call(Kind.STAT, self._metadata, expect=errno.ENOENT))

    def _drafts(self, rank: int) -> tuple[Draft, ...]:
        """A thread for each file."""
        group, member = self._groups.of(rank)
        return tuple((self._data_file(rank, index, group, member),) for index in range(len(group.stored[member].files)))

    def _data_file(self, rank: int, index: int, group: Group, member: int) -> WriteFile:
        content = group.stored[member].files[index]
        records = [torch_zip.blob_record(size) for size in content.blobs]
        records += [torch_zip.tensor_record(size) for size in content.data_bytes.tolist()]
        path = Path(STEP, file_name(rank, index), rank, content.size_bytes)
        return WriteFile(path, tuple(records), "python", True, CREATE)

    def _commit(self) -> Draft:
        final = self._metadata
        temporary = Path(STEP, ".metadata.tmp", 0, final.size_bytes, content=".metadata")
        replaced = (Call(Kind.UNLINK, final, expect=errno.ENOENT),) if self._scene.overwrite else ()
        return (
            WriteFile(temporary, dcp_metadata.write_records(final.size_bytes), "python", True, CREATE),
            Call(Kind.STAT, final, expect=errno.ENOENT),
            *replaced,
            Call(Kind.RENAME, temporary, target=final),
        )


@dataclass(frozen=True, eq=False)
class MegatronDistReader:
    """The load of another world.

    Attributes:
        sides: who stored, who loads.
        metadata: `.metadata`.
        load: as in `megatron_restore.steps`.
    """

    sides: Sides
    metadata: Path
    load: str

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load what `rank` holds."""
        return megatron_restore.steps(self.sides, self.metadata, CONFIG, rank, self.load)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """Ranks here and there: which slices overlap differs from one to the next."""
        return spread_classes(self.sides.loading.parallel.rank_count)


def file_name(rank: int, index: int) -> str:
    """A data file's name."""
    return f"__{rank}_{index}.distcp"
