"""A MooseFS cluster in a box: a master, chunk servers, and nodes with a client each, every one on a NIC of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.services.loop import loop
from tests.services.machine import Network, folder, mounted, need, network, run, succeeds, until, wire

#: MooseFS's own tools ask the master themselves, so they run in a node's network.
_TOOLS = ("mfsfileinfo", "mfsgetgoal", "mfssetgoal", "mfsgetquota", "mfssetquota", "mfscheckfile", "mfsdirinfo")
#: MooseFS refuses 127.0.0.0/8, so the master has an address of its own on its namespace's loopback.
_MASTER = "10.99.0.1"
_NIC = "eth0"


@dataclass(frozen=True)
class ChunkServer:
    """A chunk server: a process, a disk, a NIC.

    Attributes:
        address: as the master and `mfsfileinfo` name it ("10.98.1.2").
        port: of it.
        network: its namespace; its NIC is `eth0` there.
        pid: of the process.
    """

    address: str
    port: int
    network: Network
    pid: int

    def hang(self) -> None:
        """Stop it in the middle of whatever it does."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo `hang`."""
        os.kill(self.pid, signal.SIGCONT)

    def die(self) -> None:
        """Kill it for good."""
        os.kill(self.pid, signal.SIGKILL)

    def slow(self, rate: str) -> None:
        """Let its NIC send no faster ("100mbit"): reads from it are slow."""
        self.network.slow(_NIC, rate)

    def full_speed(self) -> None:
        """Undo `slow`."""
        self.network.full_speed(_NIC)


@dataclass(frozen=True)
class Node:
    """A client: its mount, and the NIC that its traffic goes through.

    Attributes:
        mount: its own mount of the file system.
        network: its namespace; its NIC is `eth0` there.
    """

    mount: Path
    network: Network

    def slow(self, rate: str) -> None:
        """Let its NIC send no faster ("200mbit"): its saves are slow."""
        self.network.slow(_NIC, rate)

    def full_speed(self) -> None:
        """Undo `slow`."""
        self.network.full_speed(_NIC)


@dataclass(frozen=True)
class MooseFS:
    """A running cluster.

    Attributes:
        folder: free for the test's own files.
        tools: a folder for PATH: mfsfileinfo and the like, as they work on a node.
        nodes, servers: as asked for.
    """

    folder: Path
    tools: Path
    nodes: tuple[Node, ...]
    servers: tuple[ChunkServer, ...]


@contextlib.contextmanager
def moosefs(nodes: int = 2, servers: int = 3, goal: int = 1, size: str = "512M") -> Iterator[MooseFS]:
    """Bring it up (about three seconds), and take it down at once: its data is thrown away."""
    need("moosefs", "mfsmaster", "mfschunkserver", "mfsmount", "tc")
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder("moosefs"))
        middle = stack.enter_context(network("mfs"))
        _start_master(place, middle)
        made = [_server(stack, place, middle, number, size) for number in range(1, servers + 1)]
        clients = [_node(stack, place, middle, number) for number in range(1, nodes + 1)]
        _wait_until_writable(clients[0].mount, [place / f"disk{number}" for number in range(1, servers + 1)])
        tools = _tools(place, clients)
        run(tools / "mfssetgoal", "-r", str(goal), clients[0].mount)
        yield MooseFS(place, tools, tuple(clients), tuple(made))


def _tools(place: Path, nodes: list[Node]) -> Path:
    """The master answers a tool only from the address of the client whose mount it is asked about."""
    folder_of_tools = place / "tools"
    folder_of_tools.mkdir()
    networks = "\n".join(f"  {node.mount.stat().st_dev}) net={node.network.name} ;;" for node in nodes)
    for name in _TOOLS:
        real = shutil.which(name)
        script = folder_of_tools / name
        script.write_text(
            f'#!/bin/bash\ncase $(stat -c %d "${{@: -1}}") in\n{networks}\nesac\n'
            f'exec nsenter --net=/var/run/netns/$net {real} "$@"\n'
        )
        script.chmod(0o755)
    return folder_of_tools


def _start_master(place: Path, middle: Network) -> None:
    middle.address("lo", f"{_MASTER}/24")
    middle.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    data = place / "master"
    data.mkdir()
    shutil.copy("/var/lib/mfs/metadata.mfs.empty", data / "metadata.mfs")
    (place / "exports.cfg").write_text("10.0.0.0/8 / rw,alldirs,admin,maproot=0:0\n")
    (place / "topology.cfg").write_text("")
    options = {
        "DATA_PATH": data,
        "LOCK_FILE": data / ".lock",
        "EXPORTS_FILENAME": place / "exports.cfg",
        "TOPOLOGY_FILENAME": place / "topology.cfg",
        "MATOML_LISTEN_HOST": _MASTER,
        "MATOCS_LISTEN_HOST": _MASTER,
        "MATOCL_LISTEN_HOST": _MASTER,
    }
    _start(middle, "mfsmaster", _configured(place / "master.cfg", options))


def _server(stack: contextlib.ExitStack, place: Path, middle: Network, number: int, size: str) -> ChunkServer:
    # On a disk that is nearly full a chunk server sees no free space: each gets an image of its own.
    disk = stack.enter_context(loop("ext4", size, place, f"disk{number}"))
    own = stack.enter_context(network(f"cs{number}"))
    wire(own, middle, _NIC, f"10.98.{number}")
    data = place / f"server{number}"
    data.mkdir()
    (place / f"disks{number}.cfg").write_text(f"{disk.mount}\n")
    address, port = f"10.98.{number}.2", 9430 + number
    options = {
        "DATA_PATH": data,
        "LOCK_FILE": data / ".lock",
        "HDD_CONF_FILENAME": place / f"disks{number}.cfg",
        "HDD_LEAVE_SPACE_DEFAULT": "64MiB",
        "MASTER_HOST": _MASTER,
        "BIND_HOST": address,
        "CSSERV_LISTEN_HOST": address,
        "CSSERV_LISTEN_PORT": port,
    }
    _start(own, "mfschunkserver", _configured(place / f"server{number}.cfg", options))
    (pid,) = own.pids()
    return ChunkServer(address, port, own, pid)


def _node(stack: contextlib.ExitStack, place: Path, middle: Network, number: int) -> Node:
    own = stack.enter_context(network(f"n{number}"))
    wire(own, middle, _NIC, f"10.97.{number}")
    mount = place / f"node{number}"
    mount.mkdir()
    command = own.words("mfsmount", mount, "-H", _MASTER, "-o", "nosuid")
    until(lambda: succeeds(*command), "the master takes clients")
    stack.enter_context(mounted(mount))
    return Node(mount, own)


def _wait_until_writable(mount: Path, disks: list[Path]) -> None:
    """Until every chunk server has registered its disk, and a file can be written."""
    expected = sum(os.statvfs(disk).f_blocks * os.statvfs(disk).f_frsize for disk in disks)

    def is_writable() -> bool:
        # A master that knows only some of its servers yet would put everything on those.
        figures = os.statvfs(mount)
        if figures.f_blocks * figures.f_frsize < 0.9 * expected:
            return False
        probe = mount / ".probe"
        try:
            probe.write_text("ok")
        except OSError:
            return False
        probe.unlink()
        return True

    until(is_writable, f"{len(disks)} chunk servers take writes")


def _configured(path: Path, options: dict[str, object]) -> Path:
    common = {"WORKING_USER": "root", "WORKING_GROUP": "root", "LOCK_MEMORY": 0, "NICE_LEVEL": 0}
    path.write_text("".join(f"{key} = {value}\n" for key, value in (common | options).items()))
    return path


def _start(own: Network, program: str, configuration: Path) -> None:
    own.run(program, "-c", configuration, "start")
