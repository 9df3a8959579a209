"""Lustre, GPFS, WekaFS, BeeGFS and NFS on recorded output: right figures from it, right calls for it."""

from __future__ import annotations

import ctypes
import shutil

import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.filesystems import adapter_of, beegfs, gpfs, lustre
from ckptstorm.filesystems.contract import CannotError, Target
from ckptstorm.filesystems.machine import Machine
from ckptstorm.filesystems.mount import Mount
from tests.filesystems.fakes import RECORDED, Fakes

_KIB = 1024


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """A folder that is all of PATH."""
    made = Fakes(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(made.folder))
    return made


def _adapter(tmp_path, kind, source, point, options="rw"):
    mount = Mount(kind, source, options, point, 4 << 20, 1 << 50, 1 << 49, 0, 0, 255, device="0:77")
    return adapter_of(mount, Machine(str(tmp_path / "root")))


def _put(tmp_path, path, recorded):
    target = tmp_path / "root" / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(RECORDED / recorded, target)


# --- Lustre


@pytest.fixture
def scratch(tmp_path, fakes):
    """A Lustre client of three OSTs, with its `lfs` and its trees under /sys."""
    fakes.add(
        "lfs",
        {
            "df /scratch": "lfs_df",
            "getstripe -d /scratch/data": "lfs_getstripe_dir",
            "getstripe /scratch/data/plain": "lfs_getstripe_plain",
            "getstripe /scratch/data/pfl": "lfs_getstripe_pfl",
            "getstripe /scratch/data/dom": "lfs_getstripe_dom",
            "quota -q -u 0 /scratch/data": "lfs_quota",
            "pool_list scratch": "lfs_pool_list",
            "setstripe -c 2 -S 4194304 -p flash /scratch/data": "",
            "setstripe -C 8 /scratch/data": "",
            "setstripe -E 1048576 -L mdt -E 67108864 -c 1 -E -1 -c -1 -S 4194304 /scratch/data": "",
            "setstripe -c 1 /scratch/data": "!error on ioctl 0x4008669a for '/scratch/data' (3): Permission denied\n",
        },
    )
    stats = "/sys/kernel/debug/lustre"
    _put(tmp_path, f"{stats}/osc/scratch-OST0000-osc-ffff9bc043537800/stats", "osc_stats_1")
    _put(tmp_path, f"{stats}/osc/scratch-OST000b-osc-ffff9bc043537800/stats", "osc_stats_2")
    _put(tmp_path, f"{stats}/osc/home-OST0000-osc-ffff9bc043530000/stats", "osc_stats_1")
    _put(tmp_path, f"{stats}/llite/scratch-ffff9bc043537800/stats", "llite_stats")
    for name in (
        "scratch-OST0000-osc-ffff",
        "scratch-OST000b-osc-ffff",
        "scratch-MDT0000-mdc-ffff",
        "home-OST0000-osc-f",
    ):
        _put(tmp_path, f"/sys/fs/lustre/ldlm/namespaces/{name}/lru_size", "lfs_pool_list")
    (tmp_path / "root/sys/fs/lustre/version").write_text("2.15.5\n")
    (tmp_path / "root/sys/fs/lustre/osc/scratch-OST0000-osc-ffff").mkdir(parents=True)
    (tmp_path / "root/sys/fs/lustre/osc/scratch-OST0000-osc-ffff/max_rpcs_in_flight").write_text("16\n")
    return _adapter(tmp_path, "lustre", "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch", "/scratch")


def test_lustre_facts(scratch, monkeypatch):
    """OSTs with their space (an inactive one has none), quota, version, the directory's layout, tunables."""
    monkeypatch.setattr("os.getuid", lambda: 0)
    facts = scratch.facts("/scratch/data")
    assert facts.server == "10.0.0.1@o2ib:10.0.0.2@o2ib"
    assert facts.version == "2.15.5"
    assert facts.targets[0] == Target("scratch-OST0000", 8589934592 * _KIB, 4294967296 * _KIB)
    assert [target.name for target in facts.targets] == ["scratch-OST0000", "scratch-OST0001", "scratch-OST000b"]
    (quota,) = facts.quotas
    assert (quota.used_bytes, quota.limit_bytes) == (5242880 * _KIB, 5_000_000 * _KIB)
    assert (quota.used_inodes, quota.limit_inodes) == (120, 100_000)
    assert facts.details["directory.stripe_count"] == 2
    assert facts.details["osc.max_rpcs_in_flight"] == "16"
    assert facts.cannot == {}


def test_lustre_placement(scratch):
    """Objects by their OSTs: plain, overstriped in a progressive layout, and on the metadata server."""
    plain = scratch.placement("/scratch/data/plain")
    assert plain.targets == ("scratch-OST0001", "scratch-OST000b")
    assert plain.details == {"stripe_count": 2, "stripe_size_bytes": 4 << 20, "pattern": "raid0", "pool": "flash"}
    pfl = scratch.placement("/scratch/data/pfl")
    assert [name[-4:] for name in pfl.targets] == ["0000", "0001", "000b", "0001", "000b"]
    assert pfl.details["pattern"] == "raid0,raid0,overstriped,raid0"
    assert pfl.details["component_ends"] == "67108864,4294967296,EOF"
    assert scratch.placement("/scratch/data/dom").targets == ("scratch-MDT",)


def test_lustre_counts_bytes_on_the_wire(scratch):
    """Bulk bytes of this file system's OSCs are the wire; llite's own bytes include the page cache."""
    counters = scratch.counters()
    assert (counters.at, counters.read_bytes, counters.write_bytes) == ("client's wire", 4 << 30, 3 << 30)
    assert counters.values["osc.OST000b-osc.write_bytes"] == 1 << 30
    assert counters.values["llite.client.read_bytes"] == 9437184000
    assert counters.values["llite.client.open"] == 120
    assert not any("home" in name for name in counters.values)


def test_lustre_clears_the_locks_of_its_osts(scratch, tmp_path):
    """ldlm lru_size=clear for each OST of this file system: not for the metadata server, nor for another one."""
    scratch.drop_cache(str(tmp_path))
    namespaces = tmp_path / "root/sys/fs/lustre/ldlm/namespaces"
    cleared = {path.parent.name for path in namespaces.glob("*/lru_size") if path.read_text() == "clear"}
    assert cleared == {"scratch-OST0000-osc-ffff", "scratch-OST000b-osc-ffff"}


@pytest.mark.parametrize(
    ("options", "call"),
    [
        (lustre.Options(count=2, size="4MiB", pool="flash"), "lfs setstripe -c 2 -S 4194304 -p flash /scratch/data"),
        (lustre.Options(count=8, pattern="overstriped"), "lfs setstripe -C 8 /scratch/data"),
        (
            lustre.Options(
                components=(
                    lustre.Component("1MiB", pattern="mdt"),
                    lustre.Component("64MiB", count=1),
                    lustre.Component("eof", count=-1, size="4MiB"),
                )
            ),
            "lfs setstripe -E 1048576 -L mdt -E 67108864 -c 1 -E -1 -c -1 -S 4194304 /scratch/data",
        ),
    ],
)
def test_lustre_sets_stripes_and_reads_them_back(scratch, fakes, options, call):
    """The very words of lfs setstripe, then what lfs getstripe says of the directory."""
    assert scratch.prepare("/scratch/data", options)["stripe_count"] == 2
    assert fakes.calls[-2:] == [call, "lfs getstripe -d /scratch/data"]


@pytest.mark.parametrize(
    ("options", "says", "hint"),
    [
        (lustre.Options(count=4), "stripe count = 4: scratch has 3 OSTs", "at most 3"),
        (lustre.Options(count=0), "stripe count = 0: no number of OSTs", "-1 for all"),
        (lustre.Options(pool="nvme"), 'stripe pool = "nvme": scratch has no such pool', "pools: flash, disk"),
        (lustre.Options(size="1000"), 'stripe size = "1000": Lustre cuts at multiples of 64 KiB', ""),
        (lustre.Options(size="large"), "stripe size: expected a size", ""),
        (lustre.Options(count=1, components=(lustre.Component("eof"),)), "components and keys beside them", ""),
        (lustre.Options(count=1), "lfs setstripe -c 1 /scratch/data: error on ioctl", "lfs help setstripe"),
    ],
)
def test_lustre_refuses_by_name(scratch, options, says, hint):
    """What was asked, and what there is."""
    with pytest.raises(PlaceError) as caught:
        scratch.prepare("/scratch/data", options)
    assert says in str(caught.value)
    assert hint in caught.value.hint


def test_lustre_without_lfs_says_so(scratch, fakes):
    """Striping, placement and targets name the program that is missing."""
    (fakes.folder / "lfs").unlink()
    for ask in (lambda: scratch.prepare("/scratch/data", lustre.Options(count=1)), lambda: scratch.placement("/x")):
        with pytest.raises(CannotError, match="lfs is not on PATH"):
            ask()
    assert scratch.facts("/scratch/data").cannot["targets"] == "lfs is not on PATH"


def test_lustre_without_its_statistics_says_so(tmp_path, fakes):
    """Where /sys shows nothing, counters and the lock cache are refused."""
    adapter = _adapter(tmp_path, "lustre", "10.0.0.1@tcp:/scratch", "/scratch")
    with pytest.raises(CannotError, match="no osc statistics"):
        adapter.counters()
    with pytest.raises(CannotError, match="no lock namespaces"):
        adapter.drop_cache(str(tmp_path))


# --- GPFS


@pytest.fixture
def gpfs0(tmp_path, fakes):
    """A Storage Scale client."""
    fakes.add("mmlsfs", {"gpfs0 -Y": "mmlsfs"})
    fakes.add("mmlspool", {"gpfs0": "mmlspool"})
    fakes.add("mmlsattr", {"-L /gpfs/gpfs0/data/shard": "mmlsattr"})
    fakes.add("mmpmon", {"-p": "mmpmon"})
    return _adapter(tmp_path, "gpfs", "/dev/gpfs0", "/gpfs/gpfs0")


def test_gpfs_facts_placement_and_counters(gpfs0):
    """Block size, version, the pools that hold data, a file's pool and fileset, what applications moved."""
    facts = gpfs0.facts("/gpfs/gpfs0/data")
    assert (facts.details["blockSize"], facts.details["minFragmentSize"]) == (16 << 20, 16384)
    assert facts.version == "33.00 (5.2.0.0)"
    assert facts.targets == (Target("nvme", 162531639296 * _KIB, 114505474048 * _KIB),)
    assert facts.details["pool.nvme.blockSize"] == "16 MB"
    placement = gpfs0.placement("/gpfs/gpfs0/data/shard")
    assert placement.targets == ("nvme",)
    assert placement.details == {"pool": "nvme", "fileset": "training", "data_replication": "1 max 2"}
    counters = gpfs0.counters()
    assert counters.values["bytes_read"] == 205607400434
    assert (counters.read_bytes, counters.write_bytes) == (-1, -1)  # they include what the page pool served


def test_gpfs_drops_a_files_cache_by_its_own_call(tmp_path):
    """The hint that gpfs_fcntl is given: 24 bytes, version 1, one structure of 8 bytes, GPFS_CLEAR_FILE_CACHE."""
    seen = []

    class Library:
        def gpfs_fcntl(self, fd, argument):
            hint = ctypes.cast(argument, ctypes.POINTER(ctypes.c_int * 6)).contents
            seen.append((fd > 2, list(hint)))
            return 0

    file = tmp_path / "shard"
    file.touch()
    gpfs.clear_file_cache(Library(), str(file))
    assert seen == [(True, [24, 1, 0, 0, 8, 1004])]


def test_gpfs_without_its_commands_says_so(tmp_path, fakes):
    """Facts, targets, placement, counters and the page pool, each by name."""
    adapter = _adapter(tmp_path, "gpfs", "gpfs0", "/gpfs/gpfs0")
    assert set(adapter.facts("/x").cannot) == {"facts", "targets", "quota"}
    for ask in (adapter.counters, lambda: adapter.placement("/x"), lambda: adapter.drop_cache("/x")):
        with pytest.raises(CannotError, match=r"not on PATH|libgpfs\.so is not installed"):
            ask()


# --- WekaFS


def test_wekafs_facts(tmp_path, fakes):
    """The mount's mode and options, and the cluster's figures of this file system."""
    fakes.add("weka", {"fs -J": "weka_fs", "version current": ""})
    options = "rw,relatime,writecache,inode_bits=auto,readahead_kb=32768,container_name=client"
    adapter = _adapter(tmp_path, "wekafs", "10.108.97.126/train", "/mnt/weka", options)
    facts = adapter.facts("/mnt/weka")
    assert (facts.server, facts.details["mode"], facts.details["direct_by_default"]) == (
        "10.108.97.126",
        "writecache",
        "no",
    )
    assert facts.details["total_budget"] == 43980465111040
    for ask in (adapter.counters, lambda: adapter.placement("/x")):
        with pytest.raises(CannotError):
            ask()
    direct = _adapter(tmp_path, "wekafs", "train", "/mnt/weka", "rw,forcedirect")
    assert direct.facts("/mnt/weka").details["direct_by_default"] == "yes"


def test_wekafs_has_no_totals_to_subtract(tmp_path, fakes):
    """Rates make no counters: refused by name, and the program is not asked in vain."""
    fakes.add("weka", {})
    with pytest.raises(CannotError, match="only Bytes/Sec over whole minutes") as caught:
        _adapter(tmp_path, "wekafs", "10.108.97.126/train", "/mnt/weka").counters()
    assert caught.value.ability == "counters"
    assert fakes.calls == []


def test_wekafs_that_is_not_listed_says_so(tmp_path, fakes):
    """A user who may not list it, and output that is no JSON."""
    fakes.add("weka", {"fs -J": "weka_fs"})
    assert "does not list other" in _adapter(tmp_path, "wekafs", "b/other", "/w").facts("/w").cannot["facts"]
    fakes.add("weka", {"fs -J": "lfs_df"})
    assert "prints no JSON" in _adapter(tmp_path, "wekafs", "b/train", "/w").facts("/w").cannot["facts"]


# --- BeeGFS


@pytest.mark.parametrize("generation", [7, 8])
def test_beegfs_of_both_generations(tmp_path, fakes, generation):
    """Targets, pattern, placement; a pattern set on the directory; a count that there is not."""
    if generation == 8:
        entry = {f"entry info --retro --verbose /bee/{name}": "beegfs_entry" for name in ("data", "data/shard")}
        setting = {"entry set --num-targets=2 --chunk-size=1048576 /bee/data": ""}
        fakes.add("beegfs", {**entry, **setting, "target list": "beegfs_targets"})
    else:
        entry = {f"--getentryinfo --verbose /bee/{name}": "beegfs_ctl_entry" for name in ("data", "data/shard")}
        setting = {"--setpattern --numtargets=2 --chunksize=1048576 /bee/data": ""}
        listing = {"--listtargets --nodetype=storage --state --mount=/bee": "beegfs_ctl_targets"}
        fakes.add("beegfs-ctl", {**entry, **setting, **listing})
    adapter = _adapter(tmp_path, "beegfs", "beegfs_nodev", "/bee", "rw,cfgFile=/etc/beegfs/beegfs-client.conf")
    facts = adapter.facts("/bee/data")
    assert facts.details["pattern"] == "RAID0"
    assert len(facts.targets) == (2 if generation == 8 else 3)
    assert adapter.placement("/bee/data/shard").targets == (("101", "201") if generation == 8 else ("101", "202"))
    assert adapter.prepare("/bee/data", beegfs.Options(count=2, size="1MiB"))["pattern"] == "RAID0"
    with pytest.raises(PlaceError, match=r"stripe count = 9: there are \d storage targets"):
        adapter.prepare("/bee/data", beegfs.Options(count=9))
    with pytest.raises(PlaceError, match="powers of two from 64 KiB"):
        adapter.prepare("/bee/data", beegfs.Options(size="100KiB"))


# --- NFS


def test_nfs_counts_what_it_asked_of_the_server(tmp_path, fakes):
    """Of two mounts its own: bytes of READ and WRITE calls, not those that the page cache served."""
    _put(tmp_path, "/proc/self/mountstats", "mountstats")
    options = "rw,relatime,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=8,addr=10.0.0.9"
    adapter = _adapter(tmp_path, "nfs4", "filer:/ckpt", "/ckpt", options)
    counters = adapter.counters()
    assert (counters.read_bytes, counters.write_bytes) == (4 << 30, 3 << 30)
    assert counters.values["normal_read"] == 9437184000
    assert counters.values["write.calls"] == 3072
    facts = adapter.facts("/ckpt")
    assert (facts.server, facts.version, facts.details["nconnect"]) == ("filer", "NFS 4.2", "8")
    with pytest.raises(CannotError, match="no bytes of this mount"):
        _adapter(tmp_path, "nfs4", "filer:/other", "/other").counters()
