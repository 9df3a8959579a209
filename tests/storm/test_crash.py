"""A save returns, then the storage loses its power: what was durable must be there; a sync that lied is caught."""

from __future__ import annotations

import shutil

import pytest

from tests.conftest import TINY
from tests.require import missing
from tests.services.fuse_fault import fault_fs
from tests.services.juicefs import juicefs
from tests.services.loop import loop
from tests.services.machine import run

pytestmark = [pytest.mark.mpi, pytest.mark.io]

#: Every file is synced after its last write, and the directory after the rename: all of it is claimed durable.
DURABLE = TINY.replace("[storm]", 'durability = "fsync"\n[storm]')


def _saved(storm, directory):
    """A save on its own that claims to be durable; its checkpoint stays."""
    saved = storm("--only", "save", "--dir", str(directory), job=DURABLE)
    assert saved.code in (0, 1), saved.said
    assert saved.data["receipts"]["durable"]["state"] == "yes", saved.data["receipts"]["durable"]


def _restored(storm, directory):
    return storm("--only", "restore", "--from", str(directory), job=DURABLE)


def _is_whole(ended):
    assert ended.code in (0, 1), ended.said
    assert ended.data["receipts"]["verified"]["state"] == "all"
    restore = next(entry for entry in ended.data["phases"] if entry["phase"] == "restore")
    assert restore["bytes"] == restore["planned_bytes"]


def test_a_durable_save_survives_a_shutdown_of_xfs(storm, place):
    """The device is cut off right after the save returned; after a remount every byte is there."""
    if shutil.which("xfs_io") is None:
        missing("loop", "xfs_io: not installed")
    with loop("xfs", "512M") as disk:
        _saved(storm, disk.mount / "data")
        run("xfs_io", "-x", "-c", "shutdown", disk.mount)
        run("umount", disk.mount)
        run("mount", "-o", "loop", disk.image, disk.mount)
        _is_whole(_restored(storm, disk.mount / "data"))


def test_an_honest_sync_survives_a_power_cut(storm, place):
    """All that was not synced is forgotten: a durable save is whole all the same."""
    with fault_fs(place, forgets=True) as fs:
        _saved(storm, fs.mount / "data")
        fs.power_cut()
        _is_whole(_restored(storm, fs.mount / "data"))


def test_a_sync_that_lies_is_caught(storm, place):
    """One file's syncs are acknowledged and not made: after the power cut the restore says which file is not there."""
    with fault_fs(place, forgets=True) as fs:
        fs.plant(ops=["fsync"], glob="*/__1_0.distcp", lie=True)
        _saved(storm, fs.mount / "data")
        fs.power_cut()
        ended = _restored(storm, fs.mount / "data")
        assert ended.code == 3, ended.said
        told = "".join(ended.data["verdict"]["reasons"])
        assert "__1_0.distcp" in told or "WRONG BYTES" in told or "SHORT" in told
        assert ended.data["verdict"]["valid"] is False
        restore = next(entry for entry in ended.data["phases"] if entry["phase"] == "restore")
        assert any("__1_0.distcp" in one["file"] for one in restore["failures"])


def test_without_syncs_nothing_is_claimed_and_little_is_left(storm, place):
    """durability = "none": the save says that it is not durable, and after the power cut it is not there."""
    with fault_fs(place, forgets=True) as fs:
        job = TINY.replace("[storm]", 'durability = "none"\n[storm]')
        saved = storm("--only", "save", "--dir", str(fs.mount / "data"), job=job)
        assert saved.data["receipts"]["durable"]["state"] == "not_asked"
        fs.power_cut()
        ended = storm("--only", "restore", "--from", str(fs.mount / "data"), job=job)
        assert ended.code == 3, ended.said


def test_a_sync_that_holds_on_its_own_node_only_is_caught(storm, place):
    """JuiceFS with a write-back cache: counters show that nothing left the node; the other client cannot read it."""
    with juicefs(clients=2, options=("--writeback", "--upload-delay", "1h")) as fs:
        own, other = fs.mounts
        saved = storm("--only", "save", "--dir", str(own / "data"), job=DURABLE)
        assert saved.code == 1, saved.said
        assert saved.data["receipts"]["durable"]["state"] == "no"
        assert "a cache keeps the rest" in saved.data["receipts"]["durable"]["evidence"]
        ended = _restored(storm, other / "data")
        assert ended.code == 2, ended.said  # even the list of what was saved did not get there
        assert "cannot be read: Input/output error, although its sync had returned" in ended.err
        assert "Traceback" not in ended.said
