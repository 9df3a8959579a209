"""Whole storms through a real mpiexec: what is on disk, what is reported, what is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ckptstorm.job import Job
from ckptstorm.jobfile import decode
from ckptstorm.payload import Payload
from ckptstorm.plan import World, facts_of, plan
from ckptstorm.program import Path as FilePath
from ckptstorm.storm.lowered import lowered, programs_of
from tests.conftest import TINY, clean_environment

pytestmark = pytest.mark.mpi


def _phase(data, phase, round_number=1):
    return next(entry for entry in data["phases"] if (entry["phase"], entry["round"]) == (phase, round_number))


def _job(text=TINY) -> Job:
    return decode(text, "test")


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_storm_moves_exactly_what_was_planned(storm, place, ranks):
    """Bytes, ops and syncs of both phases equal the plan of all ranks; nothing but the result is left."""
    ended = storm(ranks=ranks)
    assert ended.code in (0, 1), ended.said
    world, facts = World(ranks, ranks), facts_of(_job(), 4096)
    for phase in ("save", "restore"):
        programs = [
            program
            for rank in range(ranks)
            for program in programs_of(lowered(getattr(plan(_job(), world, rank), phase), facts, _job().io))
        ]
        found = _phase(ended.data, phase)
        assert sum(int(program.expected_bytes().sum()) for program in programs) == found["bytes"]
        ops = found["data_op_count"] + found["metadata_op_count"] + found["sync_count"]
        assert sum(len(program.ops) for program in programs) == ops
        assert found["error_count"] == 0
    assert {"job.toml", "results"} == set(os.listdir(place))
    assert ended.data["receipts"]["verified"]["state"] == "all"
    assert ended.data["receipts"]["durable"]["state"] == "yes"


def test_kept_files_hold_the_payload_and_are_cleaned_by_name(storm, ckptstorm, place):
    """Names are DCP's; every byte is the payload's; `clean` removes ours and leaves a stranger's file."""
    ended = storm("--keep-files", ranks=2)
    assert ended.code in (0, 1), ended.said
    step = place / "ckptstorm-data" / "step-0"
    assert {".metadata", "__0_0.distcp", "__1_0.distcp"} == {entry.name for entry in step.iterdir()}
    content = np.fromfile(step / "__1_0.distcp", dtype=np.uint8)
    stamp_storm = int(content[8:16].view("<u8")[0])
    expected = np.empty_like(content)
    Payload(stamp_storm, 1).image(FilePath(1, "__1_0.distcp", 1)).fill(expected, 0)
    assert (content == expected).all()

    refused = storm()
    assert refused.code == 2
    assert "still holds the files of storm" in refused.err
    assert "ckptstorm clean" in refused.err

    (step / "thesis.txt").write_text("mine")
    cleaned = ckptstorm("clean", "ckptstorm-data")
    assert cleaned.code == 0
    assert "left alone" in cleaned.out
    assert os.listdir(place / "ckptstorm-data") == ["step-0"]
    assert os.listdir(step) == ["thesis.txt"]


def test_rounds_warm_up_and_keep(storm, place):
    """Warm-up rounds are marked and not counted; old checkpoints go as a phase of their own."""
    job = TINY.replace("rounds = 1", "rounds = 2\nwarmup = 1\nkeep = 1")
    ended = storm(job=job)
    assert ended.code in (0, 1), ended.said
    rounds = [(entry["phase"], entry["round"]) for entry in ended.data["phases"]]
    assert [entry for entry in rounds if entry[0] in ("save", "restore")] == [
        ("save", 0),
        ("restore", 0),
        ("save", 1),
        ("restore", 1),
        ("save", 2),
        ("restore", 2),
    ]
    assert [number for phase, number in rounds if phase == "delete"] == [1]
    assert [number for phase, number in rounds if phase == "clean up"] == [1, 2]


def test_overwrite_saves_into_one_directory(storm, place):
    """With overwrite every round uses the same step; the last one can be kept."""
    job = TINY.replace("rounds = 1", "rounds = 2") + "[layout]\noverwrite = true\n"
    ended = storm("--keep-files", job=job)
    assert ended.code in (0, 1), ended.said
    assert [entry.name for entry in (place / "ckptstorm-data").iterdir() if entry.is_dir()] == ["step-0"]


def test_file_per_rank_with_plain_bytes(storm):
    """A layout of one stream a rank and a model of plain bytes."""
    job = TINY[: TINY.index("[model]")] + '[model]\nshard_bytes = "300001"\n[layout]\nname = "file_per_rank"\n'
    ended = storm(job=job)
    assert ended.code in (0, 1), ended.said
    assert _phase(ended.data, "save")["bytes"] == 2 * 300_001


def test_a_planted_straggler_is_in_the_headline_and_named(storm, place, ckptstorm):
    """4 s planted on one of two ranks: the save takes them, and the report says who."""
    fault = '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\ndelay = "4s"\n'
    ended = storm(job=TINY + fault)
    assert ended.code == 1 or ended.code == 0
    save = _phase(ended.data, "save")
    assert 4.0 <= save["seconds"] < 8.0
    assert save["last_done_s"] >= 4.0 > save["first_done_s"]
    (folder,) = (place / "results").iterdir()
    assert "straggler  rank 1 on" in ckptstorm("report", str(folder)).out


def test_coordination_is_a_number_of_its_own(storm, place, ckptstorm):
    """Rank 1's sync takes 4 s: rank 0 is done before, and waits for it in DCP's gather of the results."""
    fault = '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\ndelay = "4s"\n'
    ended = storm(job=TINY + fault)
    assert ended.code in (0, 1), ended.said
    save = _phase(ended.data, "save")
    assert save["coordination_max_s"] >= 0.9 * save["tail_s"] > 0
    assert save["coordination_median_s"] < save["coordination_max_s"]
    assert save["coordination_share"] == pytest.approx(save["coordination_max_s"] / save["seconds"])
    (folder,) = (place / "results").iterdir()
    said = " ".join(ckptstorm("report", str(folder)).out.split())
    assert re.search(r"coordination \S+ \w+ on the median rank, at most \d\.\d+ s: \d+ % of T", said), said


def test_a_planted_error_fails_the_storm_and_is_named(storm, place):
    """EIO at a rank's fsync: exit code 3, the class, rank and file in the record, nothing published, all cleaned."""
    fault = '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\nerrno = "EIO"\n'
    ended = storm(job=TINY + fault)
    assert ended.code == 3
    told = json.dumps(ended.data["verdict"])
    assert "EIO" in told
    assert "rank 1" in told
    assert "__1_0.distcp" in told
    assert {"job.toml", "results"} == set(os.listdir(place))


def test_continue_goes_on_with_the_next_round(storm):
    """on_error = "continue": a failed round counts as failed, the next one is run and measured."""
    fault = '[[fault]]\nranks = [0]\nphase = "save"\nop = "fsync"\nnth = 1\nround = 1\nerrno = "EIO"\n'
    job = TINY.replace("rounds = 1", 'rounds = 2\non_error = "continue"') + fault
    ended = storm(job=job)
    assert ended.code == 3
    assert _phase(ended.data, "save", 2)["error_count"] == 0


def test_a_stuck_rank_is_named_and_the_partial_record_can_be_read(storm, place, ckptstorm):
    """No progress for the time-out: rank, host, op, file; exit code 4; the journal is a record; clean works."""
    fault = '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\nround = 2\ndelay = "60s"\n'
    job = TINY.replace("rounds = 1", 'rounds = 2\ntimeout = "2s"') + fault
    begun = time.monotonic()
    ended = storm(job=job)
    assert ended.code == 4
    assert time.monotonic() - begun < 40
    assert f"rank 1 on {os.uname().nodename} made no progress in the save for 2." in ended.err
    assert "fsync of __1_0.distcp" in ended.err
    (partial,) = (place / "results").glob("*.partial")
    reported = ckptstorm("report", str(partial), "--json")
    assert reported.code == 4
    assert _phase(reported.data, "save", 1)["bytes"] > 0
    assert ckptstorm("clean", "ckptstorm-data").code == 0
    assert not (place / "ckptstorm-data").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_the_storm_in_order(place, number):
    """Ctrl-C, SIGTERM and a batch system's SIGUSR1: 130, partial results kept, the directory gone."""
    fault = '[[fault]]\nranks = [0]\nphase = "save"\nop = "fsync"\nround = 2\ndelay = "60s"\n'
    (place / "job.toml").write_text(TINY.replace("rounds = 1", "rounds = 2") + fault)
    command = [sys.executable, "-P", "-m", "ckptstorm", "run", "job.toml", "--ranks", "2", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(), cwd=place
    ) as process:
        deadline = time.monotonic() + 60
        while not list(place.glob("results/*.partial/phase-00003")) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    data = json.loads(out)
    assert not data["verdict"]["valid"]
    assert _phase(data, "restore", 1)["bytes"] > 0
    assert {"job.toml", "results"} == set(os.listdir(place))
    assert len(list((place / "results").iterdir())) == 1


def test_the_null_engine_measures_the_instrument(storm, place):
    """Nothing is written; the record is never valid, says why, and that is no failure."""
    ended = storm("--set", "io.engine=null")
    assert ended.code == 0, ended.said
    assert not ended.data["verdict"]["valid"]
    assert "INSTRUMENT" in json.dumps(ended.data["verdict"]["reasons"])
    assert {"job.toml", "results"} == set(os.listdir(place))


def test_durability_none_is_said(storm):
    """Without syncs the headline may not say durable, and the drain is measured."""
    ended = storm("--set", "io.durability=none")
    assert ended.code in (0, 1), ended.said
    assert ended.data["receipts"]["durable"]["state"] == "not_asked"
    assert _phase(ended.data, "save")["sync_count"] == 0
    assert _phase(ended.data, "settle")["sync_count"] == 1


def test_a_wrong_byte_on_the_way_back_is_found(place):
    """A bit flipped between save and restore: exit code 3, file and offset named."""
    (place / "job.toml").write_text(TINY)
    script = Path(__file__).with_name("flip_a_bit.py")
    mpiexec = Path(sys.executable).parent / "mpiexec"
    ended = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, "-P", "-m", "mpi4py", script, "run", "job.toml", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        env=clean_environment(),
        cwd=place,
        check=False,
    )
    assert ended.returncode == 3, ended.stderr
    told = ended.stdout
    assert "step-0/__1_0.distcp at offset 123456" in told
    assert "this storm, round 1, rank 1, this file" in told


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_raises_ends_all_by_name(place, rank):
    """A bug in an engine on one rank: all ranks end within seconds, and the rank and host are named."""
    (place / "job.toml").write_text(TINY)
    script = Path(__file__).with_name("raise_on_a_rank.py")
    mpiexec = Path(sys.executable).parent / "mpiexec"
    begun = time.monotonic()
    ended = subprocess.run(
        [mpiexec, "-n", "3", sys.executable, "-P", "-m", "mpi4py", script, "run", "job.toml"],
        capture_output=True,
        text=True,
        timeout=60,
        env=clean_environment() | {"RAISE_ON_RANK": str(rank)},
        cwd=place,
        check=False,
    )
    assert ended.returncode == 4
    assert time.monotonic() - begun < 20
    assert f"rank {rank} on {os.uname().nodename} raised" in ended.stderr
    assert "planted bug" in ended.stderr
