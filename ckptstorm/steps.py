"""What a layout asks of one rank, before the target's block size is known: runs and meets.

A plan is a value: it can be printed, compared, hashed and tested for 100,000 ranks on a laptop.
Only `lowering` turns it into op tables, and only it knows block sizes and kernel limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ckptstorm.program import Kind, Path

#: How the framework's own buffers turn its write and read calls into system calls.
#:   python  a buffered Python file object (buffer of st_blksize bytes)
#:   direct  every call is one system call
#:   rust_8k, rust_1m  a Rust BufWriter of that many bytes (its default, and safetensors 0.8's)
#:   ofstream  a C++ file stream: 8191 bytes, and writev
WriterApi = Literal["python", "direct", "rust_8k", "rust_1m", "ofstream"]
#: mmap: the file is mapped, and each range is touched and copied.
ReaderApi = Literal["python", "direct", "mmap"]


@dataclass(frozen=True, slots=True)
class Call:
    """A namespace or sync call: mkdir, stat, rename, unlink, fsync_dir … or one on an open file: truncate, fadvise …

    Attributes:
        kind: what.
        path: on what.
        target: rename and link: to what.
        expect: the errno that is no error here (EEXIST of N-1 mkdirs); 0: none.
        mode: mkdir: the directory's mode.
        length_bytes: truncate: the new size; fadvise: how much, from the start.
        flags: fadvise: the advice.
    """

    kind: Kind
    path: Path
    target: Path | None = None
    expect: int = 0
    mode: int = 0
    length_bytes: int = 0
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Record:
    """One stored item, as the sizes of the write calls that the framework makes for it.

    Attributes:
        pieces: bytes of each write call, in order.
        is_flushed: whether the framework flushes its buffer after the item.
        count: how many such records follow one another (a run length).
        tensor_count: tensors in one such record: 1, or 0 for blobs and metadata.
        data: (offset in the record, bytes) of each tensor's own bytes, in formats of PyTorch; no
            part of what makes two records equal.
    """

    pieces: tuple[int, ...]
    is_flushed: bool = True
    count: int = 1
    tensor_count: int = 1
    data: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    @property
    def size_bytes(self) -> int:
        """Bytes of one such record on disk."""
        return sum(self.pieces)


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file, or one rank's part of it, written in order: open, records, sync, close.

    Attributes:
        path: with the complete size of the file.
        records: in file order.
        api: whose buffering turns the pieces into system calls.
        is_synced: whether the framework calls fsync before close (and, when its last record is not
            flushed, before what the buffer still holds: a file object writes that at close).
        open_flags: O_ flags of the open.
        mode: permissions that the open asks for.
        offset_bytes: where the first record goes; above 0 when several ranks share the file.
        stride_bytes: from the start of one record to the start of the next; 0: one follows the other.
        opening: calls after the open and before the first write (truncate).
        closing: calls after the sync and before the close (a rename of the open file).
        longest: of a file that all ranks share: the records of the rank that has most of them, with
            whose calls the others' collective ones keep step.
    """

    path: Path
    records: tuple[Record, ...]
    api: WriterApi
    is_synced: bool
    open_flags: int
    mode: int = 0o666
    offset_bytes: int = 0
    stride_bytes: int = 0
    opening: tuple[Call, ...] = ()
    closing: tuple[Call, ...] = ()
    longest: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class Seek:
    """A read call at a place, and how the framework asks.

    Attributes:
        offset_bytes: where the framework stands when it calls, from the start of the item.
        length_bytes: how much it asks for.
        way: "readinto" hands its own memory, "read" asks for bytes, "peek" looks at what the buffer
            holds and fills it only when it is empty (Python buffers these differently).
    """

    offset_bytes: int
    length_bytes: int
    way: Literal["readinto", "read", "peek"] = "readinto"


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """The read calls that a framework makes to get one stored item back.

    A file holds many items of few sizes, so one such value stands for all items of a size.

    Attributes:
        size_bytes: of the item on disk; no call reaches beyond it.
        seeks: the calls, in order.
        data: as `Record.data`.
    """

    size_bytes: int
    seeks: tuple[Seek, ...]
    data: tuple[tuple[int, int], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file opened, its items read in this order, and closed.

    Attributes:
        path: with its complete size.
        offsets_bytes: where each item starts in the file.
        records: how each item is read; as long as `offsets_bytes`.
        api: whose buffering turns the calls into system calls.
        opening: calls after the open and before the first read (fstat, fadvise).
        longest: as `WriteFile.longest`.
    """

    path: Path
    offsets_bytes: tuple[int, ...]
    records: tuple[ReadRecord, ...]
    api: ReaderApi
    opening: tuple[Call, ...] = ()
    longest: tuple[ReadRecord, ...] = ()


Draft = tuple[Call | WriteFile | ReadFile, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Ops to run: one draft a thread."""

    drafts: tuple[Draft, ...]
    part: Literal["data", "commit"] = "data"


#: Who meets: all ranks of the phase, or those that differ from one another in this coordinate only (data:
#: in data, context and expert).
Scope = Literal["world", "tensor", "pipeline", "data"]
SCOPES: tuple[Scope, ...] = ("world", "tensor", "pipeline", "data")


@dataclass(frozen=True, slots=True)
class Meet:
    """A collective inside the framework's save or restore; its time is coordination, not I/O.

    Attributes:
        kind: what the framework calls.
        scope: who takes part.
        bytes_per_rank: what each rank sends (gather) or receives (scatter, bcast).
        why: one phrase for the plan's printout ("plans to rank 0").
    """

    kind: Literal["barrier", "gather", "scatter", "bcast"]
    why: str
    scope: Scope = "world"
    bytes_per_rank: int = 0


Step = Run | Meet


@dataclass(frozen=True, slots=True)
class RankPlan:
    """All that one rank does in one round.

    Attributes:
        rank: whose plan.
        save: steps up to and including the commit.
        restore: steps of the recovery.
        created: every file that this rank creates, relative to the step directory, for clean-up.
    """

    rank: int
    save: tuple[Step, ...]
    restore: tuple[Step, ...]
    created: tuple[str, ...] = field(default=())


#: Whose calls move the data: the kernel's, or those of a library that an engine makes. "…_all": each
#: call on a shared file is one of all ranks.
Calls = Literal["posix", "mpi", "mpi_all", "h5", "h5_all", "torch"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What lowering must know of the target and of `[io]`.

    Attributes:
        block_size_bytes: st_blksize of the target.
        durability: what must be true before a save counts as done.
        transfer_bytes: largest data op; 0 means the layout's own.
        calls: whose calls move the data.
    """

    block_size_bytes: int
    durability: Literal["layout", "none", "fdatasync", "fsync", "odsync"] = "layout"
    transfer_bytes: int = 0
    calls: Calls = "posix"
