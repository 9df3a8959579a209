"""Random I/O: reads and writes of blocks of a file, or of one file that all ranks share.

The span is cut into slots of the largest block; an op covers the beginning of a slot. So a permutation of the
slots never writes a byte twice in one round, whatever the sizes.
"""

from __future__ import annotations

import errno
import hashlib
import os

import numpy as np

from ckptstorm.errors import JobError
from ckptstorm.load_tables import RandomLoad, name_of
from ckptstorm.loads import offsets
from ckptstorm.loads.contract import (
    HOMELESS,
    RING_OPS,
    Created,
    Footprint,
    Stage,
    Thread,
    Uncounted,
    members,
    takes_part,
)
from ckptstorm.loads.random_ring import Ring, draw_ring
from ckptstorm.model.parallel import World
from ckptstorm.program import OP_DTYPE, STEP, Kind, Ops, Path, Program, op, open_length, table
from ckptstorm.steps import Meet
from ckptstorm.units import MIB, bytes_text, bytes_word

#: Prefilling writes pieces of this size: large enough for any storage, small enough for any node.
_FILL_BYTES = 4 * MIB
#: What O_DIRECT needs at the least: a sector.
_SECTOR_BYTES = 512
_BUFFERS_PER_OP = 2
_SLOTS_LIMIT = 1 << 60


class RandomIo:
    """See the module's docstring; `contract.Load`."""

    is_kept = True

    def __init__(self, load: RandomLoad, world: World) -> None:
        self._load, self._world = load, world
        self._members = members(load, world)
        self._slot_bytes = max(load.block.most_bytes, 1)
        stride = self._slot_bytes + (int(load.gap) if load.order == "gaps" else 0)
        self._stride_bytes = stride
        self._span_bytes = int(load.span) * (len(self._members) if load.file == "shared" else 1)
        # Unaligned ops are shifted by less than a slot, so the last one must have room for that.
        self._slot_count = max(self._span_bytes // stride - (0 if load.aligned else 1), 0)

    def check(self) -> None:
        """See `contract.Load.check`."""
        load, where = self._load, f"[[load]] {name_of(self._load)}"
        if load.read_percent is not None and load.access != "mixed":
            raise JobError(f'{where} read_percent: means something to access = "mixed" only', "leave it out")
        if load.block.least_bytes < 1:
            raise JobError(f"{where} block: a block has at least one byte", 'allowed: "512", "4KiB", "4KiB..64KiB" …')
        if self._slot_count < 1:
            raise JobError(
                f"{where} span = {bytes_word(int(load.span))}: no block fits into it",
                f"a block takes up to {bytes_text(self._stride_bytes)} here: make the span larger",
            )
        if load.direct and any(least % _SECTOR_BYTES or most % _SECTOR_BYTES for least, most, _ in load.block.parts):
            raise JobError(f"{where} direct = true: block sizes must be multiples of {_SECTOR_BYTES}")
        if load.direct and not load.aligned:
            raise JobError(f"{where} direct = true: aligned = false contradicts it", "leave one of them out")
        if load.amount is not None and load.duration is not None:
            raise JobError(f"{where} amount and duration contradict each other", "keep one of them")
        if load.amount is not None and load.amount < load.block.most_bytes:
            raise JobError(f"{where} amount: less than one block", "make it larger")
        if load.fsync_every and load.access == "read":
            raise JobError(f'{where} fsync_every: means nothing to access = "read"', "leave it out")
        if self._reads and load.prefilled is False:
            raise JobError(f"{where} prefilled = false: there would be nothing to read", "leave it out")
        if load.verify and load.content == "repeated":
            raise JobError(f'{where} verify = true: content = "repeated" proves nothing', 'set content = "own"')

    @property
    def _reads(self) -> bool:
        return self._load.access != "write"

    @property
    def _writes(self) -> bool:
        return self._load.access != "read"

    @property
    def _actions(self) -> tuple[str, ...]:
        syncs = ("fsync",) if self._load.fsync_every else ()
        return (*(("read",) if self._reads else ()), *(("write",) if self._writes else ()), *syncs)

    def created(self, rank: int) -> Created:
        """See `contract.Load.created`."""
        if not takes_part(self._load, rank):
            return Created()
        if self._load.file == "shared":
            return Created((self._file(rank),) if rank == self._members[0] else ())
        return Created((self._file(rank),))

    def _file(self, rank: int) -> str:
        return "shared.dat" if self._load.file == "shared" else f"rank-{rank:05d}.dat"

    def _path(self, rank: int) -> Path:
        owner = self._members[0] if self._load.file == "shared" else rank
        return Path(STEP, self._file(rank), owner, self._span_bytes)

    # ---- before ------------------------------------------------------------------------------------------

    def prepare(self, rank: int) -> Uncounted:
        """The files at their full size; filled where something will be read."""
        make: tuple[Program, ...] = ()
        fill: tuple[Program, ...] = ()
        if self.created(rank).files:
            make = (self._make_program(rank),)
        if takes_part(self._load, rank) and (self._load.prefilled or self._reads):
            fill = (self._fill_program(rank),)
        return Uncounted((make, Meet("barrier", "files made"), fill), (self._file(rank),) if fill else ())

    def _make_program(self, rank: int) -> Program:
        size = self._span_bytes
        rows = [
            op(Kind.OPEN, 0, length_bytes=open_length(os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
            op(Kind.FALLOCATE, 0, 0, size, expect=errno.EOPNOTSUPP),
            op(Kind.TRUNCATE, 0, length_bytes=size),
            op(Kind.CLOSE, 0),
        ]
        return Program(table(rows), (self._path(rank),), HOMELESS)

    def _fill_program(self, rank: int) -> Program:
        """This rank's part of the file, in order, then an fsync."""
        span = int(self._load.span)
        base = self._members.index(rank) * span if self._load.file == "shared" else 0
        starts = np.arange(0, span, _FILL_BYTES, dtype=np.int64)
        ops = np.zeros(len(starts) + 3, dtype=OP_DTYPE)
        ops["kind"] = Kind.WRITE
        ops["offset_bytes"][1:-2] = base + starts
        ops["length_bytes"][1:-2] = np.minimum(span - starts, _FILL_BYTES)
        ops[0] = op(Kind.OPEN, 0, length_bytes=open_length(os.O_WRONLY))
        ops[-2], ops[-1] = op(Kind.FSYNC, 0), op(Kind.CLOSE, 0)
        return Program(ops, (self._path(rank),), HOMELESS)

    # ---- stages ------------------------------------------------------------------------------------------

    def stage_count(self) -> int:
        """One, and one that reads back what was written when that is to be verified."""
        return 2 if self._load.verify and self._writes else 1

    def stage(self, rank: int, index: int, done: tuple[int, ...] = ()) -> Stage:
        """See `contract.Load.stage`."""
        name, load = name_of(self._load), self._load
        threads = range(load.threads) if takes_part(load, rank) else range(0)
        cold = (self._file(rank),) if len(threads) and not load.warm else ()
        if index:
            readers = tuple(self._verifier(rank, number, done[number]) for number in threads)
            planned = sum(int(reader.program.expected_bytes().sum()) for reader in readers)
            return Stage(f"{name} verify", ("read",), readers, planned, verify_share=1.0, dropped=cold, is_paced=False)
        rings = [self._ring(rank, number) for number in threads]
        planned = 0 if load.duration else sum(ring.planned_bytes(self._ops_per_thread()) for ring in rings)
        return Stage(
            name,
            self._actions,
            tuple(self._thread(rank, number, ring) for number, ring in zip(threads, rings, strict=True)),
            planned,
            int(load.duration or 0),
            int(load.ramp),
            load.mode,
            load.direct,
            load.queue_depth,
            1.0 if load.verify else 0.0,
            load.content,
            cold,
        )

    def _ops_per_thread(self) -> int:
        """Data ops of one thread of a load that ends by amount."""
        whole = int(self._load.amount or self._load.span) / self._load.block.mean_bytes
        return max(int(whole / self._load.threads), 1)

    def _ring(self, rank: int, thread: int) -> Ring:
        count = RING_OPS if self._load.duration else min(self._ops_per_thread(), RING_OPS)
        return draw_ring(self._load, count, np.random.default_rng(self._key(rank, thread)))

    def _thread(self, rank: int, number: int, ring: Ring) -> Thread:
        load, is_writer = self._load, self._writes
        flags = (os.O_RDWR if is_writer else os.O_RDONLY) | (os.O_DIRECT if load.direct else 0)
        tail = [op(Kind.FSYNC, 0)] if load.final_fsync and is_writer else []
        head = table([op(Kind.OPEN, 0, length_bytes=open_length(flags))])
        rows: Ops = np.zeros(len(ring.kinds), dtype=OP_DTYPE)
        rows["kind"], rows["length_bytes"] = ring.kinds, ring.lengths
        rows["offset_bytes"] = self._offsets(rank, number, ring, 0)
        program = Program(
            np.concatenate([head, rows, table([*tail, op(Kind.CLOSE, 0)])]), (self._path(rank),), HOMELESS
        )
        words = [Kind(int(kind)).word for kind in (Kind.READ, Kind.WRITE, Kind.FSYNC)]
        index = {Kind[word.upper()]: self._actions.index(word) for word in words if word in self._actions}
        action_of = np.array([index.get(Kind(kind), 0) for kind in range(1, max(Kind) + 1)], dtype=np.uint8)
        return Thread(
            program,
            1,
            1 + len(rows),
            action_of[ring.kinds - 1],
            np.ones(len(rows), dtype=np.bool_),
            None if load.duration else ring.op_limit(self._ops_per_thread()),
            lambda lap: self._offsets(rank, number, ring, lap),
        )

    def _offsets(self, rank: int, thread: int, ring: Ring, lap: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """Per op of the ring, where it goes in that lap."""
        load, streams = self._load, self._load.threads
        number = thread
        if load.file == "shared":
            number, streams = self._members.index(rank) * load.threads + thread, streams * len(self._members)
        turns = lap * ring.data_count + np.arange(ring.data_count, dtype=np.uint64)
        key = self._key(0 if load.file == "shared" else rank, -1)
        count = self._slot_count
        if load.order in ("sequential", "gaps"):
            slots = (turns + np.uint64(number * count // streams)) % np.uint64(count)
        else:
            draw = {
                "permutation": lambda: offsets.permuted(key, count),
                "uniform": lambda: offsets.uniform(key, count),
                "zipf": lambda: offsets.zipf(key, count, load.theta),
            }[load.order]()
            slots = draw(turns * np.uint64(streams) + np.uint64(number))
        found = np.zeros(len(ring.kinds), dtype=np.uint64)
        found[ring.is_data] = slots * np.uint64(self._stride_bytes) + np.uint64(self._shift(rank))
        return found

    def _shift(self, rank: int) -> int:
        """What puts unaligned ops off every boundary: an odd number below the slot's size."""
        if self._load.aligned or self._slot_bytes < 2:
            return 0
        return self._key(rank, -2) % (self._slot_bytes // 2) * 2 + 1

    def _key(self, rank: int, thread: int) -> int:
        seed = f"{name_of(self._load)}/{self._load.seed}/{rank}/{thread}".encode()
        return int.from_bytes(hashlib.blake2b(seed, digest_size=7).digest(), "little")

    def _verifier(self, rank: int, number: int, done: int) -> Thread:
        """Reads of all that a thread wrote, each place once, in file order."""
        ring = self._ring(rank, number)
        laps = range(-(-done // len(ring.kinds)))
        where = [self._offsets(rank, number, ring, lap) for lap in laps] or [np.zeros(0, dtype=np.uint64)]
        is_write = np.tile(ring.kinds == Kind.WRITE, len(laps))[:done]
        starts = np.concatenate(where)[:done][is_write]
        lengths = np.tile(ring.lengths, len(laps))[:done][is_write]
        in_order = np.lexsort((-lengths, starts))
        first = in_order[np.unique(starts[in_order], return_index=True)[1]]  # of one place the longest write
        ops: Ops = np.zeros(len(first) + 2, dtype=OP_DTYPE)
        ops["kind"] = Kind.READ
        ops["offset_bytes"][1:-1], ops["length_bytes"][1:-1] = starts[first], lengths[first]
        ops[0], ops[-1] = op(Kind.OPEN, 0, length_bytes=open_length(os.O_RDONLY)), op(Kind.CLOSE, 0)
        count = len(first)
        none = np.zeros(count, dtype=np.uint8)
        program = Program(ops, (self._path(rank),), HOMELESS)
        return Thread(program, 1, 1 + count, none, np.ones(count, dtype=np.bool_), count)

    # ---- counts ------------------------------------------------------------------------------------------

    def footprint(self) -> Footprint:
        """See `contract.Load.footprint`."""
        load, ranks = self._load, len(self._members)
        ops = 0 if load.duration else self._ops_per_thread() * load.threads * ranks
        ring = RING_OPS if load.duration else min(self._ops_per_thread(), RING_OPS)
        return Footprint(
            int(load.span) * ranks,
            (1 if load.file == "shared" else ranks) + 1,
            _BUFFERS_PER_OP * self._slot_bytes * load.queue_depth * load.threads,
            ring * (OP_DTYPE.itemsize + 2) * load.threads,
            ((name_of(load), ops),),
        )
