"""Orbax with OCDBT, approximately: arrays gathered into a few large files, and an index that is synced again and again.

Taken from one process of Orbax 0.12.8 (tensorstore 0.1.86) under strace and extended to many; the files,
the large gathered writes, every fsync, lock and rename are as traced. What is not:

* when a part of the index is flushed depends on timing (7 and 20 rounds traced): `index_rounds` says how often;
* the index is re-read (out of the page cache) before each round, which is left out;
* gathered writes (writev of 1,024 parts, about 60 MB) are plain writes of `write_size`;
* arrays are compressed by default (8 to 11 % of fp32 noise): nothing is compressed here;
* the merged index grows by arrays times ranks and every rank reads all of it, as the one process did;
* subdirectories are prefixes of names, and where Orbax renames the whole directory, a file is renamed.
"""

from __future__ import annotations

import errno
import itertools
import os
from functools import cached_property
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from ckptstorm.errors import JobError
from ckptstorm.layouts.contract import Census, LayoutOptions, Pointer, Reader, Scene, first_apart, no_reshard
from ckptstorm.layouts.formats import orbax_io
from ckptstorm.layouts.options import size_option
from ckptstorm.layouts.shards import Shards, block_records
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Draft, Meet, ReadFile, ReadRecord, Record, Run, Seek, Step, WriteFile

_DIRECTORY = Path(STEP, "")
_SYNC_DIRECTORY = Call(Kind.FSYNC_DIR, _DIRECTORY)
_DATA_FLAGS = os.O_RDWR | os.O_CREAT | os.O_TRUNC
_TEXT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_LOCK_FLAGS = os.O_WRONLY | os.O_CREAT
_EXCLUSIVE = 2  # `OP_DTYPE`: a lock's flags


class OrbaxOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "orbax"."""

    #: Bytes of a gathered write.
    write_size: str | int = "60MB"
    #: Data files of a process.
    data_files: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 2
    #: Small parts of the index that are flushed before the arrays are: by timing, 4 and 17 were seen.
    index_rounds: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 4


class OrbaxLayout:
    """Every rank a process: its data files and its own index, merged by rank 0 at the end."""

    Options: ClassVar[type[LayoutOptions]] = OrbaxOptions
    pointer: ClassVar[Pointer | None] = Pointer("commit_success.txt", "marker", orbax_io.SUCCESS_BYTES)

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene = scene
        self._options: OrbaxOptions = options
        self._write_bytes = size_option("write_size", self._options.write_size)
        self._shards = Shards(scene)

    def check(self) -> None:
        """Refuse an overwrite, and shardings other than FSDP's."""
        if self._scene.overwrite:
            raise JobError(
                '[layout] overwrite = true is not planned for [layout] name = "orbax": it saves over no checkpoint',
                "remove [layout] overwrite",
            )
        if self._scene.sharding != "fsdp2":
            raise JobError(
                f'[parallel] sharding = "{self._scene.sharding}" is not planned for [layout] name = "orbax"',
                "allowed: fsdp2 (of copies, Orbax saves one)",
            )

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: its data files and index; rank 0 makes the directory before, and commits after."""
        written = Run((self._data(rank),))
        ready = Meet("barrier", "the temporary directory is there")
        complete = Meet("barrier", "all processes have written")
        visible = Meet("barrier", "the checkpoint is visible")
        if rank > 0:
            return (ready, written, complete, visible)
        made = (
            Call(Kind.MKDIR, _DIRECTORY, expect=errno.EEXIST, mode=0o777),
            _text(Path(STEP, "_CHECKPOINT_METADATA", 0, orbax_io.CHECKPOINT_METADATA_BYTES)),
        )
        return (Run((made,)), ready, written, complete, Run((self._commit,), part="commit"), visible)

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load the arrays of `rank`: the merged index, then an open and a read for each of them."""
        reads = [_whole(path) for path in (self._array_index, self._merged_manifest, self._merged_node)]
        for path, sizes in self._data_files(rank):
            at = 0
            for size in sizes:
                reads.append(_read(path, at, size))
                at += size
        looks = (Call(Kind.STAT, self._array_index), Call(Kind.READDIR, _DIRECTORY))
        return (Run(((*looks, *reads),)), Meet("barrier", "all ranks have their shards"))

    def resharded(self, scene: Scene) -> Reader:
        """Refused by name."""
        raise no_reshard(
            "orbax",
            "is an approximation of one world: no restore in another one is planned",
        )

    def created(self, rank: int) -> tuple[str, ...]:
        """All files of the rank, temporary ones included; rank 0 also makes those of the whole checkpoint."""
        names = [path.name for path, _ in self._data_files(rank)]
        names += [_index_name(rank, at) for at in range(self._options.index_rounds + 1)]
        names += [*_locked(_manifest_name(rank)), _arrays_name(rank)]
        if rank == 0:
            names += ["_CHECKPOINT_METADATA", "_METADATA", *_locked("_sharding")]
            names += ["d.merged", *_locked("manifest.ocdbt")]
            names += ["commit_success.txt.orbax-checkpoint-tmp", "commit_success.txt"]
        return tuple(names)

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """Rank 0 commits; all else but the data is alike."""
        return first_apart(self._scene.rank_count)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """One rank for each distinct shard."""
        return self._shards.classes

    def census(self) -> Census:
        """Counts over all ranks, from one rank of each class."""
        records = self._shards.record_counts(
            lambda rank: (record for item in self._data(rank) if isinstance(item, WriteFile) for record in item.records)
        )
        sizes = self._shards.by_rank(
            lambda rank: sum(item.path.size_bytes for item in self._data(rank) if isinstance(item, WriteFile))
        ).copy()
        first = Record((orbax_io.CHECKPOINT_METADATA_BYTES,), tensor_count=0)
        records[first] += 1
        sizes[0] += first.size_bytes
        commits = [item.path.size_bytes for item in self._commit if isinstance(item, WriteFile)]
        each = self._options.data_files + self._options.index_rounds + 3
        return Census(records, sizes, each * self._scene.rank_count + 1, sum(commits), len(commits))

    def _data_files(self, rank: int) -> list[tuple[Path, tuple[int, ...]]]:
        """(file, arrays in it) of `rank`: the arrays in order, about as many bytes in each file."""
        sizes, count = self._shards.sizes(rank), self._options.data_files
        starts = np.cumsum([0, *sizes], dtype=np.int64)
        cuts = np.searchsorted(starts, np.arange(count + 1) * int(starts[-1]) // count).tolist()
        parts = [sizes[low:high] for low, high in itertools.pairwise(cuts)]
        return [
            (Path(STEP, f"ocdbt.process_{rank}.d.{index}", rank, sum(part)), part) for index, part in enumerate(parts)
        ]

    def _data(self, rank: int) -> Draft:
        """Rounds of a file in `d` and the manifest that knows it: parts of the index, arrays, the index of arrays."""
        arrays = len(self._shards.sizes(rank))
        rounds = self._options.index_rounds
        files = [_index_file(rank, at, orbax_io.NODE_BYTES) for at in range(rounds)]
        for path, sizes in self._data_files(rank):
            files.append(_synced(path, block_records(path.size_bytes, self._write_bytes, len(sizes))))
        files.append(_index_file(rank, rounds, orbax_io.node_bytes(arrays, 1)))
        items: list[WriteFile] = []
        for at, file in enumerate(files):
            items += [file, _replaced(_manifest_name(rank), rank, orbax_io.manifest_bytes(at))]
        items.append(_text(Path(STEP, _arrays_name(rank), rank, orbax_io.arrays_bytes(arrays))))
        return tuple(items)

    @cached_property
    def _commit(self) -> Draft:
        """What rank 0 writes when all have: descriptions, the merged index, the mark, and the rename."""
        done = Path(STEP, "commit_success.txt", 0, orbax_io.SUCCESS_BYTES)
        mark = Path(STEP, "commit_success.txt.orbax-checkpoint-tmp", 0, orbax_io.SUCCESS_BYTES, content=done.name)
        return (
            _replaced("_sharding", 0, orbax_io.sharding_bytes(self._array_count)),
            _text(self._array_index),
            _synced(self._merged_node, (Record((self._merged_node.size_bytes,), tensor_count=0),)),
            _replaced("manifest.ocdbt", 0, self._merged_manifest.size_bytes),
            _text(mark),
            Call(Kind.RENAME, mark, target=done),
        )

    @property
    def _array_count(self) -> int:
        """Arrays of the whole state."""
        return self._scene.model.tensor_count * (1 + len(self._scene.model.states))

    @cached_property
    def _array_index(self) -> Path:
        return Path(STEP, "_METADATA", 0, orbax_io.metadata_bytes(self._array_count))

    @cached_property
    def _merged_manifest(self) -> Path:
        return Path(STEP, "manifest.ocdbt", 0, orbax_io.MERGED_MANIFEST_BYTES)

    @cached_property
    def _merged_node(self) -> Path:
        chunks = int(self._shards.by_rank(lambda rank: len(self._shards.sizes(rank))).sum())
        return Path(STEP, "d.merged", 0, orbax_io.node_bytes(self._array_count, chunks / self._array_count))


def _manifest_name(rank: int) -> str:
    return f"ocdbt.process_{rank}.manifest.ocdbt"


def _arrays_name(rank: int) -> str:
    return f"array_metadatas.process_{rank}"


def _index_name(rank: int, at: int) -> str:
    return f"ocdbt.process_{rank}.d.index-{at}"


def _locked(name: str) -> tuple[str, str]:
    return (f"{name}.__lock", name)


def _text(path: Path) -> WriteFile:
    """A small file, written by Python and not synced."""
    return WriteFile(path, (Record((path.size_bytes,), tensor_count=0),), "direct", False, _TEXT_FLAGS)


def _synced(path: Path, records: tuple[Record, ...]) -> WriteFile:
    """A file in `d`: synced, and the directory with it, before it is closed."""
    return WriteFile(path, records, "direct", True, _DATA_FLAGS, closing=(_SYNC_DIRECTORY,))


def _index_file(rank: int, at: int, size_bytes: int) -> WriteFile:
    return _synced(Path(STEP, _index_name(rank, at), rank, size_bytes), (Record((size_bytes,), tensor_count=0),))


def _replaced(name: str, rank: int, size_bytes: int) -> WriteFile:
    """A file replaced as a whole: written under a lock, synced, renamed, and the directory synced."""
    lock_name, _ = _locked(name)
    lock, final = Path(STEP, lock_name, rank, size_bytes, content=name), Path(STEP, name, rank, size_bytes)
    return WriteFile(
        lock,
        (Record((size_bytes,), tensor_count=0),),
        "direct",
        True,
        _LOCK_FLAGS,
        opening=(Call(Kind.LOCK, lock, flags=_EXCLUSIVE),),
        closing=(Call(Kind.RENAME, lock, target=final), _SYNC_DIRECTORY, Call(Kind.UNLOCK, lock)),
    )


def _read(path: Path, offset_bytes: int, size_bytes: int) -> ReadFile:
    """One array: tensorstore opens the file for each."""
    record = ReadRecord(size_bytes, (Seek(0, size_bytes),))
    return ReadFile(path, (offset_bytes,), (record,), "direct", (Call(Kind.FSTAT, path),))


def _whole(path: Path) -> ReadFile:
    return _read(path, 0, path.size_bytes)
