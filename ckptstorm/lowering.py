"""From a layout's steps to op tables: the one place that knows block sizes, buffers and kernel limits."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ckptstorm.buffering import largest, read_ops, split, streamed, write_ops
from ckptstorm.program import OP_DTYPE, SYNCS, Kind, Ops, Path, Program, TorchPart, open_length
from ckptstorm.steps import Call, Calls, Draft, Facts, ReadFile, Record, WriteFile, WriterApi

Int64s = NDArray[np.int64]

#: What `Program.in_step` replaces: (the storm's root, the step directory).
DIRECTORIES = ("", "step-0")

#: What a library's calls are named in the op table; what is not here keeps its name.
_KINDS: dict[Calls, dict[Kind, Kind]] = {
    "posix": {},
    "mpi": {Kind.WRITE: Kind.MPI_WRITE_AT, Kind.READ: Kind.MPI_READ_AT},
    "mpi_all": {Kind.WRITE: Kind.MPI_WRITE_AT_ALL, Kind.READ: Kind.MPI_READ_AT_ALL},
    "h5": {Kind.WRITE: Kind.H5_WRITE, Kind.READ: Kind.H5_READ},
    "h5_all": {Kind.WRITE: Kind.H5_WRITE, Kind.READ: Kind.H5_READ},
    "torch": {},
}
_FILE_SYNCS = (Kind.FSYNC, Kind.FDATASYNC)

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY


def lower(draft: Draft, facts: Facts) -> Program:
    """The op table of one thread.

    Args:
        draft: what the framework does, in order.
        facts: of the target and of [io].

    Returns:
        A program whose directories are placeholders until `Program.in_step`.
    """
    table = _Table(facts)
    for index, item in enumerate(draft):
        if isinstance(item, WriteFile):
            table.write_file(item)
        elif isinstance(item, ReadFile):
            table.read_file(item)
        else:
            # Only a new name asks what comes later; thousands of stats must not copy the draft each.
            table.call(item, draft[index + 1 :] if item.kind in (Kind.RENAME, Kind.LINK) else ())
    return table.program()


def record_writes(record: Record, api: WriterApi, facts: Facts) -> dict[Kind, list[int]]:
    """Lengths of the write ops of one flushed record that starts with an empty buffer."""
    assert record.is_flushed
    if facts.calls == "torch":
        kind = Kind.TORCH_SAVE if record.data else Kind.WRITE
        return {kind: [length for _, length in record.data] or [record.size_bytes]}
    lengths = write_ops((record,), api, facts)[0]
    if api != "ofstream":
        return {call_kind(Kind.WRITE, facts): lengths}
    parts = [call[1] for call in streamed((record,), largest(facts))]
    both = list(zip(lengths, parts, strict=True))
    return {Kind.WRITE: [length for length, many in both if not many], Kind.WRITEV: [n for n, many in both if many]}


def file_sync(facts: Facts, is_synced: bool) -> Kind | None:  # noqa: FBT001 - the layout's own wish, as data
    """What is called before a written file is closed, when the layout itself syncs it or does not."""
    if facts.durability == "layout":
        return call_kind(Kind.FSYNC, facts) if is_synced else None
    asked = {"fsync": Kind.FSYNC, "fdatasync": Kind.FDATASYNC}.get(facts.durability)
    return None if asked is None else call_kind(asked, facts)


def call_kind(kind: Kind, facts: Facts) -> Kind:
    """The kind of a call on an open file when the calls are a library's."""
    if facts.calls.startswith("mpi") and kind in _FILE_SYNCS:
        return Kind.MPI_SYNC
    return _KINDS[facts.calls].get(kind, kind)


def padding_count(file: WriteFile, facts: Facts) -> int:
    """Empty calls that a rank makes so that collective ones keep step with those of the rank that has most."""
    if not facts.calls.endswith("_all") or not file.path.is_shared:
        return 0
    return len(write_ops(file.longest, file.api, facts)[0]) - len(write_ops(file.records, file.api, facts)[0])


class _Table:
    """Rows so far, as blocks of arrays, and the paths that they name."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._paths: dict[Path, int] = {}
        self._blocks: list[Ops] = []

    def program(self) -> Program:
        # Told the dtype, NumPy does not look for a common one of 100,000 blocks: a quarter of the time.
        ops = np.concatenate(self._blocks, dtype=OP_DTYPE) if self._blocks else np.empty(0, OP_DTYPE)
        return Program(ops, tuple(self._paths), DIRECTORIES)

    def call(self, call: Call, later: Draft) -> None:
        """A namespace or sync call, as the durability asked for makes it."""
        durability = self._facts.durability
        if call.kind in SYNCS and durability == "none":
            return
        target = self._file(call.target) if call.target is not None else 0
        self._row(call.kind, call.path, target, call.mode or call.length_bytes, call.expect, call.flags)
        if call.kind in (Kind.RENAME, Kind.LINK) and durability not in ("layout", "none"):
            assert call.target is not None
            directory = Path(call.target.directory_index, os.path.dirname(call.target.name))
            # A new name is durable only when its directory is.
            if not any(isinstance(item, Call) and item.kind is Kind.FSYNC_DIR for item in later):
                self._row(Kind.FSYNC_DIR, directory)

    def write_file(self, file: WriteFile) -> None:
        """Open, writes, sync, close; with the layout's own sync before what is still in the buffer."""
        flags = file.open_flags | (os.O_DSYNC if self._facts.durability == "odsync" else 0)
        self._row(Kind.OPEN, file.path, 0, open_length(flags, file.mode))
        for index, call in enumerate(file.opening):
            self.call(call, file.opening[index + 1 :])
        if self._is_torch(file):
            self._torch_saves(file)
            self._row_of_sync(file)
            self._row(Kind.CLOSE, file.path)
            return
        written, held = write_ops(file.records, file.api, self._facts)
        sync = file_sync(self._facts, file.is_synced)
        if self._facts.durability != "layout":
            written, held = written + held, []
        if file.stride_bytes:
            self._strided(file)
        else:
            self._append(file.path, written, file.offset_bytes)
        if file.api == "ofstream" and written:
            self._gather(file)
        self._pad(Kind.WRITE, file.path, padding_count(file, self._facts))
        if sync is not None:
            self._row(sync, file.path)
        # Python writes what an unflushed buffer holds at close: the framework's fsync came too early.
        self._append(file.path, held, file.offset_bytes + sum(written))
        for index, call in enumerate(file.closing):
            self.call(call, file.closing[index + 1 :])
        self._row(Kind.CLOSE, file.path)

    def _is_torch(self, file: WriteFile) -> bool:
        """Whether the file's records are made by calls of PyTorch; what commits is never flushed, or small."""
        return self._facts.calls == "torch" and all(record.is_flushed for record in file.records)

    def _row_of_sync(self, file: WriteFile) -> None:
        if (sync := file_sync(self._facts, file.is_synced)) is not None:
            self._row(sync, file.path)

    def _torch_saves(self, file: WriteFile) -> None:
        """A call a tensor, or one for all of them; what is no tensor is written as it is."""
        start = file.offset_bytes
        for record in (each for each in file.records for _ in range(each.count)):
            if not record.data:
                self._row(Kind.WRITE, file.path, start, record.size_bytes)
            self._torch_rows(Kind.TORCH_SAVE, file.path, start, record.data, file.api)
            start += record.size_bytes

    def _torch_rows(self, kind: Kind, path: Path, start: int, data: tuple[tuple[int, int], ...], api: str) -> None:
        part = TorchPart.OF_PATH if api == "ofstream" else TorchPart.OF_STREAM
        for index, (offset, length) in enumerate(data):
            if len(data) == 1 and api == "python":
                self._row(kind, path, start, length)
                continue
            self._row(kind, path, start + offset, length, flags=part + (index == len(data) - 1))

    def _gather(self, file: WriteFile) -> None:
        """Mark which of the writes just appended are writev, and of how many parts."""
        parts = [call[1] for call in streamed(file.records, largest(self._facts))]
        self._blocks[-1]["flags"] = parts
        self._blocks[-1]["kind"] = np.where(np.array(parts) > 0, Kind.WRITEV, Kind.WRITE)

    def _strided(self, file: WriteFile) -> None:
        """Each record at its own place, a stride after the one before."""
        assert file.api == "direct"
        start = file.offset_bytes
        for record in file.records:
            lengths = np.array(split(record.pieces, largest(self._facts)), dtype=np.int64)
            within = np.cumsum(lengths) - lengths
            places = start + file.stride_bytes * np.arange(record.count, dtype=np.int64)
            offsets = (places[:, None] + within[None, :]).reshape(-1)
            self._data(Kind.WRITE, file.path, offsets, np.tile(lengths, record.count))
            start += file.stride_bytes * record.count

    def _append(self, path: Path, lengths: list[int], start: int) -> None:
        if lengths:
            ends = np.cumsum(np.array(lengths, dtype=np.int64))
            self._data(Kind.WRITE, path, start + np.concatenate(([0], ends[:-1])), np.diff(ends, prepend=0))

    def read_file(self, file: ReadFile) -> None:
        self._row(Kind.OPEN, file.path, 0, open_length(os.O_RDONLY))
        for index, call in enumerate(file.opening):
            self.call(call, file.opening[index + 1 :])
        if self._facts.calls == "torch" and all(record.data or len(record.seeks) == 1 for record in file.records):
            self._torch_loads(file)
            self._row(Kind.CLOSE, file.path)
            return
        offsets, lengths = read_ops(file, self._facts)
        self._data(Kind.MMAP_READ if file.api == "mmap" else Kind.READ, file.path, offsets, lengths)
        if self._facts.calls.endswith("_all") and file.path.is_shared:
            whole = replace(file, offsets_bytes=(0,) * len(file.longest), records=file.longest)
            self._pad(Kind.READ, file.path, len(read_ops(whole, self._facts)[1]) - len(lengths))
        self._row(Kind.CLOSE, file.path)

    def _torch_loads(self, file: ReadFile) -> None:
        # `torch.load` is given a whole file by its path, and a part of one as an open file.
        api = (
            "ofstream"
            if file.offsets_bytes == (0,) and file.records[0].size_bytes == file.path.size_bytes
            else "python"
        )
        for start, record in zip(file.offsets_bytes, file.records, strict=True):
            if not record.data:
                self._row(Kind.READ, file.path, start, record.size_bytes)
            self._torch_rows(Kind.TORCH_LOAD, file.path, start, record.data, api)

    def _pad(self, kind: Kind, path: Path, count: int) -> None:
        self._data(kind, path, np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64))

    def _file(self, path: Path) -> int:
        return self._paths.setdefault(path, len(self._paths))

    def _row(self, kind: Kind, path: Path, offset: int = 0, length: int = 0, expect: int = 0, flags: int = 0) -> None:
        row = (int(kind), flags, expect, self._file(path), offset, length)
        self._blocks.append(np.array([row], dtype=OP_DTYPE))

    def _data(self, kind: Kind, path: Path, offsets: Int64s, lengths: Int64s) -> None:
        block = np.zeros(len(lengths), dtype=OP_DTYPE)
        block["kind"], block["file"] = int(call_kind(kind, self._facts)), self._file(path)
        block["offset_bytes"], block["length_bytes"] = offsets, lengths
        self._blocks.append(block)
