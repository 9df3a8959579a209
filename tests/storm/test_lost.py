"""Ranks that die, are stopped, or hang, in real storms: who is named, what is kept, what is left behind."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import numpy as np
import pytest

from ckptstorm.clock import NS_PER_S
from ckptstorm.cluster.slots import GONE, SLOT_DTYPE, Ages, State, process_letter, process_start
from ckptstorm.errors import LostRankError
from ckptstorm.measure.rows import Phase
from ckptstorm.program import Kind
from ckptstorm.storm.forebodings import Forebodings
from ckptstorm.storm.lookout import Names, Patience
from ckptstorm.storm.lost import Finder
from tests.conftest import TINY
from tests.services.fuse_fault import fault_fs
from tests.storm.victims import victim

HOST = os.uname().nodename
#: Rank 1 stays at its fsync for as long as the test needs it.
HELD = TINY + '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\ndelay = "50s"\n'


def _own_segments():
    """Names in /dev/shm that a storm of ours could leave: its board; an MPI segment is looked for by its inode."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("ckptstorm-")}


def _mapped_names(process):
    """Shared-memory files of an MPI library that a rank has mapped under a name that stands."""
    mapped = re.findall(r"(/dev/shm/mpich_shm_\S+)$", Path(f"/proc/{process.pid}/maps").read_text(), re.MULTILINE)
    return {path for path in mapped if os.path.exists(path)}


@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_is_named_and_what_is_known_is_kept(place, ckptstorm, rank):
    """kill -9 in a save: rank, host, op and file; exit code 4; a partial record; nothing left; clean works."""
    before = _own_segments()
    job = HELD.replace("rounds = 1", "rounds = 2").replace("ranks = [1]", f"ranks = [{rank}]\nround = 2")
    with victim(place, job, "--json") as storm:
        storm.until("results/*.partial/phase-0000[34]")
        storm.until("ckptstorm-data/step-1")
        time.sleep(1)
        assert _mapped_names(storm.rank(rank)) == set()
        storm.rank(rank).kill()
        assert storm.ends() == 4
        assert f"rank {rank} on {HOST} died in the save" in storm.err
        assert f"last seen at fsync of __{rank}_0.distcp" in storm.err
        data = storm.data
    assert [(phase["phase"], phase["round"]) for phase in data["phases"]][:2] == [("save", 1), ("settle", 1)]
    assert f"rank {rank} on {HOST} died" in data["ended_because"]
    (partial,) = (place / "results").glob("*.partial")
    reported = ckptstorm("report", str(partial), "--json")
    assert reported.code == 4
    assert reported.data == data
    assert ckptstorm("clean", "ckptstorm-data").code == 0
    assert not (place / "ckptstorm-data").exists()
    assert _own_segments() == before


@pytest.mark.mpi
def test_a_stopped_rank_is_named_after_the_time_out(place):
    """SIGSTOP of a rank that only waits for others: named, with what would wake it; all are ended."""
    job = HELD.replace("rounds = 1", 'rounds = 1\ntimeout = "2s"').replace('"50s"', '"1500ms"')
    with victim(place, job) as storm:
        storm.until("ckptstorm-data/step-0")
        storm.rank(2).suspend()
        assert storm.ends() == 4
        assert f"rank 2 on {HOST} made no progress in the save for 2." in storm.err
        assert "is stopped: kill -CONT wakes it" in storm.err


@pytest.mark.mpi
def test_a_stopped_rank_0_is_named_by_the_parent(place, ckptstorm):
    """Nobody among the ranks looks after rank 0 here: the parent does, and leaves the last words."""
    job = TINY.replace("rounds = 1", 'rounds = 1\ntimeout = "1s"')
    job += '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\ndelay = "900ms"\n'
    with victim(place, job) as storm:
        storm.until("ckptstorm-data/step-0")
        storm.rank(0).suspend()
        assert storm.ends() == 4
        assert f"rank 0 on {HOST} made no progress" in storm.err
    (partial,) = (place / "results").glob("*.partial")
    assert f"rank 0 on {HOST}" in ckptstorm("report", str(partial), "--json").data["ended_because"]


@pytest.mark.mpi
@pytest.mark.parametrize("rank", [0, 2])
def test_under_a_foreign_launcher_a_stopped_rank_is_named(place, ckptstorm, mpiexec, rank):
    """Rank 0 names the others, its deputy names rank 0; the partial folder's report says who; exit code 4."""
    job = HELD.replace("rounds = 1", 'rounds = 1\ntimeout = "2s"').replace('"50s"', '"1500ms"')
    with victim(place, job, launcher=(mpiexec, "-n", "3")) as storm:
        storm.until("ckptstorm-data/step-0")
        time.sleep(0.3)
        storm.rank(rank).suspend()
        assert storm.ends() == 4
        assert f"rank {rank} on {HOST} made no progress" in storm.err
    (partial,) = (place / "results").glob("*.partial")
    reported = ckptstorm("report", str(partial))
    assert reported.code == 4
    assert f"rank {rank} on {HOST} made" in " ".join(reported.out.split())
    assert ckptstorm("clean", "ckptstorm-data").code == 0


@pytest.mark.mpi
def test_waiting_names_the_rank_again_and_the_storm_goes_on(place):
    """on_timeout = "wait": named at each time-out, and when it goes on; the record tells of it; no exit code 4."""
    job = TINY.replace("rounds = 1", 'rounds = 1\ntimeout = "1s"\non_timeout = "wait"')
    job += '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\ndelay = "900ms"\n'
    with victim(place, job, "--json") as storm:
        storm.until("ckptstorm-data/step-0")
        storm.rank(1).suspend()
        storm.wait_for(lambda: storm.err.count("; waiting") >= 2, "a second naming")
        storm.rank(1).resume()
        assert storm.ends() in (0, 1)
        assert f"rank 1 on {HOST} goes on after" in storm.err
        data = storm.data
    (wait,) = data["environment"]["waits"]
    assert (wait["rank"], wait["host"]) == (1, HOST)
    assert wait["seconds"] >= 2
    assert data["ended"] == "complete"


@pytest.mark.mpi
def test_a_read_that_never_returns_is_named(place, ckptstorm):
    """A FUSE file system that does not answer one read: rank, file, offset and op; code 4; no process stays."""
    with fault_fs(place) as fs:
        fs.plant(ops=["read"], glob="*/__1_0.distcp", after_bytes=1 << 20, hold=True)
        job = TINY.replace("rounds = 1", 'rounds = 1\ntimeout = "3s"')
        with victim(place, job, "--dir", str(fs.mount / "data"), ranks=2) as storm:
            storm.until_said("made no progress in the restore")
            fs.release_after(12.0)
            assert storm.process.wait(timeout=60) == 4
            told = re.search(
                r"rank 1 on \S+ made no progress in the restore for \S+ s: read at offset (\d+) of", storm.err
            )
            assert told, storm.err
            assert "__1_0.distcp" in storm.err
            fs.clear()
            storm.wait_for_none_left()
        assert ckptstorm("clean", str(fs.mount / "data")).code == 0


def _lines(count):
    lines = np.zeros(count, dtype=SLOT_DTYPE)
    lines["rank"], lines["pid"], lines["phase"] = np.arange(count), 1000, Phase.SAVE
    lines["kind"], lines["process"], lines["state"] = Kind.WRITE, ord("S"), State.RUNNING
    return lines


def test_ages_count_from_the_last_change():
    """On the looker's clock: a first look is age 0, a change starts anew, another column has ages of its own."""
    ages, lines = Ages(), _lines(2)
    assert ages.look(lines, "beat", 100).tolist() == [0, 0]
    lines["beat"][1] = 5
    assert ages.look(lines, "beat", 150).tolist() == [50, 0]
    assert ages.look(lines, "ops_done", 150).tolist() == [0, 0]
    assert ages.look(lines, "beat", 170).tolist() == [70, 20]


def test_who_is_lost_and_how():
    """Dead at once; stopped and stuck after the time-out; silent only when nothing else explains it, and later."""
    finder, lines = Finder(2 * NS_PER_S, 3 * NS_PER_S), _lines(6)
    lines["process"][1], lines["process"][2] = GONE, ord("T")
    lines["state"][4], lines["state"][5] = State.WAITING, State.ENDED
    assert [(one.rank, one.how) for one in finder.find(lines, 0)] == [(1, "died")]
    lines["beat"][[0, 3]] += 1
    lines["ops_done"][0] += 1
    found = finder.find(lines, 3 * NS_PER_S)
    assert [(one.rank, one.how) for one in found] == [(1, "died"), (2, "stopped"), (3, "stuck")]
    lines["beat"][[0, 3]] += 1
    lines["ops_done"][0] += 1
    found = finder.find(lines, 6 * NS_PER_S)
    assert [(one.rank, one.how) for one in found] == [(1, "died"), (2, "stopped"), (3, "stuck"), (4, "silent")]
    assert "rank 3 on h made no progress in the save for 6.00 s: write" in found[2].sentence("h", "write")


def test_a_silent_node_is_foreboded_and_withdrawn(tmp_path, capsys):
    """All ranks of another node without a beat: said once, journalled; one silent rank, or our own node, is not."""
    lines = _lines(6)
    lines["node"] = [0, 0, 1, 1, 2, 2]
    forebodings = Forebodings(Names(lambda rank: f"h{rank}", lambda line: "an op"), tmp_path, 3 * NS_PER_S)
    assert forebodings.find(lines, 0) == []
    lines["beat"][4] += 1
    assert [one.rank for one in forebodings.find(lines, 3 * NS_PER_S)] == [2, 3]
    forebodings = Forebodings(Names(lambda rank: f"h{rank}", lambda line: "an op"), tmp_path, 1)
    for _ in range(3):
        forebodings.look(Phase.SAVE, 1, lines)
    assert capsys.readouterr().err.count("rank 2 on h2 has not answered") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["foreboding.json"]
    lines["beat"] += 1
    forebodings.look(Phase.SAVE, 1, lines)
    assert capsys.readouterr().err == "ckptstorm: all nodes answer again\n"
    assert list(tmp_path.iterdir()) == []


def test_patience_stops_or_waits():
    """Stop raises at once; wait tells once a time-out and when it is over; a dead rank is never waited for."""
    names, lines = Names(lambda rank: f"h{rank}", lambda line: "an op"), _lines(1)
    finder = Finder(NS_PER_S)
    finder.find(lines, 0)
    stuck = finder.find(lines, 2 * NS_PER_S)
    with pytest.raises(LostRankError, match="rank 0 on h0 made no progress"):
        Patience(names, NS_PER_S, "stop").judge(stuck)
    patience = Patience(names, NS_PER_S, "wait")
    assert len(patience.judge(stuck)) == 1
    assert patience.judge(finder.find(lines, int(2.5 * NS_PER_S))) == []
    assert len(patience.judge(finder.find(lines, int(3.5 * NS_PER_S)))) == 1
    assert "goes on after 3.5" in patience.judge([])[0]
    assert patience.waits[0]["seconds"] == 3.5
    lines["process"] = GONE
    with pytest.raises(LostRankError, match="died"):
        patience.judge(finder.find(lines, 4 * NS_PER_S))


def test_a_process_is_known_by_number_and_start():
    """Our own process lives; one of the same number that started at another time is gone."""
    letter, started = process_start(os.getpid())
    assert chr(letter) in "RS"
    assert process_letter(os.getpid(), started) in (ord("R"), ord("S"))
    assert process_letter(os.getpid(), started + 1) == GONE
    pid = os.spawnlp(os.P_NOWAIT, "true", "true")
    time.sleep(0.3)
    assert process_start(pid)[0] == GONE  # a zombie
    os.waitpid(pid, 0)
