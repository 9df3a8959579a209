"""What ranks do together in an engine with a communicator: started by mpiexec, one word of argv says what.

Exits with 0 when all holds on every rank. It needs NumPy, mpi4py and the engine's library only, so that it
also runs under an interpreter whose h5py was built with MPI.
"""

import importlib
import os
import sys

from mpi4py import MPI

from ckptstorm.engines.contract import Setup
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program, op, open_length, table
from ckptstorm.sinks import STOP, KeepTimes

ENGINES = {"mpiio": "ckptstorm.engines.mpiio:MpiioEngine", "hdf5": "ckptstorm.engines.hdf5:Hdf5Engine"}
BLOCK = 100_003
PAYLOAD = Payload(storm=5, round_index=1)
COMM = MPI.COMM_WORLD


def programs(name, mode, blocks_of):
    """(save, restore) of this rank: its blocks in turn with the others', empty calls behind where collective."""
    is_all = mode == "collective"
    write, read = {
        ("mpiio", False): (Kind.MPI_WRITE_AT, Kind.MPI_READ_AT),
        ("mpiio", True): (Kind.MPI_WRITE_AT_ALL, Kind.MPI_READ_AT_ALL),
        ("hdf5", False): (Kind.H5_WRITE, Kind.H5_READ),
        ("hdf5", True): (Kind.H5_WRITE, Kind.H5_READ),
    }[name, is_all]
    own, most = blocks_of[COMM.rank], max(blocks_of)
    size = COMM.size * most * BLOCK
    path = Path(1, "shared", 0, size, is_shared=True)
    empty = most - own if is_all else 0

    def blocks(kind):
        rows = [op(kind, 0, (index * COMM.size + COMM.rank) * BLOCK, BLOCK) for index in range(own)]
        return [*rows, *[op(kind, 0, 0, 0)] * empty]

    opened = open_length(os.O_WRONLY | os.O_CREAT)
    sync = Kind.MPI_SYNC if name == "mpiio" else Kind.FSYNC
    save = [op(Kind.OPEN, 0, length_bytes=opened), *blocks(write), op(sync, 0), op(Kind.CLOSE, 0)]
    restore = [op(Kind.OPEN, 0, length_bytes=open_length(os.O_RDONLY)), *blocks(read), op(Kind.CLOSE, 0)]
    return tuple(Program(table(rows), (path,), ("", "step-1")) for rows in (save, restore))


def run(engine, program, is_stopped=False):
    """(ops done, results, notes)."""
    prepared, sink = engine.prepare(program, PAYLOAD), KeepTimes(len(program.ops))
    sink.control[STOP] = int(is_stopped)
    done = prepared.run(sink, 0, len(program.ops))
    return done, sink.times.result.tolist(), prepared.finish()


def main():
    """argv: engine, mode, what ("whole", or "stopped": rank 1 stops before its first op), directory."""
    name, mode, what, directory = sys.argv[1:]
    module, _, cls = ENGINES[name].partition(":")
    root_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    engine = getattr(importlib.import_module(module), cls)(Setup(root_fd, mode=mode, comm=COMM))
    blocks_of = [3 - rank % 3 for rank in range(COMM.size)]
    save, restore = programs(name, mode, blocks_of)
    if COMM.rank == 0:
        os.makedirs(f"{directory}/step-1", exist_ok=True)
    COMM.Barrier()
    is_stopped = what == "stopped" and COMM.rank == 1
    done, results, _ = run(engine, save, is_stopped)
    if is_stopped:
        assert done == 0, done
    else:
        assert (done, results) == (len(save.ops), save.expected_bytes().tolist()), results
    if what == "stopped":
        return
    done, results, notes = run(engine, restore)
    assert (done, results) == (len(restore.ops), restore.expected_bytes().tolist()), results
    assert (notes.mismatch_count, notes.verified_bytes) == (0, blocks_of[COMM.rank] * BLOCK), notes


if __name__ == "__main__":
    main()
