"""Whole storms with loads beside the save: rates, windows, what either costs the other, and nothing left behind."""

from __future__ import annotations

import os

import pytest

from tests.conftest import TINY

pytestmark = pytest.mark.mpi

LOOKUPS = """
[[load]]
kind = "metadata"
name = "lookups"
when = "beside"
rate = "{rate}"
items = 50
mix = {{ stat = 3, "open+read" = 1 }}
"""
WINDOWS = ["before the save", "during the save", "after the save", "during the restore"]


def _windows(data, name="lookups"):
    found = [entry for entry in data["phases"] if entry.get("beside") and entry["load"] == name]
    return {(entry["round"], entry["beside"]["window"]): entry for entry in found}


def test_a_load_holds_its_rate_beside_a_save_and_both_costs_are_told(storm, place, ckptstorm):
    """1,000 lookups a second of 2 ranks through a save that a planted sync holds for 2 s: every one due in that time
    ends in it, within 1 %, or the record says by how much they fell behind; limits hold for what they felt."""
    fault = '[[fault]]\nranks = [1]\nphase = "save"\nop = "fsync"\ndelay = "2s"\n'
    slo = '[slo]\nstat_p99_during_save = "30s"\nlookups_ops_per_s_during_save = 10\nmetadata_ops_per_s_per_node = 10\n'
    job = TINY.replace('engine = "posix"', 'engine = "native"').replace("rounds = 1", 'rounds = 1\naround = "500ms"')
    ended = storm(job=job + LOOKUPS.format(rate="1000/s") + fault + slo)
    assert ended.code in (0, 1), ended.said
    windows = _windows(ended.data)
    assert [window for _, window in windows] == WINDOWS
    during = windows[1, "during the save"]["beside"]
    assert during["seconds"] >= 2.0
    assert during["declared_per_s"] == pytest.approx(1000, rel=0.01)
    assert during["is_held"] == (during["behind_count"] <= 0.01 * during["due_count"])
    assert during["achieved_per_s"] == pytest.approx(during["ended_count"] / during["seconds"])
    for entry in windows.values():
        counted = sum(action["count"] for action in entry["per_action"])
        assert counted == entry["beside"]["due_count"]
        assert entry["error_count"] == 0
    saves = [(entry["phase"], entry["round"]) for entry in ended.data["phases"] if "save" in entry["phase"].split()]
    assert ("quiet save", 1) in saves
    assert ended.data["rounds"]["quiet save"]["seconds"]["median"] > 0
    assert ended.data["rounds"]["save"]["seconds"]["median"] >= 2.0
    assert all(limit["met"] for limit in ended.data["limits"])
    assert {"job.toml", "results"} == set(os.listdir(place))
    (folder,) = (place / "results").iterdir()
    out = " ".join(ckptstorm("report", str(folder)).out.split())
    assert "alone," in out
    assert "during the save" in out
    assert "without the loads," in out


def test_posix_keeps_a_low_rate_and_is_refused_a_high_one(storm, place):
    """100 a second for each rank from Python; 1,000 are refused before anything is made."""
    job = TINY.replace("rounds = 1", 'rounds = 1\naround = "300ms"\ncontrol = false')
    refused = storm(job=job + LOOKUPS.format(rate="1000/s"))
    assert refused.code == 2
    assert "refused above 200 actions/s" in refused.err
    assert os.listdir(place) == ["job.toml"]
    ended = storm(job=job + LOOKUPS.format(rate="200/s"))
    assert ended.code in (0, 1), ended.said
    windows = _windows(ended.data)
    assert [window for _, window in windows] == WINDOWS
    before = windows[1, "before the save"]["beside"]
    assert before["due_count"] == pytest.approx(200 * before["seconds"], abs=3)
    assert "quiet save" not in ended.data["rounds"]
    assert {"job.toml", "results"} == set(os.listdir(place))


def test_random_writes_go_on_beside_two_rounds(storm, place):
    """Verified saves beside random writes of one rank; the files of the load serve both rounds and are gone after."""
    load = (
        '[[load]]\nkind = "random"\nname = "log"\nwhen = "beside"\nranks = [1]\naccess = "write"\nspan = "1MiB"\n'
        'warm = true\nrate = "400/s"\n'
    )
    job = TINY.replace('engine = "posix"', 'engine = "native"').replace(
        "rounds = 1", 'rounds = 2\naround = "200ms"\ninterval = "1s"'
    )
    ended = storm(job=job + load)
    assert ended.code in (0, 1), ended.said
    assert ended.data["receipts"]["verified"]["state"] == "all"
    windows = _windows(ended.data, "log")
    assert {number for number, _ in windows} == {1, 2}
    assert all(entry["bytes"] == 4096 * entry["beside"]["due_count"] for entry in windows.values())
    assert {"job.toml", "results"} == set(os.listdir(place))
