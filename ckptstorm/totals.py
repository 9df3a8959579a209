"""What all ranks do together, in closed form: a plan's printout for 100,000 ranks takes a moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ckptstorm.job import Job
from ckptstorm.layouts.contract import Census, Layout, Reader
from ckptstorm.lowering import call_kind, lower, padding_count, record_writes
from ckptstorm.model.parallel import World
from ckptstorm.program import DATA, SYNCS, Kind, Program
from ckptstorm.scene import facts_of, layout_of, reader_of, sides_of
from ckptstorm.sizes import SIZE_CLASS_NAMES, size_class
from ckptstorm.steps import Draft, Facts, Meet, ReadFile, Run, Step, WriteFile

#: Up to here every rank's restore is planned and lowered; beyond, one rank of each class.
EXACT_RESTORE_RANKS = 64


@dataclass(frozen=True)
class OpTotals:
    """Ops of all ranks in one phase.

    Attributes:
        by_kind: how many ops of each kind ("write", "fsync", …).
        data_by_size: how many data ops in each size class ("64", "512", "4K", …), by bytes moved.
        data_bytes: bytes that the data ops move.
        largest_op_bytes: the longest of them as asked for, which is what buffers must hold.
    """

    by_kind: dict[str, int]
    data_by_size: dict[str, int]
    data_bytes: int
    largest_op_bytes: int = 0

    @property
    def data_op_count(self) -> int:
        """Reads and writes as issued."""
        return sum(self.data_by_size.values())

    @property
    def metadata_op_count(self) -> int:
        """All that is neither a data op nor a sync."""
        no_metadata = {kind.word for kind in (*DATA, *SYNCS)}
        return sum(count for kind, count in self.by_kind.items() if kind not in no_metadata)


@dataclass(frozen=True)
class Totals:
    """A checkpoint of all ranks, before anything is written.

    Attributes:
        rank_count: ranks that save.
        restore_rank_count: ranks that restore.
        file_count: files of a finished checkpoint.
        tensor_count: tensors on disk: shards, scalars, and the empty records that stand for shards without rows.
        record_count: stored items: these and blobs.
        save, restore: ops.
        is_restore_exact: whether every rank's restore was counted, or one rank of each class of
            equal shards: then bytes of shards are exact, and the calls around others' scalars
            (which differ by where they fall in a block) are those of that one rank.
        bytes_per_rank_least, bytes_per_rank_median, bytes_per_rank_most: data files, by rank.
        data_bytes: data files together.
        commit_bytes: what the commit writes besides (`.metadata`).
        collective_count: meets in save and restore, by "kind: why".
        metadata_read_bytes: what the restore reads of files that the commit wrote, and not of data.
        notes: in what the checkpoint is not the framework's, by the job's own wish.
    """

    rank_count: int
    restore_rank_count: int
    file_count: int
    tensor_count: int
    record_count: int
    save: OpTotals
    restore: OpTotals
    is_restore_exact: bool
    bytes_per_rank_least: int
    bytes_per_rank_median: int
    bytes_per_rank_most: int
    data_bytes: int
    commit_bytes: int
    collective_count: dict[str, int]
    metadata_read_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def read_multiplier(self) -> float:
        """Bytes that the restore reads, for each byte of the checkpoint on disk, metadata included."""
        return self.restore.data_bytes / max(self.data_bytes + self.commit_bytes, 1)

    @property
    def data_read_multiplier(self) -> float:
        """The same of data files alone."""
        return (self.restore.data_bytes - self.metadata_read_bytes) / max(self.data_bytes, 1)


def totals(job: Job, world: World, facts: Facts | None = None) -> Totals:
    """Counts over all ranks of one round.

    Args:
        job: what is asked.
        world: how many ranks.
        facts: of the target; blocks of 4 KiB when it is not known yet.

    Raises:
        JobError: as `plan.check_plan`.
    """
    if not job.saves:
        return _nothing(world)
    layout, reader, facts = layout_of(job, world), reader_of(job, world), facts or facts_of(job, 4096)
    restore_rank_count = sides_of(job, world).restore.rank_count
    census = layout.census()
    save = _save_ops(layout, census, facts)
    sizes = np.sort(census.file_bytes)
    is_exact = restore_rank_count <= EXACT_RESTORE_RANKS
    classes = tuple((rank, 1) for rank in range(restore_rank_count)) if is_exact else reader.restore_classes()
    steps = (*layout.save(0), *reader.restore(0))
    restore = _restore_counts(reader, classes, facts, _commit_names(layout))
    return Totals(
        rank_count=len(census.file_bytes),
        restore_rank_count=restore_rank_count,
        file_count=census.file_count + census.commit_files,
        tensor_count=sum(record.tensor_count * count for record, count in census.records.items()),
        record_count=sum(census.records.values()),
        save=save,
        restore=restore.result(),
        is_restore_exact=is_exact,
        bytes_per_rank_least=int(sizes[0]),
        bytes_per_rank_median=int(sizes[len(sizes) // 2]),
        bytes_per_rank_most=int(sizes[-1]),
        data_bytes=int(sizes.sum()),
        commit_bytes=census.commit_bytes,
        collective_count=dict(Counter(f"{step.kind}: {step.why}" for step in steps if isinstance(step, Meet))),
        metadata_read_bytes=restore.metadata_bytes,
        notes=census.notes,
    )


def _nothing(world: World) -> Totals:
    """A job of loads only saves nothing."""
    none = _Counts().result()
    return Totals(world.rank_count, world.rank_count, 0, 0, 0, none, none, True, 0, 0, 0, 0, 0, {})


class _Counts:
    """Sums of op tables, each standing for a number of ranks."""

    def __init__(self, metadata_names: frozenset[str] = frozenset()) -> None:
        self._metadata_names, self.metadata_bytes = metadata_names, 0
        self.by_kind: Counter[str] = Counter()
        self.by_class = np.zeros(len(SIZE_CLASS_NAMES), dtype=np.int64)
        self.data_bytes = self.largest_op_bytes = 0

    def add_program(self, program: Program, rank_count: int) -> None:
        kinds, counts = np.unique(program.ops["kind"], return_counts=True)
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            self.by_kind[Kind(kind).word] += count * rank_count
        is_data = np.isin(program.ops["kind"], DATA)
        moved = program.expected_bytes()[is_data]
        names = [index for index, path in enumerate(program.paths) if path.name in self._metadata_names]
        if names:
            self.metadata_bytes += int(moved[np.isin(program.ops["file"][is_data], names)].sum()) * rank_count
        self.by_class += np.bincount(size_class(moved), minlength=len(self.by_class)) * rank_count
        self.data_bytes += int(moved.sum()) * rank_count
        asked = program.ops["length_bytes"][np.isin(program.ops["kind"], DATA)]
        self.largest_op_bytes = max(self.largest_op_bytes, int(asked.max(initial=0)))

    def add_writes(self, kind: Kind, lengths: list[int], count: int) -> None:
        if not lengths:
            return
        self.by_kind[kind.word] += len(lengths) * count
        classes = size_class(np.array(lengths, dtype=np.int64))
        self.by_class += np.bincount(classes, minlength=len(self.by_class)) * count
        self.data_bytes += sum(lengths) * count
        self.largest_op_bytes = max(self.largest_op_bytes, *lengths)

    def result(self) -> OpTotals:
        by_size = dict(zip(SIZE_CLASS_NAMES, self.by_class.tolist(), strict=True))
        return OpTotals(dict(sorted(self.by_kind.items())), by_size, self.data_bytes, self.largest_op_bytes)


def _save_ops(layout: Layout, census: Census, facts: Facts) -> OpTotals:
    """Data files' records by the census; all else from one rank of each class."""
    counts, api = _Counts(), None
    for rank, rank_count in layout.save_classes():
        for run in _runs(layout.save(rank)):
            for draft in run.drafts:
                if run.part == "data":
                    api = next((item.api for item in draft if isinstance(item, WriteFile)), api)
                    draft = tuple(_emptied(item) if isinstance(item, WriteFile) else item for item in draft)
                counts.add_program(lower(draft, facts), rank_count)
    assert api is not None, "a layout that writes no data file"
    for record, count in census.records.items():
        for kind, lengths in record_writes(record, api, facts).items():
            counts.add_writes(kind, lengths, count)
    if facts.calls.endswith("_all"):
        counts.add_writes(call_kind(Kind.WRITE, facts), [0], _padding_count(layout, facts))
    return counts.result()


def _emptied(file: WriteFile) -> WriteFile:
    return replace(file, records=(), longest=())


def _padding_count(layout: Layout, facts: Facts) -> int:
    """Empty calls of all ranks, with which collective ones keep step."""
    count = 0
    for rank, rank_count in layout.restore_classes():  # equal shards: equally many calls
        for run in _runs(layout.save(rank)):
            files = (item for draft in run.drafts for item in draft if isinstance(item, WriteFile))
            count += rank_count * sum(padding_count(file, facts) for file in files)
    return count


def _commit_names(layout: Layout) -> frozenset[str]:
    """Files that only the commit writes, by their final names."""
    commits = (run for run in _runs(layout.save(0)) if run.part == "commit")
    drafts = (item for run in commits for draft in run.drafts for item in draft)
    return frozenset(item.path.content_name for item in drafts if isinstance(item, WriteFile))


def _restore_counts(
    reader: Reader, classes: Iterable[tuple[int, int]], facts: Facts, metadata_names: frozenset[str]
) -> _Counts:
    counts = _Counts(metadata_names)
    # `.metadata` is one and the same value in every rank's steps, and may be gigabytes of frames.
    shared: dict[int, tuple[Draft, Program]] = {}
    for rank, rank_count in classes:
        for run in _runs(reader.restore(rank)):
            for draft in run.drafts:
                counts.add_program(_lowered_once(draft, facts, shared), rank_count)
    return counts


def _lowered_once(draft: Draft, facts: Facts, shared: dict[int, tuple[Draft, Program]]) -> Program:
    if len(draft) != 1 or not isinstance(draft[0], ReadFile):
        return lower(draft, facts)
    if id(draft[0]) not in shared:
        shared[id(draft[0])] = (draft, lower(draft, facts))
    return shared[id(draft[0])][1]


def _runs(steps: Iterable[Step]) -> Iterable[Run]:
    return (step for step in steps if isinstance(step, Run))
