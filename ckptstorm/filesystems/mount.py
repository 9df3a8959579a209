"""Which mount a directory is on, and what it says of itself.

The type comes from /proc/self/mountinfo: the magic of statfs cannot tell FUSE file systems apart.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

#: Types whose data lives in the clients' memory only: nothing on them is a checkpoint.
MEMORY_TYPES = ("tmpfs", "ramfs", "devtmpfs")
#: Types whose page cache on this node is all the caching there is, so that page residency proves something.
#: Not so for GPFS and WekaFS (a cache of their own) and FUSE daemons (a cache in the daemon).
RESIDENCY_TYPES = ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "lustre", "nfs", "nfs4", "ceph", "beegfs")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount, and the file system's figures.

    Attributes:
        type, source, options, mount_point: as the kernel lists them.
        block_size_bytes: st_blksize of the directory, which shapes buffered writers and readers.
        size_bytes, free_bytes: capacity, and what an ordinary user may still write.
        inode_count, free_inode_count: 0 where the file system has no such number.
        name_bytes_max: longest file name.
    """

    type: str
    source: str
    options: str
    mount_point: str
    block_size_bytes: int
    size_bytes: int
    free_bytes: int
    inode_count: int
    free_inode_count: int
    name_bytes_max: int


def mount_of(directory: str) -> Mount:
    """The mount that an existing directory is on.

    Raises:
        OSError: the directory cannot be looked at.
    """
    path = os.path.realpath(directory)
    figures, status = os.statvfs(path), os.stat(path)
    kind, source, options, mount_point = _listed(path, status.st_dev)
    return Mount(
        kind,
        source,
        options,
        mount_point,
        status.st_blksize,
        figures.f_blocks * figures.f_frsize,
        figures.f_bavail * figures.f_frsize,
        figures.f_files,
        figures.f_favail,
        figures.f_namemax,
    )


def _listed(path: str, device: int) -> tuple[str, str, str, str]:
    """(type, source, options, mount point) of the deepest mount above `path`; later mounts cover earlier ones."""
    number = f"{os.major(device)}:{os.minor(device)}"
    best, best_rank = ("unknown", "unknown", "", "/"), (-1, False)
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, source, *super_options) = left.split(" "), right.split(" ")
        point = _unescape(fields[4])
        if path != point and not path.startswith(point.rstrip("/") + "/"):
            continue
        rank = (len(point), fields[2] == number)
        if rank >= best_rank:
            options = ",".join([fields[5], *super_options])
            best, best_rank = (kind, _unescape(source), options, point), rank
    return best


def _unescape(text: str) -> str:
    """The kernel writes space, tab, newline and backslash as octal."""
    for octal, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        text = text.replace(octal, character)
    return text
