"""Memory held as a trainer holds it: really taken, told in the record, let go of, and refused where it cannot be."""

from __future__ import annotations

import math
import mmap
from types import SimpleNamespace

import pytest

from ckptstorm.storm import memory, pressure
from ckptstorm.storm.pressure import Pressure, to_hold_bytes


def _cluster(local_count=2):
    place = SimpleNamespace(local_count=local_count)
    return SimpleNamespace(rank=1, place=place, barrier=lambda: None, tick=lambda: None)


def _resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_each_rank_takes_its_part_and_lets_it_go(monkeypatch):
    """Half of 96 MiB, page by page resident, each page another; gone when the storm is over."""
    monkeypatch.setattr(pressure, "to_hold_bytes", lambda share: 96 << 20)
    monkeypatch.setattr(pressure, "_CHUNK_BYTES", 20 << 20)
    before = _resident_bytes()
    with Pressure(_cluster(), 0.5) as held:
        assert held.held_bytes == 48 << 20
        assert _resident_bytes() - before > 47 << 20
        firsts = {each[:8] for each in held._held} | {each[mmap.PAGESIZE : mmap.PAGESIZE + 8] for each in held._held}
        assert len(firsts) == 2 * len(held._held) == 6
    assert _resident_bytes() - before < 10 << 20
    assert Pressure(_cluster(), 0.0).held_bytes == 0


def test_what_is_in_use_already_counts(monkeypatch):
    """Of 100 pages 60 are in use: 80 % wants 20 more, 50 % nothing."""
    monkeypatch.setattr(pressure, "total_bytes", lambda: 100 * mmap.PAGESIZE)
    monkeypatch.setattr(pressure, "available_bytes", lambda: 40 * mmap.PAGESIZE)
    assert to_hold_bytes(0.8) == 20 * mmap.PAGESIZE
    assert to_hold_bytes(0.5) == 0


def test_a_container_is_as_large_as_its_limit(monkeypatch, tmp_path):
    """A limit below the machine's memory is the memory; "max" and an absent file are no limit."""
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    monkeypatch.setattr(memory, "_LIMITS", (str(limit), str(tmp_path / "absent")))
    whole = memory.total_bytes()
    limit.write_text("1048576\n")
    assert memory.total_bytes() == 1 << 20 < whole


@pytest.mark.mpi
def test_a_storm_holds_memory_and_says_how_much(storm):
    """A hundredth more of this machine than is in use: held, and told as what took effect."""
    in_use = 1 - memory.available_bytes() / memory.total_bytes()
    asked = f"{math.ceil(100 * in_use) + 1}%"
    ended = storm("--set", f"io.memory_pressure={asked}")
    told = ended.data["environment"]["memory_pressure"]
    assert told["held_bytes"] > 0 and 0 < told["in_use"] < 1
    assert ended.data["asked"]["io.memory_pressure"][0] == asked
    assert "memory_pressure" not in storm().data["environment"]


@pytest.mark.parametrize("value", ["100%", "0.8", "eighty", "-5%"])
def test_what_is_no_share_of_memory_is_refused(ckptstorm, value):
    """By name, with what is allowed."""
    ended = ckptstorm("check", "laptop", "--set", f"io.memory_pressure='{value}'")
    assert ended.code == 2
    assert 'a percentage below 100, such as "80%"' in ended.err


def test_what_would_leave_no_room_for_the_ranks_is_refused(ckptstorm):
    """99.9 % of the node leaves no room for a rank's buffers."""
    ended = ckptstorm("check", "laptop", "--ranks", "4", "--set", "io.memory_pressure=99.9%")
    assert ended.code == 2 and "not enough memory" in ended.said and "memory_pressure holds" in ended.said
