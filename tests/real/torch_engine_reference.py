"""PyTorch in the loop: all ranks of a small job, saved and restored by the torch engine; strace may watch.

argv: a directory, then "layout:sharding" as often as wanted; each gets a directory of its own in it. Started by
an interpreter that has torch, with the package on its path.
"""

import json
import os
import sys

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.torch import TorchEngine
from ckptstorm.job import IoTable, Job, LayoutTable, ModelTable, ParallelTable
from ckptstorm.model.parallel import World
from ckptstorm.payload import Payload
from ckptstorm.plan import facts_of, plan
from ckptstorm.sinks import KeepTimes
from ckptstorm.steps import Meet
from ckptstorm.storm.lowered import lowered

RANK_COUNT = 2
MODEL = ModelTable(architecture="llama", layers=2, hidden=192, ffn=512, heads=4, kv_heads=2, vocab=97)


def job(layout, sharding, engine="torch"):
    """The job that both sides of the comparison are of."""
    return Job(
        model=MODEL,
        layout=LayoutTable(name=layout),
        parallel=ParallelTable(sharding=sharding),
        io=IoTable(engine=engine),
    )


def segments(asked, rank, phase, block_size_bytes):
    """Programs between one meet and the next."""
    facts, parts = facts_of(asked, block_size_bytes), [[]]
    for stage in lowered(getattr(plan(asked, World(RANK_COUNT, RANK_COUNT), rank), phase), facts, asked.io):
        if isinstance(stage, Meet):
            parts.append([])
        else:
            parts[-1] += stage.programs
    return parts


def run(asked, phase, root_fd, block_size_bytes):
    """(bytes verified, reads that differed) of a phase of all ranks, meet by meet."""
    ranks = [segments(asked, rank, phase, block_size_bytes) for rank in range(RANK_COUNT)]
    verified = differing = 0
    for at in range(len(ranks[0])):
        for program in (program for parts in ranks for program in parts[at]):
            prepared, sink = TorchEngine(Setup(root_fd)).prepare(program, Payload(3, 1)), KeepTimes(len(program.ops))
            done, results = prepared.run(sink, 0, len(program.ops)), sink.times.result
            notes = prepared.finish()
            fine = (results == program.expected_bytes()) | (-results == program.ops["expect"].astype("i8"))
            assert done == len(program.ops) and fine.all(), program.ops[~fine]
            verified, differing = verified + notes.verified_bytes, differing + notes.mismatch_count
    return verified, differing


def main():
    """Prints, as JSON, what the restore of each verified."""
    found = {}
    for case in sys.argv[2:]:
        place = f"{sys.argv[1]}/{case.replace(':', '-')}"
        os.mkdir(place)
        root_fd, asked = os.open(place, os.O_RDONLY | os.O_DIRECTORY), job(*case.split(":"))
        block_size_bytes = os.stat(place).st_blksize
        run(asked, "save", root_fd, block_size_bytes)
        found[case] = run(asked, "restore", root_fd, block_size_bytes)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
