"""The job: the question a storm answers, as one frozen value (docs/job.md is made from these types).

Tables are structs that refuse unknown keys. A field's comment line is its documentation.
Defaults are what a user gets who leaves the key out.
Reading a job file, with every error that can hide in one, is in `jobfile`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ckptstorm.clock import NS_PER_S
from ckptstorm.load_tables import Load, Rate, Sizes
from ckptstorm.pacing import Rounds, Skew, Stagger
from ckptstorm.units import Bytes, Duration, Percent, duration_word

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class SizeOrLayout(Bytes):
    """A size, or "layout" (held as 0)."""

    word = "layout"


class SizeOrAuto(Bytes):
    """A size, or "auto" (held as 0)."""

    word = "auto"


class StormTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[storm]: how often, and when it is over."""

    rounds: Rounds = Rounds(3)  # measured rounds, one save with its restore each; "until 5%": until the median is sure
    warmup: Natural = 0  # rounds before them that are run and not counted
    duration: Duration = Duration(0)  # measured rounds go on for that long; `rounds` is then the most there may be
    interval: Duration = Duration(0)  # from the release of one save to the release of the next
    keep: Count = 1  # checkpoints kept while the storm runs; older ones are deleted, as a phase of its own
    skew: Skew = Skew("0s")  # how late ranks come to a save: a distribution, drawn anew each round
    stagger: Stagger = Stagger("0s")  # turns that nodes or ranks take on purpose, in saves and restores
    staging: Bytes = Bytes(0)  # asynchronous saves: host memory of a rank that shards are copied into; 0: none
    step: Duration = Duration(NS_PER_S)  # a training step, simulated while a staged save drains
    visibility: bool = True  # after each commit one rank of every node looks until it sees the new checkpoint
    around: Duration = Duration(2 * NS_PER_S)  # loads beside a save run by themselves for so long before and after it
    control: bool = True  # with loads beside: each round saves once without them first, to tell what they cost
    timeout: Duration = Duration(600 * NS_PER_S)  # longest time without progress of a rank; then it is named
    on_timeout: Literal["stop", "wait"] = "stop"  # what then; wait: named again and again, and waited for
    on_error: Literal["stop", "continue"] = "stop"  # after a round in which the storage failed
    allow: tuple[Literal["tmpfs", "warm"], ...] = ()  # what would else make the record invalid


class ModelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[model]: what is saved: a name, or an architecture with its constants, or plain bytes."""

    name: str | None = None  # a model of `ckptstorm list models`
    architecture: Literal["llama", "gpt", "mixtral", "deepseek"] | None = None
    shard_bytes: Bytes | None = None  # every rank saves one tensor of this size
    layers: Count | None = None
    hidden: Count | None = None
    ffn: Count | None = None  # width of the (dense) feed-forward part
    heads: Count | None = None
    kv_heads: Count | None = None  # llama, mixtral; as many as heads when left out
    vocab: Count | None = None
    context_length: Count | None = None  # gpt: rows of the position embedding
    experts: Count | None = None  # mixtral, deepseek
    moe_ffn: Count | None = None  # deepseek: width of one expert
    dense_layers: Natural | None = None  # deepseek: leading layers without experts
    mtp_layers: Natural | None = None  # deepseek: multi-token-prediction layers
    states: Literal["fp32", "bf16"] = "fp32"  # fp32: weight, exp_avg, exp_avg_sq of 4 bytes; bf16: of 2 bytes


class ParallelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[parallel]: how the model is cut; data parallelism is what is left of the ranks."""

    ranks: Count | None = None  # the first so many save, and the others wait; all when left out
    tensor: Count = 1
    pipeline: Count = 1
    context: Count = 1
    expert: Count = 1
    replicas: Count = 1  # of an HSDP shard
    sharding: Literal["ddp", "fsdp2", "hsdp", "zero1", "zero2", "zero3", "distributed_optimizer"] = "fsdp2"


class LayoutTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[layout]: the framework's file format; its own options stand beside the name."""

    name: str = "dcp"
    overwrite: bool = False  # every round saves into the same step directory
    stripe: dict[str, Any] | None = None  # set on the directory before the first file; keys below
    options: dict[str, Any] = {}  # the layout's own keys, checked by the layout


class IoTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[io]: how the bytes move."""

    engine: str = "auto"
    mode: Literal["sync", "libaio", "io_uring", "mmap", "independent", "collective"] = "sync"
    hints: dict[str, str] = {}  # mpiio: handed to MPI.File.Open, such as { cb_nodes = "4" }
    direct: bool = False  # O_DIRECT
    queue_depth: Count = 1
    threads: Count = 1  # I/O threads per rank: the files of a run are dealt to them
    transfer: SizeOrLayout = SizeOrLayout(0)  # largest data op: a size, or "layout": what the layout asks for
    coalesce: Bytes = Bytes(0)  # merge small appends into transfers of this size, aligned to it
    block_size: SizeOrAuto = SizeOrAuto(0)  # a size instead of the target's st_blksize, or "auto"
    memory_pressure: Percent = Percent(0)  # memory of each node in use while the storm runs, as "80%"; 0%: what is so
    durability: Literal["layout", "none", "fdatasync", "fsync", "odsync"] = "layout"


class RestoreParallelTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[restore.parallel]: the world that restores, when it is another one; a key left out is as in [parallel]."""

    ranks: Count | None = None  # the first so many restore, and the others wait; as many as save when left out
    tensor: Count | None = None
    pipeline: Count | None = None
    context: Count | None = None
    expert: Count | None = None
    replicas: Count | None = None
    sharding: Literal["ddp", "fsdp2", "hsdp", "zero1", "zero2", "zero3", "distributed_optimizer"] | None = None


class RestoreTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[restore]: who reads what back."""

    from_: Literal["auto", "own", "other-node"] = msgspec.field(default="auto", name="from")
    verify: Literal["all"] | Share = "all"  # or the share of the reads that is checked
    parallel: RestoreParallelTable = RestoreParallelTable()  # another world: the MPI world is the larger of both


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[fault]]: planted on purpose; the record says so."""

    ranks: tuple[Natural, ...]
    phase: Literal["save", "restore"]
    op: str  # an op kind: open, write, fsync …
    round: Count | None = None  # measured round, from 1; every round when left out
    nth: Count = 1  # the nth such op of the rank in that phase
    file: str = "*"  # a shell pattern over the file's name
    delay: Duration | None = None  # how much longer the op takes, or how long before what follows
    errno: str | None = None  # how the op ends instead of being made: "EIO", "ENOSPC" …
    kill: Literal[True] | None = None  # the rank kills itself (SIGKILL) before the op; a new world then recovers
    stop: Literal[True] | None = None  # the rank stops itself (SIGSTOP) before the op; after the time-out likewise


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole job file, with every default filled in."""

    storm: StormTable = StormTable()
    model: ModelTable = ModelTable()
    parallel: ParallelTable = ParallelTable()
    layout: LayoutTable = LayoutTable()
    io: IoTable = IoTable()
    restore: RestoreTable = RestoreTable()
    slo: dict[str, Any] = {}  # limits by plain keys, understood by `slo`
    load: tuple[Load, ...] = ()
    fault: tuple[Fault, ...] = ()

    @property
    def saves(self) -> bool:
        """Whether there is a checkpoint at all: a job of loads only names no model."""
        return not self.load or self.model != ModelTable()


def to_builtins(job: Job) -> dict[str, Any]:
    """The resolved job as plain values (JSON-ready); `jobfile.from_builtins` is the way back.

    Keys that a table leaves unset (None) are dropped: absent means absent.
    """
    tables = {field.name: plain(getattr(job, field.name)) for field in msgspec.structs.fields(job)}
    tables["layout"] |= tables["layout"].pop("options", {})
    return tables


def plain(value: Any) -> Any:
    """A value of a job as TOML or JSON would hold it."""
    if isinstance(value, msgspec.Struct):
        tag = {value.__struct_config__.tag_field: value.__struct_config__.tag} if value.__struct_config__.tag else {}
        pairs = ((field.encode_name, getattr(value, field.name)) for field in msgspec.structs.fields(value))
        # A table that says nothing is left out too, but for those of a list.
        held = ((name, plain(inner)) for name, inner in pairs if inner is not None)
        return tag | {name: inner for name, inner in held if inner != {}}
    if isinstance(value, Sizes | Rate):
        return value.plain()
    if isinstance(value, tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, Duration):
        return duration_word(value)
    if isinstance(value, Percent):
        return f"{100 * value:.6g}%"
    if isinstance(value, Rounds | Skew | Stagger):
        return value.plain()
    if isinstance(value, SizeOrLayout | SizeOrAuto) and value == 0:
        return value.word
    return int(value) if isinstance(value, Bytes) else value


def verify_share(job: Job) -> float:
    """The share of the restore's reads that is compared with what was written, 0 to 1."""
    return 1.0 if job.restore.verify == "all" else float(job.restore.verify)
