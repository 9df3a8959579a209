"""All model-parallel ranks of a Megatron job: those that are alike share one `Group`, so a world is a few of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.contract import Scene, no_reshard
from ckptstorm.layouts.formats import torch_zip
from ckptstorm.layouts.megatron_buffer import bucket_limit, buffer
from ckptstorm.layouts.megatron_files import Group
from ckptstorm.layouts.megatron_shard import key_elements, parameters, shard_class
from ckptstorm.model.parallel import Coordinates, ParallelSpec
from ckptstorm.model.tensors import ModelSpec

Int64s = NDArray[np.int64]

#: Estimates: the generators' states (Python 2.5 KB, NumPy 2.5 KB, torch 5 KB, CUDA), and the job's arguments.
_RANDOM_STATE_BYTES, _ARGUMENTS_BYTES = torch_zip.blob_bytes(12_000), torch_zip.blob_bytes(32_000)
#: Two lists of the elements of each bucket, a few bytes a number.
_BUCKET_LIST_BYTES, _BUCKET_NUMBER_BYTES = 80, 5


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of a job.

    Attributes:
        model, parallel: what is saved, and how ranks share it.
        worker_count: files of a rank.
        spread: "members" deals weights to all members of a group, "first" leaves them to the first.
        buckets: "overlapped" cuts the first stage's buffer into buckets, "one" leaves it whole.
    """

    model: ModelSpec
    parallel: ParallelSpec
    worker_count: int
    spread: str
    buckets: str
    _known: dict[tuple[int, ...], Group] = field(default_factory=dict)

    @property
    def member_count(self) -> int:
        """Members of each group: data x context ranks."""
        return self.parallel.data * self.parallel.context

    def of(self, rank: int) -> tuple[Group, int]:
        """The group that `rank` is in, and which member it is."""
        at = self.parallel.coords(rank)
        return self.group(at.tensor, at.pipeline), at.data * self.parallel.context + at.context

    def rank_of(self, tensor: int, pipeline: int, member: int) -> int:
        """The rank of a member."""
        data, context = divmod(member, self.parallel.context)
        return self.parallel.rank_of(Coordinates(tensor, context, 0, data, pipeline))

    def ranks(self, tensor: int, pipeline: int) -> list[int]:
        """The ranks of all members."""
        return [self.rank_of(tensor, pipeline, member) for member in range(self.member_count)]

    def group(self, tensor: int, pipeline: int) -> Group:
        """The group of a model-parallel rank; one and the same for all that are alike."""
        key = (*shard_class(self.model, self.parallel, tensor, pipeline), tensor == 0 and pipeline == 0)
        if key not in self._known:
            self._known[key] = self._made(tensor, pipeline)
        return self._known[key]

    def _made(self, tensor: int, pipeline: int) -> Group:
        own = parameters(self.model, self.parallel, tensor, pipeline)
        # Later stages reduce their gradients when the pipeline is idle: Megatron cuts no buckets there.
        limit = bucket_limit(self.parallel.data) if self.buckets == "overlapped" and pipeline == 0 else 0
        made = buffer([parameter.element_count for parameter in own], limit, self.member_count)
        numbers = torch_zip.blob_bytes(_BUCKET_LIST_BYTES + _BUCKET_NUMBER_BYTES * len(made.bucket_elements))
        common = (_ARGUMENTS_BYTES,) if tensor == 0 and pipeline == 0 else ()
        return Group(
            parameters=own,
            buffer=made,
            member_count=self.member_count,
            key_elements=key_elements(self.model),
            is_first_tensor_rank=tensor == 0,
            spread=self.spread,
            blobs=(numbers, numbers, _RANDOM_STATE_BYTES, *common),
            worker_count=self.worker_count,
        )

    @cached_property
    def alike(self) -> list[tuple[Group, list[tuple[int, int]]]]:
        """Each distinct group, and the (tensor, pipeline) ranks that it stands for."""
        found: dict[int, tuple[Group, list[tuple[int, int]]]] = {}
        for pipeline in range(self.parallel.pipeline):
            for tensor in range(self.parallel.tensor):
                group = self.group(tensor, pipeline)
                found.setdefault(id(group), (group, []))[1].append((tensor, pipeline))
        return list(found.values())

    def file_count(self, rank: int) -> int:
        """How many files `rank` writes."""
        group, member = self.of(rank)
        return len(group.stored[member].files)

    @cached_property
    def file_counts(self) -> Int64s:
        """How many files each rank writes."""
        return self._by_rank({id(group): [len(stored.files) for stored in group.stored] for group, _ in self.alike})

    @cached_property
    def file_bytes(self) -> Int64s:
        """Bytes of each rank's files."""
        return self._by_rank({
            id(group): [sum(file.size_bytes for file in stored.files) for stored in group.stored]
            for group, _ in self.alike
        })  # fmt: skip

    def _by_rank(self, by_member: dict[int, list[int]]) -> Int64s:
        values = np.zeros(self.parallel.rank_count, dtype=np.int64)
        for group, places in self.alike:
            for tensor, pipeline in places:
                values[self.ranks(tensor, pipeline)] = by_member[id(group)]
        return values

    @cached_property
    def tensor_counts(self) -> Counter[int]:
        """How many tensors of each size in bytes all ranks store."""
        counts = Counter[int]()
        for group, places in self.alike:
            files = [file.data_bytes for stored in group.stored for file in stored.files]
            sizes, each = np.unique(np.concatenate(files), return_counts=True)
            for size, count in zip(sizes.tolist(), each.tolist(), strict=True):
                counts[size] += count * len(places)
        return counts

    @cached_property
    def blob_counts(self) -> Counter[int]:
        """How many objects of each size in bytes all ranks store."""
        counts = Counter[int]()
        for group, places in self.alike:
            for size in group.blobs:
                counts[size] += len(places)
        return counts

    @cached_property
    def item_counts(self) -> tuple[int, int]:
        """(model tensors, optimizer tensors) that all ranks store."""
        model = sum(int((group.writer >= 0).sum()) * len(places) for group, places in self.alike)
        return model, sum(self.tensor_counts.values()) - model

    @property
    def key_count(self) -> int:
        """Keys of model tensors."""
        return len(key_elements(self.model))

    @cached_property
    def bucket_count(self) -> int:
        """Buckets of all model-parallel ranks."""
        return sum(len(group.buffer.bucket_elements) * len(places) for group, places in self.alike)

    def restore_classes(self, way: str) -> tuple[tuple[int, int], ...]:
        """(rank, how many it stands for): members that read equally much, in each distinct group.

        The first member also reads objects, the last one has the padding of the buckets; `way` "own"
        has each read the weights that were dealt to it, "all" all of them.
        """
        last = self.member_count - 1
        classes: list[tuple[int, int]] = []
        for group, places in self.alike:
            dealt = np.bincount(group.owner, weights=group.model_bytes, minlength=last + 1)
            members: dict[tuple[bool, bool, int], list[int]] = {}
            for member, size in enumerate(dealt.astype(np.int64).tolist()):
                members.setdefault((member == 0, member == last, size if way == "own" else 0), []).append(member)
            classes += [
                (self.rank_of(*places[0], alike[len(alike) // 2]), len(alike) * len(places))
                for alike in members.values()
            ]
        return tuple(classes)


def check_reshard(stored: Groups, scene: Scene, layout: str) -> Groups:
    """The groups of another world that can load what `stored` holds.

    Raises:
        JobError: model parallelism changes, or the optimizer's buckets do; Megatron refuses both.
    """
    for key in ("tensor", "pipeline"):
        was, asked = getattr(stored.parallel, key), getattr(scene.parallel, key)
        if was != asked:
            raise no_reshard(
                layout,
                f"keeps its optimizer state in buckets of each model-parallel rank: {key} = {was} cannot be"
                f" restored with {key} = {asked}",
                f"leave [restore.parallel] {key} out (Megatron's fully reshardable optimizer format is not planned)",
            )
    loading = replace(stored, parallel=scene.parallel, _known={})
    for group, places in stored.alike:
        other = loading.group(*places[0])
        if group.buffer.bucket_elements.tolist() != other.buffer.bucket_elements.tolist():
            raise no_reshard(
                layout,
                f"has {len(group.buffer.bucket_elements)} optimizer buckets on {stored.parallel.data} data-parallel"
                f" ranks and {len(other.buffer.bucket_elements)} on {scene.parallel.data}: Megatron loads only"
                " equal ones",
                "set [layout] overlap_grad_reduce = false (one bucket), or keep the data parallelism",
            )
    return loading
