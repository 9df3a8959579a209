"""CephFS as it really runs, where CKPTSTORM_CEPH asks for it: the contract, layouts, quotas."""

from __future__ import annotations

import os

import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.filesystems.cephfs import Options
from ckptstorm.filesystems.contract import CannotError
from ckptstorm.testing.filesystems import FileSystemContract
from tests.services.ceph import ceph


@pytest.mark.io
class TestCephFS(FileSystemContract):
    """Two object stores in memory, one ceph-fuse."""

    name = "cephfs"
    can = frozenset({"counters", "placement", "prepare"})

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls):
        """The file system, for all tests of the class."""
        with ceph() as made:
            yield made

    @pytest.fixture
    def directory(self, cluster, request, monkeypatch):
        """A directory of the test's own."""
        monkeypatch.setenv("PATH", f"{cluster.tools}:{os.environ['PATH']}")
        path = cluster.mount / request.node.name
        path.mkdir()
        return path

    def test_a_layout_is_set_and_files_have_it(self, adapter, directory, cluster):
        """[layout] stripe = { count = 2, size = "1MiB" }: the directory's attribute, and that of a file in it."""
        assert "stripe_unit=1048576 stripe_count=2" in str(
            adapter.prepare(str(directory), Options(count=2, size="1MiB"))["layout"]
        )
        file = directory / "shard"
        file.write_bytes(os.urandom(6 << 20))
        placement = adapter.placement(str(file))
        assert (placement.details["stripe_count"], placement.details["objects"]) == ("2", 2)
        assert set(placement.targets) <= {f"osd.{number}" for number in range(cluster.osds)}

    def test_its_own_cache_stays_and_it_says_so(self, adapter, directory):
        """Dropping the kernel's pages leaves what ceph-fuse holds."""
        with pytest.raises(CannotError, match="ceph-fuse keeps objects"):
            adapter.drop_cache(str(directory))

    def test_what_it_refuses_is_said(self, adapter, directory):
        """A pool that there is not."""
        with pytest.raises(PlaceError, match=r"\[layout\] stripe: pool = nvme is refused"):
            adapter.prepare(str(directory), Options(pool="nvme"))

    def test_a_quota_is_read(self, adapter, directory):
        """ceph.quota.max_bytes of the directory."""
        os.setxattr(directory, "ceph.quota.max_bytes", b"100000000")
        (quota,) = adapter.facts(str(directory)).quotas
        assert (quota.who, quota.limit_bytes) == ("directory", 100_000_000)
