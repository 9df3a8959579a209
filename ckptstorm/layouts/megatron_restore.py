"""How every rank of a Megatron-LM job finds and loads a `torch_dist` checkpoint.

The order of calls is that of `load_checkpoint` (NVIDIA/Megatron-LM@d98e8a6): `_load_base_checkpoint` is
called twice, first for the arguments and then for all. Each pass lists the directory and reads the
tracker, metadata.json and the whole of `.metadata`; the second reads `.metadata` again for the tensors.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ckptstorm.layouts.formats import dcp_metadata, torch_zip
from ckptstorm.layouts.megatron_common import DIRECTORY, find_latest, read_text
from ckptstorm.layouts.megatron_files import STATE_BYTES
from ckptstorm.layouts.megatron_groups import Groups
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Draft, Meet, ReadFile, ReadRecord, Run, Step

Int64s = NDArray[np.int64]

#: Where `find_checkpoint_rank_0` looks for an older format before it looks for this one.
_OLDER = ("mp_rank_00", "mp_rank_00_000", "mp_rank_00_000", "mp_rank_00_000_000")


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """Who stored a checkpoint, and who loads it: the same groups, or groups of another data parallelism.

    Attributes:
        stored, loading: groups of the same model-parallel ranks, whose buffers have the same buckets.
    """

    stored: Groups
    loading: Groups


_Reads = dict[tuple[int, int], list[tuple[int, ReadRecord]]]  # (rank, file index): (offset, how)


def steps(sides: Sides, metadata: Path, config: Path, rank: int, way: str) -> tuple[Step, ...]:
    """Steps of the load of `rank`.

    Args:
        sides: who stored what, and who loads.
        metadata: `.metadata`.
        config: metadata.json.
        rank: who loads.
        way: "all" reads every weight that the rank holds, "own" those that it is to hand on.
    """
    finding, agreed = find_latest()
    form = (Call(Kind.READDIR, DIRECTORY), Call(Kind.STAT, metadata), *_config(config))
    older = tuple(Call(Kind.STAT, Path(STEP, f"{name}/model_optim_rng.pt"), expect=errno.ENOENT) for name in _OLDER)
    whole = ReadFile(metadata, *dcp_metadata.reads(metadata.size_bytes), "python")
    # `load_common_state_dict` verifies once more, and looks for the file that older releases kept it in.
    older_common = Call(Kind.STAT, Path(STEP, "common.pt"), expect=errno.ENOENT)
    common = (*_verified(config), older_common, whole, _common_read(sides.stored))
    tensors = (
        (Run(((whole, *_objects(sides, rank), whole, *_tensors(sides, rank)),)), _EXCHANGED_OBJECTS, _EXCHANGED)
        if way == "own"
        else (Run(((whole, *_together(sides, rank)),)),)
    )
    shards = (Meet("barrier", "which shard each rank reads (all-gather, played as a barrier)", "data"),)
    return (
        Run((finding,)),
        agreed,
        Run(((*form, *older, *_config(config), *common),)),
        Run((finding,)),
        agreed,
        Run(((*form, *_verified(config), *common),)),
        Meet("barrier", "every shard is wanted by a rank (all-gather, played as a barrier)"),
        *(shards if way == "own" else ()),
        *tensors,
        Meet("barrier", "all ranks have loaded"),
    )


_EXCHANGED_OBJECTS = Meet("barrier", "objects to all ranks (all-gather, played as a barrier)", "data")
_EXCHANGED = Meet("barrier", "weights within each data-parallel group (over the GPUs' network, not played)", "data")


def _config(config: Path) -> Draft:
    return (Call(Kind.STAT, config), read_text(config))


def _verified(config: Path) -> Draft:
    return (Call(Kind.STAT, DIRECTORY), *_config(config))


def _common_read(groups: Groups) -> ReadFile:
    """The job's arguments, the last object of rank 0."""
    group = groups.group(0, 0)
    index, offset = group.stored[0].blob_places[-1]
    return _file(groups, (0, index), [(offset, torch_zip.blob_read(group.blobs[-1]))])


def _objects(sides: Sides, rank: int) -> list[ReadFile]:
    """Objects of the model-parallel rank; in a fully parallel load its first member alone reads them."""
    reads: _Reads = {}
    if sides.loading.of(rank)[1] == 0:
        _note_objects(sides, rank, slice(None), reads)
    return [_file(sides.stored, place, items) for place, items in reads.items()]


def _together(sides: Sides, rank: int) -> list[ReadFile]:
    """All that the rank holds, by name; files in the order of first need."""
    reads: _Reads = {}
    group, _ = sides.loading.of(rank)
    before, behind = group.in_load_order(np.arange(len(group.writer), dtype=np.int64))
    _note_weights(sides, rank, before, reads)
    _note_states(sides, rank, reads)
    _note_objects(sides, rank, slice(0, 2), reads)  # "optimizer.distributed.dp_group_idx_0.per_bucket_numel…"
    _note_weights(sides, rank, behind, reads)
    _note_objects(sides, rank, slice(2, None), reads)  # "rng_state"
    return [_file(sides.stored, place, items) for place, items in reads.items()]


def _tensors(sides: Sides, rank: int) -> list[ReadFile]:
    """The rank's share of its group's weights, and its own optimizer slices."""
    reads: _Reads = {}
    group, member = sides.loading.of(rank)
    before, behind = group.in_load_order(np.flatnonzero(group.owner == member))
    _note_weights(sides, rank, before, reads)
    _note_states(sides, rank, reads)
    _note_weights(sides, rank, behind, reads)
    return [_file(sides.stored, place, items) for place, items in reads.items()]


def _note_weights(sides: Sides, rank: int, wanted: Int64s, reads: _Reads) -> None:
    """Weights; what all tensor-parallel ranks hold lies with the first of them."""
    at, groups = sides.loading.parallel.coords(rank), sides.stored
    own, first = groups.group(at.tensor, at.pipeline), groups.group(0, at.pipeline)
    for item in wanted.tolist():
        tensor, group = (at.tensor, own) if own.writer[item] >= 0 else (0, first)
        writer = int(group.writer[item])
        stored, place = group.stored[writer], int(group.place[item])
        holder = groups.rank_of(tensor, at.pipeline, writer)
        how = torch_zip.tensor_read(int(own.model_bytes[item]))
        reads.setdefault((holder, int(stored.file_index[place])), []).append((int(stored.offset[place]), how))


def _note_states(sides: Sides, rank: int, reads: _Reads) -> None:
    """The rank's own optimizer slices: of each, every stored slice that overlaps it, whole."""
    loading, member = sides.loading.of(rank)
    at = sides.loading.parallel.coords(rank)
    group = sides.stored.group(at.tensor, at.pipeline)
    for interval, state in loading.states_in_load_order(member):
        low, high = loading.buffer.held(member, interval)
        for holder in group.buffer.holders(interval, low, high):
            first, last = group.buffer.held(holder, interval)
            stored = group.stored[holder]
            # Model tensors come before the optimizer's.
            place = len(group.written[holder]) + group.state_place(holder, interval, state)
            where = (sides.stored.rank_of(at.tensor, at.pipeline, holder), int(stored.file_index[place]))
            how = torch_zip.tensor_read((last - first) * STATE_BYTES)
            reads.setdefault(where, []).append((int(stored.offset[place]), how))


def _note_objects(sides: Sides, rank: int, which: slice, reads: _Reads) -> None:
    """Bucket sizes and random state of the model-parallel rank, which its first member stores."""
    at, groups = sides.loading.parallel.coords(rank), sides.stored
    group = groups.group(at.tensor, at.pipeline)
    holder = groups.rank_of(at.tensor, at.pipeline, 0)
    # The very first group has the common object behind them, which is read by itself.
    own = group.blobs[:3]
    for size, (index, offset) in zip(own[which], group.stored[0].blob_places[:3][which], strict=True):
        reads.setdefault((holder, index), []).append((offset, torch_zip.blob_read(size)))


def _file(groups: Groups, place: tuple[int, int], items: list[tuple[int, ReadRecord]]) -> ReadFile:
    holder, index = place
    group, member = groups.of(holder)
    path = Path(STEP, f"__{holder}_{index}.distcp", holder, group.stored[member].files[index].size_bytes)
    return ReadFile(path, tuple(offset for offset, _ in items), tuple(how for _, how in items), "python")
