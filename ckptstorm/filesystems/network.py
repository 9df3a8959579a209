"""Bytes through the network interfaces that a client daemon uses: for file systems that count none themselves.

Everything else on the node passes there too, so this is the most that a file system can have moved: fewer bytes
than a reader was given prove a cache; more prove nothing. Traffic by RDMA is not counted in it.
"""

from __future__ import annotations

import os
import re

from ckptstorm.filesystems.contract import CannotError, Counters
from ckptstorm.filesystems.machine import Machine, NoAnswerError
from ckptstorm.filesystems.mount import Mount

_READ, _WRITTEN = 0, 8  # columns of /proc/net/dev behind the name: bytes received, bytes sent


def counters_of(machine: Machine, program: str, mount: Mount, values: dict[str, int]) -> Counters:
    """What all interfaces of a client daemon's network moved.

    Args:
        machine: this one.
        program: the daemon's name ("mfsmount").
        mount: names the one daemon among several.
        values: counters of the file system's own, kept beside.

    Raises:
        CannotError: the daemon is not found, or its interfaces may not be looked at.
    """
    pid = daemon(machine, program, mount)
    try:
        lines = machine.read(f"/proc/{pid}/net/dev").splitlines()[2:]
    except NoAnswerError as error:
        raise CannotError("counters", f"the network of {program} cannot be read: {error}") from None
    devices = {
        name.strip(): [int(word) for word in rest.split()] for name, _, rest in (line.partition(":") for line in lines)
    }
    for name, columns in devices.items():
        values |= {f"{name}.received_bytes": columns[_READ], f"{name}.sent_bytes": columns[_WRITTEN]}
    read = sum(columns[_READ] for columns in devices.values())
    written = sum(columns[_WRITTEN] for columns in devices.values())
    return Counters(f"network of {network(machine, pid)}", "network", read, written, values)


def network(machine: Machine, pid: int) -> str:
    """The network namespace of a process, by its inode: the same interfaces are counted once."""
    try:
        return str(machine.path(f"/proc/{pid}/ns/net").stat().st_ino)
    except OSError:
        return f"process {pid}"


def daemon(machine: Machine, program: str, mount: Mount) -> int:
    """The process that serves a mount: the one whose command line names program and mount point.

    Raises:
        CannotError: there is none, or several that cannot be told apart.
    """
    found: dict[int, list[str]] = {}
    for name in machine.names("/proc"):
        if not name.isdigit():
            continue
        try:
            words = re.split(r"[\0 ()]+", machine.read(f"/proc/{name}/cmdline"))
        except NoAnswerError:
            continue  # it has ended meanwhile, or is not ours to look at
        if words[0].rpartition("/")[2] == program:
            found[int(name)] = words
    named = [pid for pid, words in found.items() if any(_is_mounted_at(mount, word) for word in words)]
    chosen = named or list(found)
    if len(chosen) != 1:
        raise CannotError("counters", f"{len(chosen)} processes called {program} serve {mount.mount_point}, not one")
    return chosen[0]


def _is_mounted_at(mount: Mount, word: str) -> bool:
    """Whether a word of a daemon's command line is the mount point, or that of which ours is a bind mount."""
    if word == mount.mount_point:
        return True
    try:
        device = os.stat(word).st_dev if word.startswith("/") else 0
    except OSError:
        return False
    return f"{os.major(device)}:{os.minor(device)}" == mount.device
