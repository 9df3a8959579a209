"""What services are made of: folders, commands, network namespaces, processes, mounts; each undone by its own exit."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.require import missing

#: Far above what any step takes: a hang fails the test, and names the command.
PATIENCE_S = 60.0


def need(part: str, *programs: str) -> None:
    """Skip (or fail, where `part` is required) without root, FUSE, namespaces or one of these programs."""
    absent = [name for name in programs if shutil.which(name) is None]
    if absent:
        missing(part, f"{', '.join(absent)}: not installed")
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        missing(part, "needs root and /dev/fuse")
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False).returncode:
        missing(part, "needs network and mount namespaces")


def run(*command: str | Path, patience_s: float = PATIENCE_S) -> str:
    """Run a command to its end and return what it printed; an assertion with both streams when it fails."""
    words = [str(word) for word in command]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=patience_s, check=False)
    assert ended.returncode == 0, f"{' '.join(words)}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def until(is_so: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    end = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < end, f"{what}: not so after {patience_s:g} s"
        time.sleep(0.05)


def succeeds(*command: str | Path) -> bool:
    """Whether a command ends with 0."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0


@contextlib.contextmanager
def folder(name: str) -> Iterator[Path]:
    """A folder of the service's own, with a path short enough for a UNIX socket; removed with all that is in it."""
    path = Path(tempfile.mkdtemp(prefix=f"ckptstorm-{name}-", dir="/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        assert not any(point.startswith(f"{path}/") for point in points)
        shutil.rmtree(path)


@contextlib.contextmanager
def mounted(point: Path) -> Iterator[Path]:
    """Unmount a mount at the end, by force if its server is gone."""
    try:
        yield point
    finally:
        if not succeeds("umount", point):
            succeeds("umount", "--lazy", "--force", point)


@dataclass(frozen=True)
class Network:
    """A network namespace of our own: addresses and ports in it meet nobody else's."""

    name: str

    def words(self, *command: str | Path) -> list[str]:
        """A command line that runs in it (with the machine's own mounts, unlike `ip netns exec`)."""
        return ["nsenter", f"--net=/var/run/netns/{self.name}", *(str(word) for word in command)]

    def run(self, *command: str | Path) -> str:
        """Run a command in it."""
        return run(*self.words(*command))

    def address(self, device: str, address: str) -> None:
        """Give a device an address, and bring it up."""
        run("ip", "-n", self.name, "addr", "add", address, "dev", device)
        run("ip", "-n", self.name, "link", "set", device, "up")

    def slow(self, device: str, rate: str) -> None:
        """Send no faster than this ("200mbit") from a device, by a token bucket."""
        bucket = ("tbf", "rate", rate, "burst", "256kb", "latency", "100ms")
        run("tc", "-n", self.name, "qdisc", "replace", "dev", device, "root", *bucket)

    def full_speed(self, device: str) -> None:
        """Undo `slow`."""
        succeeds("tc", "-n", self.name, "qdisc", "del", "dev", device, "root")

    def pids(self) -> list[int]:
        """The processes in it."""
        return [int(pid) for pid in run("ip", "netns", "pids", self.name).split()]


@contextlib.contextmanager
def network(purpose: str) -> Iterator[Network]:
    """A namespace with its loopback up; whatever still runs in it at the end is killed."""
    made = Network(f"ckpt-{purpose}-{secrets.token_hex(3)}")
    run("ip", "netns", "add", made.name)
    try:
        run("ip", "-n", made.name, "link", "set", "lo", "up")
        yield made
    finally:
        for pid in made.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not made.pids(), f"processes in {made.name} end")
        run("ip", "netns", "del", made.name)


def wire(one: Network, other: Network, one_device: str, subnet: str) -> None:
    """A cable between two namespaces: `one` is SUBNET.2 on `one_device`, `other` SUBNET.1 on a device named alike.

    Args:
        one, other: `other` is the router that `one` reaches everything through.
        one_device: name of the device in `one`.
        subnet: "10.99.3".
    """
    far = f"v-{subnet.replace('.', '-')}"
    run("ip", "link", "add", far, "netns", other.name, "type", "veth", "peer", "name", one_device, "netns", one.name)
    other.address(far, f"{subnet}.1/24")
    one.address(one_device, f"{subnet}.2/24")
    run("ip", "-n", one.name, "route", "add", "default", "via", f"{subnet}.1")
