"""Hugging Face safetensors: a model's bf16 weights written by rank 0, mapped by every rank that loads them.

The save of `save_pretrained` and the load of `from_pretrained`: what a training job publishes, and what
a thousand inference servers read at once. Nothing is synced; with writer 0.8 each file appears by a
rename, before the files after it are written, so a reader can find half a model without its index.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from ckptstorm.errors import JobError
from ckptstorm.layouts.contract import Census, LayoutOptions, Pointer, Reader, Scene, first_apart
from ckptstorm.layouts.formats.safetensors_io import INDEX_NAME, ModelFile, index_bytes, model_files, split
from ckptstorm.layouts.options import size_option
from ckptstorm.program import STEP, Kind, Path
from ckptstorm.steps import Call, Draft, Meet, ReadFile, ReadRecord, Record, Run, Seek, Step, WriteFile, WriterApi

_TRUNCATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
# Rust's tempfile: nobody else may have made the file, or read it.
_EXCLUSIVE, _EXCLUSIVE_MODE = os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600


class SafetensorsOptions(LayoutOptions, frozen=True, forbid_unknown_fields=True):
    """[layout] keys of "safetensors"."""

    #: Largest file: "5GB" is the default of transformers 4, "50GB" that of transformers 5.
    shard_size: str | int = "5GB"
    #: safetensors 0.8 (a temporary file, a buffer of 1 MiB, a rename), or 0.5 to 0.7 (in place, 8 KiB).
    writer: Literal["0.8", "0.7"] = "0.8"
    #: "mmap" as safetensors does; "pread" as loaders that read past it do.
    read_mode: Literal["mmap", "pread"] = "mmap"


class SafetensorsLayout:
    """`model-00001-of-00004.safetensors` … and their index, or one `model.safetensors`."""

    Options: ClassVar[type[LayoutOptions]] = SafetensorsOptions
    pointer: ClassVar[Pointer | None] = Pointer(INDEX_NAME, "marker")

    def __init__(self, scene: Scene, options: Any) -> None:
        self._scene = scene
        self._options: SafetensorsOptions = options
        self._shard_bytes = size_option("shard_size", self._options.shard_size)

    def check(self) -> None:
        """Refuse what is no model: shards of plain bytes have no tensors to name."""
        if self._scene.model.architecture == "opaque":
            raise JobError(
                '[model] shard_bytes is not planned for [layout] name = "safetensors": a header names tensors',
                'give [model] name (ckptstorm list models), or choose [layout] name = "file_per_rank"',
            )

    def save(self, rank: int) -> tuple[Step, ...]:
        """Steps of `rank`: rank 0 gathers the weights and writes all files, then the index; others wait."""
        gather = Meet("gather", "weights to rank 0 (over the network: not moved here)")
        written = Meet("barrier", "rank 0 has written the model")
        if rank > 0:
            return (gather, written)
        directory = Path(STEP, "")
        opening = (Call(Kind.MKDIR, directory, expect=errno.EEXIST, mode=0o777), Call(Kind.READDIR, directory))
        return (
            Run((opening,)),
            gather,
            Run((tuple(self._write(index, file) for index, file in enumerate(self._files)),)),
            *((Run((self._index_write,), part="commit"),) if self._is_split else ()),
            written,
        )

    def restore(self, rank: int) -> tuple[Step, ...]:
        """Steps that load the whole model, the same on every rank: index, then each file's header and tensors."""
        return self._restore

    def resharded(self, scene: Scene) -> Reader:
        """Every rank of any world maps all files."""
        return SafetensorsLayout(scene, self._options)

    def created(self, rank: int) -> tuple[str, ...]:
        """Rank 0 makes all files, temporary ones included."""
        if rank > 0:
            return ()
        names = [file.name for file in self._files] + [INDEX_NAME] * self._is_split
        temporary = [_temporary_name(index) for index in range(len(self._files))] if self._is_renamed else []
        return (*temporary, *names)

    def save_classes(self) -> tuple[tuple[int, int], ...]:
        """Rank 0 writes; all others wait."""
        return first_apart(self._scene.rank_count)

    def restore_classes(self) -> tuple[tuple[int, int], ...]:
        """All ranks load the same."""
        return ((0, self._scene.rank_count),)

    def census(self) -> Census:
        """Counts of the one rank that writes."""
        records = Counter[Record]()
        for file in self._files:
            for record in file.records(self._api):
                records[Record(record.pieces, tensor_count=record.tensor_count)] += record.count
        sizes = np.zeros(self._scene.rank_count, dtype=np.int64)
        sizes[0] = sum(file.size_bytes for file in self._files)
        return Census(
            records=records,
            file_bytes=sizes,
            file_count=len(self._files),
            commit_bytes=self._index_path.size_bytes if self._is_split else 0,
            commit_files=int(self._is_split),
        )

    @property
    def _is_renamed(self) -> bool:
        return self._options.writer == "0.8"

    @property
    def _api(self) -> WriterApi:
        return "rust_1m" if self._is_renamed else "rust_8k"

    @cached_property
    def _files(self) -> tuple[ModelFile, ...]:
        return model_files(split(self._scene.model.tensors(), self._shard_bytes))

    @property
    def _is_split(self) -> bool:
        return len(self._files) > 1

    @cached_property
    def _index_path(self) -> Path:
        return Path(STEP, INDEX_NAME, 0, index_bytes(split(self._scene.model.tensors(), self._shard_bytes)))

    @property
    def _index_write(self) -> Draft:
        record = Record((self._index_path.size_bytes,), tensor_count=0)
        return (WriteFile(self._index_path, (record,), "direct", False, _TRUNCATE),)

    def _write(self, index: int, file: ModelFile) -> WriteFile:
        final = Path(STEP, file.name, 0, file.size_bytes)
        if not self._is_renamed:
            return WriteFile(final, file.records(self._api), self._api, False, _TRUNCATE)
        temporary = Path(STEP, _temporary_name(index), 0, file.size_bytes, content=file.name)
        return WriteFile(
            temporary,
            file.records(self._api),
            self._api,
            False,
            _EXCLUSIVE,
            mode=_EXCLUSIVE_MODE,
            opening=(Call(Kind.TRUNCATE, temporary, length_bytes=file.size_bytes),),
            closing=(Call(Kind.RENAME, temporary, target=final),),
        )

    @cached_property
    def _restore(self) -> tuple[Step, ...]:
        reads: list[ReadFile] = []
        if self._is_split:
            reads.append(ReadFile(self._index_path, (0,), (_whole(self._index_path.size_bytes),), "direct"))
        for file in self._files:
            reads += _mapped(file) if self._options.read_mode == "mmap" else _read(file)
        return (Run((tuple(reads),)), Meet("barrier", "all ranks have the model"))


def _temporary_name(index: int) -> str:
    """A name like tempfile's six random letters, but one that clean-up knows beforehand."""
    return f".tmp{index:06d}"


def _whole(size_bytes: int) -> ReadRecord:
    return ReadRecord(size_bytes, (Seek(0, size_bytes),))


def _tensors(file: ModelFile) -> tuple[tuple[int, ...], tuple[ReadRecord, ...]]:
    """(offsets, reads) of the tensors of a file."""
    sizes = np.array(file.tensor_bytes, dtype=np.int64)
    offsets = file.header_bytes + np.cumsum(sizes) - sizes
    made = {size: _whole(size) for size in set(file.tensor_bytes)}
    return tuple(offsets.tolist()), tuple(made[size] for size in file.tensor_bytes)


def _mapped(file: ModelFile) -> list[ReadFile]:
    """safetensors maps the file for its header, PyTorch opens and maps it again for the tensors."""
    parsed = Path(STEP, file.name, 0, file.size_bytes)
    # The same file, open twice at once in reality: a second path, whose bytes are those of the first.
    loaded = Path(STEP, file.name, 0, file.size_bytes, content=file.name)
    advice = Call(Kind.FADVISE, loaded, length_bytes=file.size_bytes, flags=os.POSIX_FADV_SEQUENTIAL)
    return [
        ReadFile(parsed, (0,), (_whole(file.header_bytes),), "mmap", (Call(Kind.FSTAT, parsed),)),
        ReadFile(loaded, *_tensors(file), "mmap", (Call(Kind.FSTAT, loaded), advice)),
    ]


def _read(file: ModelFile) -> list[ReadFile]:
    path = Path(STEP, file.name, 0, file.size_bytes)
    offsets, records = _tensors(file)
    header = _whole(file.header_bytes)
    return [ReadFile(path, (0, *offsets), (header, *records), "direct", (Call(Kind.FSTAT, path),))]
