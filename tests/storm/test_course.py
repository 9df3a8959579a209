"""Whole storms whose rounds follow a plan: sure enough, long enough, late on purpose, asynchronous."""

from __future__ import annotations

import pytest

from tests.conftest import TINY

pytestmark = pytest.mark.mpi
S = 1_000_000_000


def _job(keys, rest=""):
    return TINY.replace("rounds = 1", keys) + rest


def _rounds(data, phase):
    return [entry for entry in data["phases"] if entry["phase"] == phase]


def test_rounds_go_on_until_the_median_is_sure(storm, place, ckptstorm):
    """6 rounds are the least; with 99 % allowed they are enough; the report says how sure it is."""
    ended = storm(job=_job('rounds = "until 99%"'))
    assert ended.code in (0, 1), ended.said
    saves = _rounds(ended.data, "save")
    assert 6 <= len(saves) <= 50
    spread = ended.data["rounds"]["save"]["seconds"]
    assert spread["interval"]["confidence"] >= 0.95
    assert spread["within"] <= 0.99
    (folder,) = (place / "results").iterdir()
    assert "± 99 % was asked: reached" in " ".join(ckptstorm("report", str(folder)).out.split())


def test_a_soak_ends_with_the_round_in_which_its_time_is_over(storm):
    """3 s of rounds at 0.2 s: a dozen or so, deletion as a phase of each, and a trend."""
    ended = storm(job=_job('duration = "3s"\ninterval = "150ms"'))
    assert ended.code in (0, 1), ended.said
    saves = _rounds(ended.data, "save")
    assert 2 <= len(saves) <= 21
    assert [entry["round"] for entry in _rounds(ended.data, "delete")] == list(range(2, len(saves)))
    assert ended.data["rounds"]["delete"]["seconds"]["median"] > 0
    assert [entry["round"] for entry in _rounds(ended.data, "clean up")] == [len(saves) - 1, len(saves)][-len(saves) :]
    assert (ended.data["rounds"]["save"]["trend"] is not None) == (len(saves) >= 10)


def test_a_staggered_rank_is_no_straggler_and_its_stall_is_its_own(storm):
    """Rank 1 comes 1 s late by plan: the save lasts as long, but rank 1 is no straggler, and stalled only for its own
    save; rank 0 waits for it in the layout's barrier."""
    ended = storm(job=_job('rounds = 1\nstagger = "by rank 1s"', '[layout]\nname = "file_per_rank"\n'))
    assert ended.code in (0, 1), ended.said
    (save,) = _rounds(ended.data, "save")
    assert save["seconds"] >= 1.0
    assert [(one["rank"], one["cause"]) for one in save["stragglers"]] == [(0, "the framework's collectives")]
    assert save["rank_seconds"]["p50"] < save["seconds"] - 0.5
    assert save["skew_max_s"] < 0.9
    assert save["stall_gpu_seconds"] == pytest.approx(2 * save["seconds"] - 1.0, abs=0.9)
    assert save["clock"]["agrees"]


def test_an_asynchronous_save_blocks_for_the_copy_and_drains_behind(storm, place, ckptstorm):
    """A sync planted to take 1.5 s: training waits for milliseconds, the drain for the sync; the second save comes due
    meanwhile and waits for it, and says so. Only the last checkpoint is restored."""
    fault = '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\nround = 1\ndelay = "1500ms"\n'
    job = _job('rounds = 2\nstaging = "1GiB"\ninterval = "500ms"\nstep = "50ms"', fault)
    ended = storm(job=job)
    assert ended.code in (0, 1), ended.said
    first, second = (entry["staged"] for entry in _rounds(ended.data, "save"))
    assert first["backpressure_seconds"] == 0
    assert first["blocked_seconds"] < first["drain_seconds"] - 0.4
    assert first["drain_seconds"] >= 1.5
    assert first["step_count"] >= 3
    assert second["backpressure_seconds"] >= first["drain_seconds"] - 0.5 - 0.05
    assert second["blocked_seconds"] >= second["backpressure_seconds"]
    assert [entry["round"] for entry in _rounds(ended.data, "restore")] == [2]
    assert not [reason for reason in ended.data["verdict"]["reasons"] if "ROUNDS" in reason]
    save = _rounds(ended.data, "save")[0]
    assert first["copied_bytes"] == pytest.approx(save["bytes"], rel=0.05)
    assert save["stall_gpu_seconds"] == pytest.approx(first["stall_gpu_seconds"])
    (folder,) = (place / "results").iterdir()
    out = ckptstorm("report", str(folder)).out
    assert "blocked 2 GPUs for" in out
    assert "behind the training" in " ".join(out.split())


def test_loads_alone_go_on_until_their_rate_is_sure(storm, place, ckptstorm):
    """A job without a model is judged by the rate of its loads: their time is what the job says."""
    job = (
        '[io]\nengine = "native"\n[storm]\nrounds = "until 99%"\nallow = ["tmpfs", "warm"]\n'
        '[[load]]\nkind = "metadata"\nmix = { stat = 1 }\nitems = 20\nduration = "100ms"\n'
    )
    ended = storm(job=job)
    assert ended.code in (0, 1), ended.said
    assert 6 <= len(_rounds(ended.data, "metadata")) <= 50
    (folder,) = (place / "results").iterdir()
    assert "ops/s); ± 99 % was asked: reached" in " ".join(ckptstorm("report", str(folder)).out.split())
