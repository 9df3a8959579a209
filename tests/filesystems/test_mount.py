"""Mounts: found in the kernel's list, told apart where statfs cannot, compared between nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptstorm.filesystems import FILE_SYSTEMS, adapter_class, mount
from ckptstorm.filesystems.machine import Machine, NoAnswerError
from ckptstorm.filesystems.mount import Mount, differs, mount_of

_LUSTRE = Mount("lustre", "10.0.0.1@o2ib:/scratch", "rw,flock,lazystatfs", "/scratch", 4096, 0, 0, 0, 0, 255)


def _machine(tmp_path, mountinfo):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(mountinfo)
    return Machine(str(tmp_path))


def test_the_deepest_mount_counts_and_a_later_one_covers_it(tmp_path):
    """Of mounts above a directory the deepest is its own; two on one point: the later; names are unescaped."""
    place = tmp_path / "a b"
    place.mkdir()
    escaped = str(place).replace(" ", r"\040")
    machine = _machine(
        tmp_path,
        "1 0 8:1 / / rw - ext4 /dev/vda1 rw\n"
        f"2 1 0:40 / {escaped} rw,noatime shared:7 - fuse mfs\\04310.99.0.1:9421 rw,user_id=0\n"
        f"3 1 0:41 / {escaped} rw - fuse.juicefs JuiceFS:my\\040store rw\n"
        f"4 1 0:42 / {escaped}x rw - xfs /dev/sdb rw\n",
    )
    found = mount_of(str(place), machine)
    assert (found.type, found.source, found.mount_point) == ("fuse.juicefs", "JuiceFS:my store", str(place))
    assert found.options == "rw,rw"


def test_statfs_tells_the_type_where_the_list_does_not(tmp_path, monkeypatch):
    """In a container without the mount in its list, the magic number is all there is."""
    machine = _machine(tmp_path, "")
    monkeypatch.setattr(mount, "statfs_magic", lambda path: 0x0BD00BD0)
    assert mount_of(str(tmp_path), machine).type == "lustre"
    monkeypatch.setattr(mount, "statfs_magic", lambda path: 0x12345)
    assert mount_of(str(tmp_path), machine).type == "unknown"


def test_the_magic_number_is_the_kernels():
    """proc has 0x9fa0, on every architecture."""
    assert mount.statfs_magic("/proc") == 0x9FA0
    assert mount.statfs_magic("/no/such/place") == 0


def test_an_option_is_found_by_its_name():
    """rsize=65536 is the value of rsize, flock is set, sync is not."""
    found = replace(_LUSTRE, options="rw,flock,rsize=65536")
    assert [found.option(name) for name in ("rsize", "flock", "sync")] == ["65536", "yes", ""]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, ""),
        ({"type": "ext4", "source": "/dev/sda1"}, "ext4 from /dev/sda1 is mounted there, rank 0 has lustre from 10.0"),
        ({"source": "10.0.0.1@o2ib:/home"}, "lustre from 10.0.0.1@o2ib:/home is mounted there"),
        ({"options": "rw,lazystatfs,localflock"}, "mounted there with localflock, where rank 0 has flock"),
        ({"options": "rw,flock,lazystatfs,clientaddr=10.0.0.7"}, ""),
    ],
)
def test_what_differs_between_two_nodes_is_named(change, says):
    """Another type, source or option is a difference; a node's own address is none."""
    assert says in differs(_LUSTRE, replace(_LUSTRE, **change))
    assert bool(says) == bool(differs(_LUSTRE, replace(_LUSTRE, **change)))


@pytest.mark.parametrize(
    ("kind", "source", "adapter"),
    [
        ("xfs", "/dev/sda1", "local"),
        ("ext4", "/dev/sda1", "local"),
        ("tmpfs", "tmpfs", "memory"),
        ("fuse.sshfs", "host:/x", "generic"),
        ("overlay", "overlay", "generic"),
    ],
)
def test_each_mount_has_its_adapter(kind, source, adapter):
    """Type and source decide."""
    assert adapter_class(replace(_LUSTRE, type=kind, source=source)).name == adapter
    assert list(FILE_SYSTEMS)[-1] == "generic"


def test_a_tool_that_fails_says_so(tmp_path, monkeypatch):
    """Missing, failing and hanging programs are told apart, each with its name."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(NoAnswerError, match="lfs is not on PATH"):
        Machine().ask("lfs", "df")
    script = tmp_path / "lfs"
    script.write_text("#!/bin/sh\necho 'error: cannot reach the MDS' >&2\nexit 5\n")
    script.chmod(0o755)
    with pytest.raises(NoAnswerError, match="lfs df: error: cannot reach the MDS"):
        Machine().ask("lfs", "df")
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(NoAnswerError, match=r"lfs df: no answer within 0\.2 s"):
        Machine(patience_s=0.2).ask("lfs", "df")
