"""Every kind of load, in its variants, held to the contract."""

from __future__ import annotations

import pytest

from ckptstorm.load_tables import MetadataLoad, RandomLoad, Rate, Sizes
from ckptstorm.loads import load_of
from ckptstorm.model.parallel import World
from ckptstorm.testing.loads import WORLDS, LoadContract
from ckptstorm.units import KIB, MIB, Bytes, Duration

_SECOND = Duration(10**9)


class TestRandomRead(LoadContract):
    """A file a rank, each block once."""

    def make(self, world):
        """See `LoadContract.make`."""
        return load_of(RandomLoad(span=Bytes(MIB), warm=True), world)


class TestRandomShared(LoadContract):
    """Writes of mixed sizes into one file, by time, with syncs, read back afterwards."""

    def make(self, world):
        """See `LoadContract.make`."""
        table = RandomLoad(
            access="write",
            file="shared",
            span=Bytes(MIB),
            threads=2,
            block=Sizes.parse({"512": 3, "4KiB..16KiB": 1}),
            duration=_SECOND,
            ramp=_SECOND,
            fsync_every=7,
            final_fsync=True,
            verify=True,
        )
        return load_of(table, world)


class TestRandomMixed(LoadContract):
    """Unaligned, zipf, some ranks only."""

    def make(self, world):
        """See `LoadContract.make`."""
        table = RandomLoad(access="mixed", read_percent=30, span=Bytes(MIB), order="zipf", aligned=False, ranks=(0,))
        return load_of(table, world)


EVERY_PHASE = (
    "create+write+fsync", "stat", "exists", "miss", "list", "list+stat", "utime", "chmod", "rename", "stat", "link",
    "open+flock", "open+lock", "open+setxattr", "log+append+utime", "open+append+utime", "rename",
    "delete", "mkdir", "rmdir",
)  # fmt: skip


class TestMetadataPhases(LoadContract):
    """Every action, over a tree for each rank."""

    def make(self, world):
        """See `LoadContract.make`."""
        table = MetadataLoad(phases=EVERY_PHASE, items=20, depth=2, branch=2, threads=3, size=Sizes.parse("0..64KiB"))
        return load_of(table, world)


class TestMetadataShared(LoadContract):
    """One tree for all, files prepared because the first phase finds them, locks on one file."""

    def make(self, world):
        """See `LoadContract.make`."""
        table = MetadataLoad(
            phases=("stat", "open+read", "open+flock", "open+lock", "list"),
            items=20,
            depth=1,
            branch=3,
            directory="shared",
            contended=True,
            size=Sizes.parse("3901"),
        )
        return load_of(table, world)


class TestMetadataOfOthers(LoadContract):
    """Files that another node made."""

    def worlds(self):
        """It takes two nodes."""
        return WORLDS[2:]

    def make(self, world):
        """See `LoadContract.make`."""
        return load_of(MetadataLoad(phases=("create", "stat", "delete"), items=5, of="other-node"), world)


MIX = {
    "stat": 10, "create+write": 8, "delete": 8, "rename": 5, "link": 3, "mkdir": 2, "rmdir": 2, "open+read": 5,
    "open+append": 5, "list": 1, "list+stat": 1, "miss": 1, "chmod": 1, "open+lock": 1,
}  # fmt: skip


class TestMetadataMix(LoadContract):
    """A mix that makes more than it removes, with a lap that must end as it began."""

    def make(self, world):
        """See `LoadContract.make`."""
        mix = {**MIX, "create+write": 30.0}
        del mix["list+stat"]
        table = MetadataLoad(
            mix=mix, items=12, depth=1, branch=2, threads=2, duration=_SECOND, size=Sizes.parse("4KiB")
        )
        return load_of(table, world)


class TestMetadataFlow(LoadContract):
    """filebench's varmail, by count."""

    def make(self, world):
        """See `LoadContract.make`."""
        flow = ("log+append", "delete", "create+write+fsync", "open+read+append+fsync", "open+read")
        return load_of(MetadataLoad(flow=flow, items=10, count=50, size=Sizes.parse("16KiB")), world)


def test_a_rate_reads_and_writes():
    """Both ways, ops and bytes."""
    for text in ("1000/s", "100MiB/s"):
        assert Rate.parse(text).plain() == text
    for wrong in ("1000", "x/s", "0/s", 5, "-1/s"):
        with pytest.raises(ValueError, match="expected a rate"):
            Rate.parse(wrong)


def test_sizes_read_and_write():
    """One, a range, a mix; what is none is refused."""
    for value in (4096, "4KiB", "4KiB..64MiB", {"4KiB": 70, "64KiB..1MiB": 30}):
        assert Sizes.parse(Sizes.parse(value).plain()) == Sizes.parse(value)
    assert Sizes.parse({"4KiB": 3, "8KiB": 1}).mean_bytes == 5 * KIB
    for wrong in ("64KiB..4KiB", {}, {"4KiB": 0}, "4KiB..", "2GiB", True, None):
        with pytest.raises(ValueError, match="expected"):
            Sizes.parse(wrong)


def test_a_large_world_costs_nothing():
    """One rank of 100,000 plans its own part only."""
    world = World(100_000, 8)
    load = load_of(MetadataLoad(phases=("create", "stat"), items=10, of="other-node"), world)
    assert len(load.stage(99_999, 1).threads[0].program.ops) == 10
