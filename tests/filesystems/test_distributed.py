"""MooseFS, GlusterFS and JuiceFS as they really run: the contract, and what their own tools say."""

from __future__ import annotations

import os
import subprocess

import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.filesystems import adapter_of
from ckptstorm.filesystems.moosefs import Options
from ckptstorm.filesystems.mount import mount_of
from ckptstorm.testing.filesystems import FileSystemContract
from tests.services.gluster import gluster
from tests.services.juicefs import juicefs
from tests.services.moosefs import moosefs


@pytest.mark.io
class TestMooseFS(FileSystemContract):
    """Three chunk servers, two copies of each chunk, two clients."""

    name = "moosefs"
    can = frozenset({"counters", "placement", "drop_cache", "prepare"})

    @pytest.fixture(scope="class")
    @classmethod
    def box(cls):
        """The cluster, for all tests of the class."""
        with moosefs(goal=2) as made:
            yield made

    @pytest.fixture
    def directory(self, box, request, monkeypatch):
        """A directory of the test's own on the first node."""
        monkeypatch.setenv("PATH", f"{box.tools}:{os.environ['PATH']}")
        path = box.nodes[0].mount / request.node.name
        path.mkdir()
        return path

    def test_its_facts_are_those_of_its_tools(self, adapter, directory):
        """Version, master, goal and a directory's quota, as the test has set it."""
        subprocess.run(["mfssetquota", "-S", "100M", str(directory)], check=True, capture_output=True)
        facts = adapter.facts(str(directory))
        assert (facts.server, facts.details["goal"]) == ("master 10.99.0.1", 2)
        assert facts.version.startswith("3.")
        assert [(quota.who, quota.limit_bytes) for quota in facts.quotas] == [("directory", 100_000_000)]

    def test_placement_is_what_the_chunk_servers_hold(self, adapter, box, directory):
        """A copy lies exactly on those two servers whose disks have grown by it."""
        before = [_used(box, number) for number in (1, 2, 3)]
        (directory / "shard").write_bytes(os.urandom(20 << 20))
        subprocess.run(["sync", "-f", str(directory)], check=True)
        placement = adapter.placement(str(directory / "shard"))
        grown = {
            f"{server.address}:{server.port}"
            for number, server in enumerate(box.servers)
            if _used(box, number + 1) - before[number] > 10 << 20
        }
        assert set(placement.targets) == grown
        assert len(placement.targets) == 2

    def test_a_goal_is_set_and_read_back(self, adapter, directory):
        """[layout] stripe = { goal = 1 }: files made afterwards have one copy; a goal of 12 is refused."""
        assert adapter.prepare(str(directory), Options(goal=1)) == {"goal": 1}
        (directory / "shard").write_bytes(b"a" * 1000)
        assert len(adapter.placement(str(directory / "shard")).targets) == 1
        with pytest.raises(PlaceError, match=r"\[layout\] stripe goal = 12: mfssetgoal") as caught:
            adapter.prepare(str(directory), Options(goal=12))
        assert "goals are 1 to 9" in caught.value.hint

    def test_without_its_tools_it_says_so(self, directory, monkeypatch):
        """Placement and quota name the missing program."""
        monkeypatch.setenv("PATH", "/nowhere")
        facts = adapter_of(mount_of(str(directory))).facts(str(directory))
        assert facts.cannot["placement"] == "mfsgetgoal is not on PATH"


def _used(box, number):
    figures = os.statvfs(box.folder / f"disk{number}")
    return (figures.f_blocks - figures.f_bfree) * figures.f_frsize


@pytest.mark.io
class TestGlusterFS(FileSystemContract):
    """Four bricks in two pairs, two clients."""

    name = "glusterfs"
    can = frozenset({"counters", "placement", "drop_cache"})

    @pytest.fixture(scope="class")
    @classmethod
    def volume(cls):
        """The volume, for all tests of the class."""
        with gluster(clients=1, bricks=4, kind=("replica", "2")) as made:
            yield made

    @pytest.fixture
    def directory(self, volume, request):
        """A directory of the test's own."""
        path = volume.mounts[0] / request.node.name
        path.mkdir()
        return path

    def test_its_facts_are_those_of_the_volume(self, adapter, volume, directory):
        """Bricks, pairs, volume and version, as gluster itself says."""
        facts = adapter.facts(str(directory))
        assert {target.name for target in facts.targets} == {brick.name for brick in volume.bricks}
        assert (facts.details["volume"], facts.details["replicate"]) == ("v0", 2)
        said = subprocess.run(["glusterfs", "--version"], capture_output=True, text=True, check=True).stdout
        assert facts.version in said.splitlines()[0]

    def test_placement_is_what_the_bricks_hold(self, adapter, volume, directory):
        """A file lies exactly on the bricks in whose folders it is."""
        for number in range(6):
            file = directory / f"shard-{number}"
            file.write_bytes(b"a" * 1000)
            holding = {brick.name for brick in volume.bricks if (brick.path / directory.name / file.name).exists()}
            assert set(adapter.placement(str(file)).targets) == holding

    def test_counters_tell_the_bricks_apart(self, adapter, volume, directory):
        """What is written to one file passes to its bricks and to no other."""
        file = directory / "shard"
        file.touch()
        holding = set(adapter.placement(str(file)).targets)
        before = adapter.counters().values
        file.write_bytes(os.urandom(8 << 20))
        after = adapter.counters().values
        for brick in volume.bricks:
            grown = after[f"{brick.name}.write_bytes"] - before[f"{brick.name}.write_bytes"]
            assert (grown > 8 << 20) == (brick.name in holding)


@pytest.mark.io
class TestJuiceFS(FileSystemContract):
    """Objects in a folder, two clients."""

    name = "juicefs"
    can = frozenset({"counters", "placement", "drop_cache"})

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls):
        """The file system, for all tests of the class; no cache on disk: what is dropped must come again."""
        with juicefs(clients=1, options=("--cache-size", "0")) as made:
            yield made

    @pytest.fixture
    def directory(self, store, request, monkeypatch):
        """A directory of the test's own."""
        monkeypatch.setenv("PATH", f"{store.program.parent}:{os.environ['PATH']}")
        path = store.mounts[0] / request.node.name
        path.mkdir()
        return path

    def test_its_facts_say_where_the_objects_are(self, adapter, store, directory):
        """Storage, bucket, block size, and that fsync means what it says."""
        facts = adapter.facts(str(directory))
        assert facts.server == f"file {store.objects}/"
        assert (facts.details["block_bytes"], facts.details["writeback"]) == (4 << 20, "off")
        assert facts.version.startswith("1.")

    def test_placement_counts_its_objects(self, adapter, store, directory):
        """Ten MiB are three objects of up to four."""
        (directory / "shard").write_bytes(os.urandom(10 << 20))
        assert adapter.placement(str(directory / "shard")).details == {"objects": 3}
