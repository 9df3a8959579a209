"""The services come up, do what their names say, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.services.gluster import gluster
from tests.services.juicefs import juicefs
from tests.services.loop import loop
from tests.services.moosefs import moosefs
from tests.services.nodes import mpiexec_arguments


def _left_behind() -> list[str]:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [point for point in mounts if point.startswith("/tmp/ckptstorm-")]


@pytest.mark.io
@pytest.mark.parametrize("kind", ["xfs", "ext4", "btrfs"])
def test_a_loop_device_is_as_slow_as_asked(kind):
    """16 MiB through a device of 16 MiB/s take most of a second; the mount is of the kind asked for, then gone."""
    with loop(kind) as disk:
        assert f" {kind} " in next(
            line for line in Path("/proc/mounts").read_text().splitlines() if str(disk.mount) in line
        )
        disk.throttle(16 << 20)
        begun = time.monotonic()
        command = ["dd", "if=/dev/zero", f"of={disk.mount}/x", "bs=1M", "count=16", "conv=fsync"]
        subprocess.run(command, check=True, capture_output=True)
        assert time.monotonic() - begun > 0.7
    assert str(disk.mount) not in _left_behind()


@pytest.mark.io
def test_juicefs_has_two_clients_of_one_store():
    """What one client wrote, the other reads, and it lies in the object folder."""
    with juicefs() as store:
        (store.mounts[0] / "x").write_bytes(b"a" * 100_000)
        assert (store.mounts[1] / "x").read_bytes() == b"a" * 100_000
        assert sum(path.stat().st_size for path in store.objects.rglob("*") if path.is_file()) >= 100_000
    assert not store.folder.exists()


@pytest.mark.io
def test_gluster_bricks_share_the_files():
    """Files of two clients lie on two bricks; one that is killed takes its files along."""
    with gluster(clients=2) as volume:
        for number in range(8):
            (volume.mounts[number % 2] / f"shard-{number}").write_bytes(b"a" * 1000)
        there = [{path.name for path in brick.path.glob("shard-*")} for brick in volume.bricks]
        assert len(there[0] | there[1]) == 8
        assert not there[0] & there[1]
        volume.bricks[0].die()
        time.sleep(0.2)
        with pytest.raises(OSError, match="not connected"):
            (volume.mounts[0] / sorted(there[0])[0]).read_bytes()
        assert (volume.mounts[0] / sorted(there[1])[0]).read_bytes() == b"a" * 1000
    assert not volume.folder.exists()


@pytest.mark.mpi
def test_moosefs_nodes_have_their_own_clients(mpiexec, place):
    """Two nodes under mpiexec see one file system at one path, each through its own client, and write to it."""
    with moosefs() as box:
        shared = box.folder / "shared"
        arguments = mpiexec_arguments(box.folder, [node.mount for node in box.nodes], shared, 1)
        (place / "look.py").write_text(
            "import os, pathlib, sys\n"
            "here = pathlib.Path(sys.argv[1])\n"
            "(here / os.uname().nodename).write_text(str(here.stat().st_dev))\n"
        )
        command = [mpiexec, *arguments, sys.executable, str(place / "look.py"), str(shared)]
        subprocess.run(command, capture_output=True, timeout=60, check=True)
        devices = {path.name: path.read_text() for path in box.nodes[0].mount.iterdir()}
        assert sorted(devices) == ["127.0.0.2", "127.0.0.3"]
        assert devices["127.0.0.2"] != devices["127.0.0.3"]
        assert {server.address for server in box.servers} == {f"10.98.{number}.2" for number in (1, 2, 3)}
    assert not box.folder.exists()
