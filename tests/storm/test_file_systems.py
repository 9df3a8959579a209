"""Whole storms on real file systems: each node its own client, counters joined, faults named."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import pytest

from tests.conftest import clean_environment
from tests.services.gluster import gluster
from tests.services.juicefs import juicefs
from tests.services.loop import loop
from tests.services.moosefs import moosefs
from tests.services.nodes import mpiexec_arguments

pytestmark = pytest.mark.mpi

#: Four ranks, 8 MiB each: small enough for CI, large enough that caches and counters show.
JOB = """
[storm]
rounds = 1
[model]
shard_bytes = "8MiB"
[layout]
name = "file_per_rank"
"""


#: Long enough that a server can be stopped in the middle, on a network of 200 Mbit/s a node.
LONG = """
[storm]
rounds = 1
on_error = "continue"
[model]
shard_bytes = "32MiB"
[layout]
name = "file_per_rank"
[restore]
verify = 0.1
"""


@pytest.fixture
def on_nodes(mpiexec, place):
    """Run a storm on nodes that each see their own client at one path; returns (exit code, record, errors)."""

    def run(clients, at, *arguments, job=JOB, during=None, path=""):
        (place / "job.toml").write_text(job)
        nodes = mpiexec_arguments(at.parent, clients, at, 2)
        command = [sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "run", "job.toml", "--json"]
        environment = clean_environment()
        environment["PATH"] = f"{path}:{environment['PATH']}"
        with subprocess.Popen(
            [mpiexec, *nodes, *command, "--dir", str(at / "data"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=place,
        ) as started:
            if during is not None:
                threading.Thread(target=during, daemon=True).start()
            out, err = started.communicate(timeout=100)
        return started.returncode, json.loads(out) if out.startswith("{") else {}, err

    return run


def _phase(data, name):
    return next(each for each in data["phases"] if each["phase"] == name)


@pytest.mark.parametrize("kind", ["xfs", "ext4", "btrfs"])
def test_a_local_file_system(storm, kind):
    """A storm on a loop device is valid; what was written and read passed its device."""
    with loop(kind) as disk:
        ended = storm("--dir", str(disk.mount / "data"), job=JOB, ranks=2)
    assert ended.code == 0, ended.said
    assert ended.data["environment"]["mount"]["type"] == kind
    assert ended.data["receipts"]["cold"]["state"] == "cold"
    for name, way in (("save", "write_bytes"), ("restore", "read_bytes")):
        phase = _phase(ended.data, name)
        (traffic,) = phase["traffic"]
        assert phase["due_bytes"] == phase["bytes"] or name == "restore"
        assert 16 << 20 <= phase["due_bytes"] <= traffic[way]


def test_moosefs_with_a_client_a_node(on_nodes):
    """Two nodes, two clients: valid, cold by the bytes through their networks, each network counted once."""
    with moosefs() as box:
        code, data, err = on_nodes([node.mount for node in box.nodes], box.folder / "shared", path=box.tools)
    assert code == 0, err
    assert data["world"] == data["world"] | {"ranks": 4, "nodes": 2}
    restore = _phase(data, "restore")
    assert sorted(each["host"] for each in restore["traffic"]) == ["127.0.0.2", "127.0.0.3"]
    assert sum(each["read_bytes"] for each in restore["traffic"]) >= restore["due_bytes"] >= 32 << 20
    assert data["environment"]["file_system"]["server"] == "master 10.99.0.1"


def test_stripes_are_set_and_placement_is_what_the_tools_say(on_nodes):
    """[layout] stripe = { goal = 2 } is in effect, and the record's map is that of mfsfileinfo, file by file."""
    with moosefs(servers=3) as box:
        at = box.folder / "shared"
        job = JOB + "stripe = { goal = 2 }\n"
        code, data, err = on_nodes([n.mount for n in box.nodes], at, "--keep-files", job=job, path=box.tools)
        assert code == 0, err
        assert data["environment"]["stripe"] == {"goal": 2}
        assert data["asked"]["layout.stripe"] == ['{"goal": 2}', '{"goal": 2}']
        placed = data["environment"]["placement"]
        assert (placed["file_count"], placed["asked_count"], len(placed["map"])) == (4, 4, 4)
        names = list(placed["targets"])
        for rank, file, indices in placed["map"]:
            path = box.nodes[0].mount / "data" / "step-0" / file
            shown = subprocess.run([box.tools / "mfsfileinfo", path], capture_output=True, text=True, check=True).stdout
            assert len(indices) == 2
            assert all(f"{names[index]} (status:VALID)" in shown for index in indices), (rank, shown)
        assert sum(each["bytes"] for each in placed["targets"].values()) >= 4 * (8 << 20)


def test_a_chunk_server_that_stops_in_a_save_shows(on_nodes):
    """One of two servers stands still for three seconds: ops of that length or errors, with rank, host and file."""
    with moosefs(servers=2) as box:
        for node in box.nodes:
            node.slow("200mbit")
        began = []

        def stop():
            while not list(box.nodes[0].mount.glob("data/step-0/*")):
                time.sleep(0.02)
            box.servers[0].hang()
            began.append(time.monotonic())
            time.sleep(3)
            box.servers[0].go_on()

        clients, at = [node.mount for node in box.nodes], box.folder / "shared"
        code, data, err = on_nodes(clients, at, job=LONG, during=stop, path=box.tools)
    assert began, "the save was over before the server could be stopped"
    assert code in (0, 1, 3), err
    save = _phase(data, "save")
    longest = max(entry["all"]["max"] for entry in save["latency_ns"].values())
    if code == 3:
        assert all(failure["host"] and failure["file"] for failure in save["failures"])
    else:
        assert longest > 2e9
        assert save["seconds"] > 2
        held = data["environment"]["placement"]["targets"]
        assert f"{box.servers[0].address}:{box.servers[0].port}" in held


def test_juicefs_shows_a_cache_on_the_way(on_nodes):
    """Own shards come from the client's disk cache: no page is resident, and yet the restore is WARM."""
    with juicefs(clients=2, options=("--cache-large-write",)) as store:
        clients, at = list(store.mounts), store.folder / "shared"
        code, data, err = on_nodes(clients, at, "--set", "restore.from=own")
        assert code == 1, err
        assert data["receipts"]["cold"]["state"] == "warm"
        assert "a cache on the way served reads" in data["receipts"]["cold"]["evidence"]
        code, data, err = on_nodes(clients, at)
        assert code == 0, err
        assert data["receipts"]["cold"]["state"] == "cold"
        assert "another node" in data["receipts"]["cold"]["evidence"]


def test_an_fsync_that_lies_is_found_out(on_nodes):
    """With --writeback fsync returns before the object store has anything: all syncs succeed, nothing is durable."""
    with juicefs(clients=1, options=("--writeback", "--upload-delay", "1h")) as store:
        code, data, err = on_nodes(list(store.mounts), store.folder / "shared")
    assert code == 1, err
    assert data["receipts"]["durable"]["state"] == "no"
    assert "4 of 4 planned syncs succeeded, but only 0 B" in data["receipts"]["durable"]["evidence"]


def test_gluster_counts_by_brick(on_nodes):
    """Two clients of two bricks: valid, and each brick's bytes stand in the record."""
    with gluster(clients=2) as volume:
        code, data, err = on_nodes(list(volume.mounts), volume.folder / "shared")
    assert code == 0, err
    values = _phase(data, "save")["traffic"][0]["values"]
    assert any(name.startswith(volume.bricks[0].name) for name in values)
    assert {target["name"] for target in data["environment"]["file_system"]["targets"]} == {
        brick.name for brick in volume.bricks
    }
