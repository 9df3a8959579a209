"""What a layout is: given a scene, the steps of any one rank, and counts for all of them at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from ckptstorm.errors import JobError
from ckptstorm.model.parallel import ParallelSpec
from ckptstorm.model.tensors import ModelSpec
from ckptstorm.steps import Record, Step

Int64s = NDArray[np.int64]


class LayoutOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys that a layout adds to [layout]; each layout has its own."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """How a framework knows which checkpoint to go on from.

    Attributes:
        name: of the file, below the step directory.
        kind: marker: a directory counts as a checkpoint when the file stands in it. tracker: the framework keeps
            one such file for all checkpoints, one level above, and writes over it in place.
        size_bytes: when it is complete; 0 when that depends on the job.
    """

    name: str
    kind: Literal["marker", "tracker"]
    size_bytes: int = 0


@dataclass(frozen=True)
class Scene:
    """What a layout knows of the job.

    Attributes:
        model: what is saved.
        parallel: how ranks share it.
        sharding: [parallel] sharding.
        overwrite: whether every round saves over the last one, in one step directory.
        replicas: [parallel] replicas: copies of each HSDP shard.
    """

    model: ModelSpec
    parallel: ParallelSpec
    sharding: str
    overwrite: bool = False
    replicas: int = 1

    @property
    def rank_count(self) -> int:
        """How many ranks save."""
        return self.parallel.rank_count


@dataclass(frozen=True, slots=True, eq=False)
class Census:
    """Counts over all ranks' data files; made without planning each rank.

    Attributes:
        records: how many there are of each record.
        file_bytes: size of each rank's data files together, by rank.
        file_count: data files.
        commit_bytes: files that only the commit writes.
        commit_files: how many of them.
        notes: in what the checkpoint is not the framework's, by the job's own wish.
    """

    records: Mapping[Record, int]
    file_bytes: Int64s
    file_count: int
    commit_bytes: int = 0
    commit_files: int = 0
    notes: tuple[str, ...] = ()


class Reader(Protocol):
    """How the ranks of a world restore a checkpoint."""

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that read back what `rank` needs."""

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """(rank, how many ranks it stands for): whose restores ask for the same sizes."""


class Layout(Reader, Protocol):
    """One framework's way to lay a checkpoint out. `scene` and `options` are all it knows."""

    Options: ClassVar[type[LayoutOptions]]
    #: None for a layout that names no checkpoint: the newest directory is then all that one can go by.
    pointer: ClassVar[Pointer | None]

    def __init__(self, scene: Scene, options: Any) -> None: ...

    def check(self) -> None:
        """Raise a JobError, naming the key, for what this layout cannot express."""

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank` up to and including the commit."""

    def resharded(self, scene: Scene) -> Reader:
        """How the ranks of another world restore this checkpoint, as the framework would.

        Raises:
            JobError: the framework cannot, or it is not planned; names the layout and the way out.
        """

    def created(self, rank: int) -> tuple[str, ...]:
        """Names below the step directory that `rank` creates, temporary ones included. Cheap."""

    def census(self) -> Census:
        """Counts over all ranks, in closed form."""

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """(rank, how many ranks it stands for): equal in everything but their data records."""


def no_reshard(layout: str, reason: str, hint: str = "") -> JobError:
    """That a layout's checkpoint is not restored in another world."""
    return JobError(f'[restore.parallel]: [layout] name = "{layout}" {reason}', hint or "remove [restore.parallel]")


def spread_classes(rank_count: int, most: int = 48) -> tuple[tuple[int, int], ...]:
    """(rank, how many ranks it stands for): the middle ranks of `most` runs of neighbours, or all ranks."""
    edges = np.linspace(0, rank_count, min(most, rank_count) + 1).astype(np.int64).tolist()
    return tuple((low + (high - low) // 2, high - low) for low, high in itertools.pairwise(edges))


def first_apart(rank_count: int) -> tuple[tuple[int, int], ...]:
    """(rank, how many ranks it stands for): rank 0 by itself, all others alike."""
    return ((0, 1), (1, rank_count - 1)) if rank_count > 1 else ((0, 1),)
