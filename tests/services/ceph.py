"""CephFS: a monitor, a manager, object stores in memory, a metadata server, and one ceph-fuse client."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.require import missing
from tests.services.machine import Network, folder, mounted, need, network, succeeds, until

_ADDRESS = "10.95.0.1"


@dataclass(frozen=True)
class Ceph:
    """A running file system.

    Attributes:
        folder: free for the test's own files.
        mount: of the client.
        tools: a folder for PATH: `ceph`, as it works beside the daemons.
        osds: how many object stores.
    """

    folder: Path
    mount: Path
    tools: Path
    osds: int


@contextlib.contextmanager
def ceph(osds: int = 2) -> Iterator[Ceph]:
    """Bring it up (ten to fourteen seconds, 700 MiB), and take it down at once.

    Only where CKPTSTORM_CEPH is set: CI has other real file systems, and this one is slow to start.
    """
    if not os.environ.get("CKPTSTORM_CEPH"):
        missing("ceph", "CKPTSTORM_CEPH is not set")
    need("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "monmaptool")
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder("ceph"))
        own = stack.enter_context(network("ceph"))
        own.address("lo", f"{_ADDRESS}/24")
        for name in ("mon", "mgr", "mds", "run", "log", "tools", "mount"):
            (place / name).mkdir()
        identity = str(uuid.uuid4())
        configuration = _configured(place, identity)
        tools = _tools(place, own, configuration)
        _start(place, own, configuration, identity)
        for number in range(osds):
            _osd(place, own, configuration, tools, number)
        for words in (
            ("osd", "pool", "create", "d", "8"),
            ("osd", "pool", "create", "m", "8"),
            ("fs", "new", "fs", "m", "d"),
        ):
            until(lambda words=words: succeeds(tools / "ceph", *words), f"ceph {' '.join(words)}")
        own.run("ceph-mds", "-c", configuration, "-i", "a")
        mount = place / "mount"
        client = own.words(
            "ceph-fuse", mount, "-c", configuration, "--client_fs", "fs", "-n", "client.admin",
            f"--pid-file={place}/run/client.pid",
        )  # fmt: skip
        until(lambda: succeeds(*client), "the metadata server takes clients")
        stack.enter_context(mounted(mount))
        yield Ceph(place, mount, place / "tools", osds)


def _configured(place: Path, identity: str) -> Path:
    options = {
        "fsid": identity,
        "mon_host": f"v1:{_ADDRESS}:6789",
        "mon_initial_members": "a",
        "auth_cluster_required": "none",
        "auth_service_required": "none",
        "auth_client_required": "none",
        "public_network": "10.95.0.0/24",
        "osd_pool_default_size": 1,
        "osd_pool_default_min_size": 1,
        "mon_allow_pool_size_one": "true",
        "osd_crush_chooseleaf_type": 0,
        "mon_max_pg_per_osd": 1000,
        "osd_objectstore": "memstore",
        "memstore_device_bytes": 1 << 30,
        "run_dir": place / "run",
        "admin_socket": f"{place}/run/$cluster-$name.asok",
        "pid_file": f"{place}/run/$name.pid",
        "log_file": f"{place}/log/$name.log",
        "mon_data": place / "mon",
        "mgr_data": place / "mgr",
        "mds_data": place / "mds",
        "osd_data": f"{place}/osd$id",
        "mon_data_avail_warn": 1,
        "mon_data_avail_crit": 0,
        "ms_bind_msgr2": "false",
        "crush_location": "root=default host=vm",
    }
    path = place / "ceph.conf"
    path.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in options.items()))
    return path


def _tools(place: Path, own: Network, configuration: Path) -> Path:
    script = place / "tools" / "ceph"
    script.write_text(f'#!/bin/sh\nexec {" ".join(own.words("/usr/bin/ceph"))} -c {configuration} "$@"\n')
    script.chmod(0o755)
    return place / "tools"


def _start(place: Path, own: Network, configuration: Path, identity: str) -> None:
    addresses = ("--addv", "a", f"[v1:{_ADDRESS}:6789]")
    own.run("monmaptool", "--create", "--fsid", identity, *addresses, place / "monmap", "--clobber")
    own.run("ceph-mon", "-c", configuration, "--mkfs", "-i", "a", "--monmap", place / "monmap")
    own.run("ceph-mon", "-c", configuration, "-i", "a")
    own.run("ceph-mgr", "-c", configuration, "-i", "x")


def _osd(place: Path, own: Network, configuration: Path, tools: Path, number: int) -> None:
    """The first commands of a cluster without authentication may be refused: they are tried again."""
    (place / f"osd{number}").mkdir()
    identity = str(uuid.uuid4())
    until(lambda: succeeds(tools / "ceph", "osd", "new", identity, str(number)), "the monitor takes commands")
    make = own.words("ceph-osd", "-c", configuration, "-i", str(number), "--mkfs", "--osd-uuid", identity)
    until(lambda: succeeds(*make), f"the store of osd.{number} is made")
    begin = own.words("ceph-osd", "-c", configuration, "-i", str(number))
    until(lambda: succeeds(*begin), f"osd.{number} starts")
