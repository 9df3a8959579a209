"""Lowering: durability, the largest op, and file names that follow the step."""

import os

import numpy as np
import pytest

from ckptstorm.job import Job, ModelTable
from ckptstorm.layouts.formats.python_io import KERNEL_LIMIT_BYTES, Reader
from ckptstorm.lowering import lower
from ckptstorm.plan import World, plan
from ckptstorm.program import STEP, Kind, Path, open_flags
from ckptstorm.steps import Call, Facts, ReadFile, ReadRecord, Record, Run, Seek, WriteFile

SIZE = 10_000
FILE = Path(STEP, "shard.tmp", 3, SIZE)
DIRECTORY = Path(STEP, "")


def draft(**file):
    """A file of two records, renamed into place."""
    told = {"api": "python", "is_synced": True, "open_flags": os.O_WRONLY | os.O_CREAT, **file}
    return (
        WriteFile(FILE, (Record((704, 8000, 296)), Record((1000,), tensor_count=0)), **told),
        Call(Kind.RENAME, FILE, target=Path(STEP, "shard")),
    )


def kinds(program):
    """What each op does, in order."""
    return [Kind(kind) for kind in program.ops["kind"].tolist()]


# durability, whether the layout syncs: what follows the writes.
ENDINGS = {
    ("layout", True): [Kind.FSYNC, Kind.CLOSE, Kind.RENAME],
    ("layout", False): [Kind.CLOSE, Kind.RENAME],
    ("none", True): [Kind.CLOSE, Kind.RENAME],
    ("fsync", False): [Kind.FSYNC, Kind.CLOSE, Kind.RENAME, Kind.FSYNC_DIR],
    ("fdatasync", True): [Kind.FDATASYNC, Kind.CLOSE, Kind.RENAME, Kind.FSYNC_DIR],
    ("fdatasync", False): [Kind.FDATASYNC, Kind.CLOSE, Kind.RENAME, Kind.FSYNC_DIR],
    ("odsync", True): [Kind.CLOSE, Kind.RENAME, Kind.FSYNC_DIR],
}


@pytest.mark.parametrize(("durability", "is_synced"), ENDINGS)
def test_durability(durability, is_synced):
    """Each durability drops, keeps or adds the syncs that its name says; a rename's directory too."""
    program = lower(draft(is_synced=is_synced), Facts(4096, durability))
    ending = ENDINGS[durability, is_synced]
    assert kinds(program)[-len(ending) :] == ending
    assert kinds(program)[: -len(ending)] == [Kind.OPEN] + [Kind.WRITE] * 4
    flags, _ = open_flags(int(program.ops[0]["length_bytes"]))
    assert bool(flags & os.O_DSYNC) == (durability == "odsync")


def test_a_directory_is_synced_once():
    """A layout that syncs its directory after the rename gets no second sync."""
    steps = (*draft(), Call(Kind.FSYNC_DIR, DIRECTORY))
    assert kinds(lower(steps, Facts(4096, "fsync"))).count(Kind.FSYNC_DIR) == 1
    assert kinds(lower(steps, Facts(4096, "none"))).count(Kind.FSYNC_DIR) == 0


def test_buffer_shapes_the_writes():
    """A buffer of 4 KiB gives head, data and tail; one that holds the record gives one write; none is merged."""
    lengths = [lower(draft(), Facts(block)).ops["length_bytes"][1:-3].tolist() for block in (4096, 9000, 1 << 20)]
    assert lengths == [[704, 8000, 296, 1000], [9000, 1000], [9000, 1000]]


def test_direct_writes_are_the_layouts_own():
    """Without a buffer every piece is an op, whatever the block size."""
    assert lower(draft(api="direct"), Facts(4096)).ops["length_bytes"][1:-3].tolist() == [704, 8000, 296, 1000]


def test_unflushed_records_share_the_buffer():
    """Frames of a pickle are buffered together until they fill it."""
    frames = (Record((300,), is_flushed=False, count=5, tensor_count=0),)
    file = WriteFile(Path(STEP, "m", 0, 1500), frames, "python", False, os.O_WRONLY)
    lengths = lower((file,), Facts(1000)).ops["length_bytes"][1:-1].tolist()
    assert lengths == [900, 600]


def test_transfer_splits_both_ways():
    """No op is larger than [io] transfer, and together they cover the same bytes."""
    facts = Facts(4096, transfer_bytes=3000)
    save = lower(draft(), facts)
    writes = save.ops[save.ops["kind"] == Kind.WRITE]
    assert writes["length_bytes"].tolist() == [704, 3000, 3000, 2000, 296, 1000]
    assert writes["offset_bytes"].tolist() == [0, 704, 3704, 6704, 8704, 9000]
    read = lower((ReadFile(FILE, (0,), (ReadRecord(SIZE, (Seek(0, SIZE),)),), "direct"),), facts)
    assert [(row["offset_bytes"], row["length_bytes"]) for row in read.ops[1:-1]] == [
        (0, 3000), (3000, 3000), (6000, 3000), (9000, 1000),
    ]  # fmt: skip


@pytest.mark.parametrize("api", ["python", "direct"])
def test_limit_of_linux(api):
    """A tensor of 5 GB is written and read in calls that Linux can finish."""
    size = 5 * 10**9
    path = Path(STEP, "big", 0, size)
    save = lower((WriteFile(path, (Record((size,)),), api, False, os.O_WRONLY),), Facts(4096))
    restore = lower((ReadFile(path, (0,), (ReadRecord(size, (Seek(0, size),)),), api),), Facts(4096))
    for program in (save, restore):
        lengths = program.ops["length_bytes"][1:-1]
        assert lengths.max() == KERNEL_LIMIT_BYTES
        assert lengths.sum() == size
        assert len(lengths) == 3


def test_names_follow_the_step():
    """A rename's target is a path, and the step directory a placeholder."""
    program = lower(draft(), Facts(4096)).in_step("step-7")
    rename = program.ops[program.ops["kind"] == Kind.RENAME][0]
    assert program.location(int(rename["file"])) == "step-7/shard.tmp"
    assert program.location(int(rename["offset_bytes"])) == "step-7/shard"


def test_remembered_situations_are_the_real_ones():
    """Reads worked out once and reused are those of one reader that follows the whole file."""
    job = Job(model=ModelTable(name="gpt2-124m", layers=2))
    for block in (4096, 1 << 16, 1 << 20):
        for step in plan(job, World(3, 3), 2).restore:
            for file in step.drafts[0] if isinstance(step, Run) else ():
                reader = Reader(block, file.path.size_bytes, 0, 0, 0, [])
                for start, record in zip(file.offsets_bytes, file.records, strict=True):
                    reader.follow(record.seeks, start)
                ops = lower((file,), Facts(block)).ops[1:-1]
                mine = np.stack([ops["offset_bytes"], ops["length_bytes"]], axis=1).tolist()
                assert mine == [list(call) for call in reader.calls]


def test_a_sync_before_the_flush_misses_the_buffer():
    """A framework that syncs with bytes in its buffer syncs the rest only: as it does, unless more is asked."""
    frames = (Record((3000,), is_flushed=False, count=2, tensor_count=0),)
    file = WriteFile(Path(STEP, "m", 0, 6000), frames, "python", True, os.O_WRONLY)
    program = lower((file,), Facts(4096))
    assert kinds(program) == [Kind.OPEN, Kind.WRITE, Kind.FSYNC, Kind.WRITE, Kind.CLOSE]
    assert program.ops["offset_bytes"].tolist()[1:4] == [0, 0, 3000]
    assert kinds(lower((file,), Facts(4096, "fsync"))) == [Kind.OPEN, Kind.WRITE, Kind.WRITE, Kind.FSYNC, Kind.CLOSE]
