"""fio job files: what their options mean here, and which have no meaning."""

from __future__ import annotations

import pytest

from ckptstorm.errors import JobError
from ckptstorm.foreign.fio import to_job
from ckptstorm.jobfile import decode, read_job

REFERENCE = """
; the reference of everybody
[global]
ioengine=libaio
direct=1
time_based
runtime=60
group_reporting
[randwrite]
rw=randwrite
bs=4k
size=1G
numjobs=8
iodepth=32
"""


def _load(tmp_path, text):
    (tmp_path / "x.fio").write_text(text)
    return decode(to_job(str(tmp_path / "x.fio")), "x").load


def test_the_reference_is_the_shipped_job(tmp_path):
    """randwrite, bs=4k, size=1G, numjobs=8, iodepth=32, libaio, direct=1, runtime=60 is random-4k but for its ramp."""
    (load,) = _load(tmp_path, REFERENCE)
    shipped = read_job("random-4k")[0].load[0]
    same = ("access", "block", "span", "mode", "direct", "queue_depth", "threads", "duration", "order")
    assert {key: getattr(load, key) for key in same} == {key: getattr(shipped, key) for key in same}
    assert load.name == "randwrite"


@pytest.mark.parametrize(
    ("options", "means"),
    [
        ("rw=randrw\nrwmixread=70", {"access": "mixed", "read_percent": 70, "order": "permutation"}),
        ("rw=randrw\nrwmixwrite=20", {"read_percent": 80}),
        ("rw=write\nbsrange=4k-64k\nend_fsync=1", {"access": "write", "order": "sequential", "final_fsync": True}),
        ("rw=randread\nnorandommap", {"order": "uniform"}),
        ("rw=randread\nrandom_distribution=zipf:1.2", {"order": "zipf", "theta": 1.2}),
        ("rw=randwrite\nfsync=16\nnumjobs=4", {"fsync_every": 16, "threads": 4, "span": 4 << 20}),
        ("rw=randwrite\nnumjobs=4\nfilename=/tmp/f", {"threads": 4, "span": 1 << 20}),
        (
            "rw=randwrite\nio_size=4m\nverify=crc32c\nbs_unaligned=1",
            {"amount": 4 << 20, "verify": True, "aligned": False},
        ),
        ("rw=read\ninvalidate=0\ntime_based=1\nruntime=500ms\nramp_time=2", {"warm": True, "duration": 5 * 10**8}),
    ],
)
def test_options_have_their_meaning(tmp_path, options, means):
    """Each as the load that it becomes."""
    (load,) = _load(tmp_path, f"[one]\nsize=1m\n{options}\n")
    assert {key: getattr(load, key) for key in means} == means


def test_sizes_with_weights_and_rates(tmp_path):
    """bssplit is a table of sizes; a rate of each job is one of the rank's threads together."""
    (load,) = _load(tmp_path, "[one]\nsize=64m\nrw=randread\nbssplit=4k/70:64k/30\nrate_iops=100\nnumjobs=3\n")
    assert load.block.plain() == {"4KiB": 70.0, "64KiB": 30.0}
    assert (load.rate.plain(), load.rate_per) == ("300/s", "rank")


def test_sections_that_wait_become_loads_one_after_the_other(tmp_path):
    """With stonewall; without it they would run side by side, which a job of loads that run alone cannot say."""
    two = "[a]\nsize=1m\nrw=write\n[b]\nsize=1m\nrw=randread\n"
    assert [load.name for load in _load(tmp_path, two + "stonewall\n")] == ["a", "b"]
    with pytest.raises(JobError, match=r"\[b\] it does not wait"):
        _load(tmp_path, two)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("rw=trim", "[x] rw = trim: known are"),
        ("rw=randread\nthinktime=10\nzonemode=zbd", "[x] thinktime = 10\n[x] zonemode = zbd"),
        ("rw=randread\niodepth=32", "iodepth = 32: only libaio and io_uring"),
        ("rw=randread\nioengine=rados", "ioengine = rados: known are"),
        ("rw=randread\nruntime=60", "runtime = 60 without time_based"),
        ("rw=randread\nbs=4k,8k", "bs = 4k,8k: one size"),
        ("rw=randread\nbs=four", "bs = four: not understood"),
        ("rw=randread\nnrfiles=10", "nrfiles = 10: only 1"),
    ],
)
def test_what_has_no_meaning_is_named(tmp_path, options, says):
    """Every such option, in one go."""
    with pytest.raises(JobError) as caught:
        _load(tmp_path, f"[x]\nsize=1m\n{options}\n")
    assert says in "\n".join(caught.value.lines())


def test_files_that_are_none(tmp_path):
    """Missing, no sections, no text, no size."""
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").write_text("[global]\nbs=4k\n")
    for name, says in (("absent", "cannot be read"), ("noise", "not a fio job file"), ("empty", "no job in it")):
        with pytest.raises(JobError, match=says):
            to_job(str(tmp_path / name))
    with pytest.raises(JobError, match="size is missing"):
        _load(tmp_path, "[x]\nrw=read\n")


def test_the_verb_prints_a_job_that_plans(ckptstorm, place):
    """`import job fio FILE` and `plan` of what it printed; a wrong tool and a wrong option end with exit code 2."""
    (place / "x.fio").write_text(REFERENCE)
    ended = ckptstorm("import", "job", "fio", "x.fio")
    assert ended.code == 0, ended.said
    (place / "x.toml").write_text(ended.out)
    assert "randwrite (random): all ranks, 8 threads each, for 60.0 s" in ckptstorm("plan", "x.toml").out
    (place / "y.fio").write_text("[x]\nsize=1m\nthinktime=5\n")
    ended = ckptstorm("import", "job", "fio", "y.fio")
    assert ended.code == 2
    assert "thinktime = 5" in ended.err
