"""Which mount a directory is on, and what it says of itself.

The type comes from /proc/self/mountinfo: the magic of statfs cannot tell FUSE file systems apart. The magic
tells the type where the list does not have the mount (in some containers).
"""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass

from ckptstorm.filesystems.machine import Machine, NoAnswerError

#: Types whose data lives in the clients' memory only: nothing on them is a checkpoint.
MEMORY_TYPES = ("tmpfs", "ramfs", "devtmpfs")
#: statfs magic to type (statfs(2); linux/magic.h).
MAGICS = {
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
    0x6969: "nfs",
    0x00C36400: "ceph",
    0x65735546: "fuse",
    0x58465342: "xfs",
    0xEF53: "ext4",
    0x9123683E: "btrfs",
    0x01021994: "tmpfs",
    0x794C7630: "overlay",
}
_UNLISTED = "unknown"
#: Options that are a node's own even where the mount is the same: they name the client, or count.
_OWN_OPTIONS = (
    "clientaddr", "addr", "mountaddr", "mountport", "port", "user_id", "group_id", "rootmode", "fd", "client_id",
    "container_name",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount, and the file system's figures.

    Attributes:
        type, source, options, mount_point: as the kernel lists them.
        block_size_bytes: st_blksize of the directory, which shapes buffered writers and readers.
        size_bytes, free_bytes: capacity, and what an ordinary user may still write.
        inode_count, free_inode_count: 0 where the file system has no such number.
        name_bytes_max: longest file name.
        magic: f_type of statfs.
        fragment_bytes: f_frsize, the unit in which space is given out.
        device: "major:minor" of st_dev.
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
    magic: int = 0
    fragment_bytes: int = 0
    device: str = ""

    def option(self, name: str) -> str:
        """The value of an option ("rsize" -> "1048576"), "" when it is not set; "yes" for one without a value."""
        for word in self.options.split(","):
            key, equals, value = word.partition("=")
            if key == name:
                return value if equals else "yes"
        return ""

    @property
    def identity(self) -> tuple[str, str]:
        """What must be the same on every node: type and source (of NFS the export: any of its addresses may serve)."""
        return (self.type, self.source.rpartition(":")[2] if self.type in ("nfs", "nfs4") else self.source)

    @property
    def shared_options(self) -> frozenset[str]:
        """The options that should be the same on every node."""
        return frozenset(word for word in self.options.split(",") if word.partition("=")[0] not in _OWN_OPTIONS)


def mount_of(directory: str, machine: Machine | None = None) -> Mount:
    """The mount that an existing directory is on.

    Raises:
        OSError: the directory cannot be looked at.
    """
    path = os.path.realpath(directory)
    figures, status, magic = os.statvfs(path), os.stat(path), statfs_magic(path)
    kind, source, options, mount_point = _listed(path, status.st_dev, machine or Machine())
    if kind == _UNLISTED:
        kind = MAGICS.get(magic, kind)
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
        magic,
        figures.f_frsize,
        _number(status.st_dev),
    )


def differs(ours: Mount, theirs: Mount) -> str:
    """What is different between two nodes' mounts of one directory; "" when nothing that should not be.

    Args:
        ours: rank 0's.
        theirs: the other node's.
    """
    if ours.identity != theirs.identity:
        return f"{theirs.type} from {theirs.source} is mounted there, rank 0 has {ours.type} from {ours.source}"
    only_theirs = sorted(theirs.shared_options - ours.shared_options)
    only_ours = sorted(ours.shared_options - theirs.shared_options)
    if only_ours or only_theirs:
        there, here = ",".join(only_theirs) or "nothing", ",".join(only_ours) or "nothing"
        return f"it is mounted there with {there}, where rank 0 has {here}"
    return ""


class _StatFs(ctypes.Structure):
    """struct statfs begins with its type, a long; the rest is of no concern."""

    _fields_ = (("f_type", ctypes.c_long), ("rest", ctypes.c_char * 248))


def statfs_magic(path: str) -> int:
    """f_type of statfs; 0 when it cannot be told."""
    found = _StatFs()
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), ctypes.byref(found)):
        return 0
    return int(found.f_type) & 0xFFFFFFFF


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def _listed(path: str, device: int, machine: Machine) -> tuple[str, str, str, str]:
    """(type, source, options, mount point) of the deepest mount above `path`; later mounts cover earlier ones."""
    best, best_rank = (_UNLISTED, _UNLISTED, "", "/"), (-1, False)
    try:
        listed = machine.read("/proc/self/mountinfo").splitlines()
    except NoAnswerError:
        return best
    for line in listed:
        left, _, right = line.partition(" - ")
        fields, (kind, source, *super_options) = left.split(" "), right.split(" ")
        point = _unescape(fields[4])
        if path != point and not path.startswith(point.rstrip("/") + "/"):
            continue
        rank = (len(point), fields[2] == _number(device))
        if rank >= best_rank:
            options = ",".join([fields[5], *super_options])
            best, best_rank = (kind, _unescape(source), options, point), rank
    return best


def _unescape(text: str) -> str:
    r"""The kernel writes space, tab, newline, backslash and # as octal (\040)."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)
