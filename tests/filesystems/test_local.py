"""XFS, ext4 and btrfs on loop devices, memory, and what has no adapter: the contract on the real thing."""

from __future__ import annotations

import os
import subprocess

import pytest

from ckptstorm.filesystems import adapter_of
from ckptstorm.filesystems.contract import CannotError
from ckptstorm.filesystems.mount import mount_of
from ckptstorm.testing.filesystems import FileSystemContract
from tests.require import missing
from tests.services.loop import Loop, loop


class LocalContract(FileSystemContract):
    """A loop device of one kind."""

    name = "local"
    can = frozenset({"counters", "drop_cache"})
    kind = ""

    @pytest.fixture(scope="class")
    @classmethod
    def disk(cls):
        """The device, mounted for all tests of the class."""
        with loop(cls.kind) as made:
            yield made

    @pytest.fixture
    def directory(self, disk: Loop, request):
        """A directory of the test's own on it."""
        path = disk.mount / request.node.name
        path.mkdir()
        return path

    def test_the_device_is_the_loop_device(self, adapter, disk):
        """Type, source and size are those of the device that the test made."""
        assert (adapter.mount.type, adapter.mount.source) == (self.kind, disk.device)
        assert adapter.mount.size_bytes == os.statvfs(disk.mount).f_blocks * os.statvfs(disk.mount).f_frsize
        assert adapter.facts(str(disk.mount)).details["logical_block_size"] == "512"


@pytest.mark.io
class TestXfs(LocalContract):
    """XFS."""

    kind = "xfs"


@pytest.mark.io
class TestExt4(LocalContract):
    """ext4."""

    kind = "ext4"


@pytest.mark.io
class TestBtrfs(LocalContract):
    """btrfs, whose files have an anonymous device number."""

    kind = "btrfs"

    def test_a_subvolumes_quota_is_read(self, adapter, disk):
        """A qgroup limit of 300 MiB is in the facts."""
        subprocess.run(["btrfs", "quota", "enable", disk.mount], check=True, capture_output=True)
        subprocess.run(["btrfs", "qgroup", "limit", "300M", disk.mount], check=True, capture_output=True)
        (quota,) = adapter.facts(str(disk.mount)).quotas
        assert (quota.who, quota.limit_bytes) == ("subvolume 0/5", 300 << 20)


@pytest.mark.io
class TestMemory(FileSystemContract):
    """tmpfs: nothing is ever cold there."""

    name = "memory"

    @pytest.fixture
    def directory(self, request):
        """A directory in /dev/shm."""
        if mount_of("/dev/shm").type != "tmpfs":
            missing("tmpfs", "/dev/shm is no tmpfs")
        path = f"/dev/shm/ckptstorm-test-{os.getpid()}-{request.node.name}"
        os.mkdir(path)
        yield _path(path)
        subprocess.run(["rm", "-r", path], check=True)

    def test_its_cache_cannot_be_dropped(self, adapter, directory):
        """There is nothing behind the pages."""
        with pytest.raises(CannotError, match="drop_cache: tmpfs"):
            adapter.drop_cache(str(directory))


class TestGeneric(FileSystemContract):
    """A mount that no adapter knows: everything is refused by name."""

    name = "generic"

    @pytest.fixture
    def directory(self, tmp_path):
        """Any directory."""
        return tmp_path

    @pytest.fixture
    def adapter(self, directory):
        """As if its type were one that nobody knows."""
        from dataclasses import replace

        return adapter_of(replace(mount_of(str(directory)), type="fuse.whatfs", source="what"))


def _path(path):
    from pathlib import Path

    return Path(path)
