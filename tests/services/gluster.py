"""GlusterFS: bricks on loop images (each can be throttled, stopped, killed), and as many clients as asked for."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.services.loop import Loop, loop
from tests.services.machine import Network, folder, mounted, need, network, run, until

_ADDRESS = "10.96.0.1"
_VOLUME = "v0"


@dataclass(frozen=True)
class Brick:
    """A brick: a disk, and the process that serves it.

    Attributes:
        name: as gluster names it ("10.96.0.1:/tmp/…/brick1/brick").
        path: of the brick on its disk: where its share of the files can be seen.
        disk: the loop image under it; `disk.throttle(bytes_per_s)` makes one slow server.
        pid: of its glusterfsd.
    """

    name: str
    path: Path
    disk: Loop
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


@dataclass(frozen=True)
class Gluster:
    """A running volume.

    Attributes:
        folder: free for the test's own files.
        volume: its name.
        source: as a mount of it names it.
        mounts: one a client.
        bricks: one a server.
        network: where all of it runs.
        tools: a folder for PATH: `gluster`, as it works beside the daemon.
    """

    folder: Path
    volume: str
    source: str
    mounts: tuple[Path, ...]
    bricks: tuple[Brick, ...]
    network: Network
    tools: Path


@contextlib.contextmanager
def gluster(
    clients: int = 1, bricks: int = 2, kind: tuple[str, ...] = (), options: dict[str, str] | None = None
) -> Iterator[Gluster]:
    """Bring a volume up (about four seconds), and take it down at once.

    Args:
        clients: how many mounts.
        bricks: how many.
        kind: of the volume: () is distributed; ("replica", "2") …
        options: of the volume ({"features.shard": "on"}).
    """
    need("gluster", "glusterd", "gluster", "glusterfs", "mkfs.xfs")
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder("gluster"))
        own = stack.enter_context(network("gluster"))
        own.address("lo", f"{_ADDRESS}/24")
        tools = _start_daemon(place, own)
        disks = [stack.enter_context(loop("xfs", "1G", place, f"brick{number}")) for number in range(1, bricks + 1)]
        for disk in disks:
            (disk.mount / "brick").mkdir()
        names = [f"{_ADDRESS}:{disk.mount}/brick" for disk in disks]
        ask = (tools / "gluster", "--mode=script", "volume")
        run(*ask, "create", _VOLUME, *kind, "transport", "tcp", *names, "force")
        for key, value in (options or {}).items():
            run(*ask, "set", _VOLUME, key, value)
        run(*ask, "start", _VOLUME)
        mounts = tuple(_client(stack, place, own, number) for number in range(1, clients + 1))
        made = tuple(Brick(n, d.mount / "brick", d, _pid_of(own, d.mount)) for n, d in zip(names, disks, strict=True))
        yield Gluster(place, _VOLUME, f"{_ADDRESS}:/{_VOLUME}", mounts, made, own, tools)


def _start_daemon(place: Path, own: Network) -> Path:
    for name in ("state", "run", "tools"):
        (place / name).mkdir()
    Path("/var/run/gluster").mkdir(exist_ok=True)
    options = {
        "type": "mgmt/glusterd",
        "option working-directory": place / "state",
        "option run-directory": place / "run",
        "option transport-type": "socket",
        "option transport.socket.bind-address": _ADDRESS,
        "option transport.socket.listen-port": 24007,
        "option glusterd-sockfile": place / "run" / "glusterd.socket",
        "option ping-timeout": 0,
        "option event-threads": 1,
        "option max-port": 60999,
    }
    lines = "".join(f"    {key} {value}\n" for key, value in options.items())
    (place / "glusterd.vol").write_text(f"volume management\n{lines}end-volume\n")
    own.run("glusterd", "-f", place / "glusterd.vol", "-p", place / "glusterd.pid", "-l", place / "glusterd.log")
    script = place / "tools" / "gluster"
    socket = place / "run" / "glusterd.socket"
    script.write_text(f'#!/bin/sh\nexec {" ".join(own.words("/usr/sbin/gluster"))} --glusterd-sock={socket} "$@"\n')
    script.chmod(0o755)
    until(lambda: _answers(script), "glusterd answers")
    return place / "tools"


def _answers(script: Path) -> bool:
    try:
        run(script, "pool", "list")
    except AssertionError:
        return False
    return True


def _client(stack: contextlib.ExitStack, place: Path, own: Network, number: int) -> Path:
    mount = place / f"client{number}"
    mount.mkdir()
    own.run("mount", "-t", "glusterfs", "-o", f"log-file={place}/client{number}.log", f"{_ADDRESS}:/{_VOLUME}", mount)
    stack.enter_context(mounted(mount))
    return mount


def _pid_of(own: Network, disk: Path) -> int:
    """The glusterfsd of a brick: the process in the namespace whose command line names it."""
    for pid in own.pids():
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "glusterfsd" in words[0] and f"{disk}/brick" in words:
            return pid
    raise AssertionError(f"no glusterfsd serves {disk}")
