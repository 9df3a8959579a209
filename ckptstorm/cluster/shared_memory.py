"""Files in /dev/shm that an MPI library leaves there when ranks are killed: forgotten while all still have them mapped.

MPICH removes its segment when ranks finalize. Killed ranks never do, and each lost storm would leave some
megabytes in the node's memory for good. Once all ranks of a node have it mapped, its name is of no use.
"""

from __future__ import annotations

import contextlib
import os
import re

#: Segments that are known to be attached to at MPI_Init only, and whose library bears with a missing name.
_FORGETTABLE = re.compile(r"^\S+ \S+ \S+ \S+ (?P<inode>\d+)\s+(?P<path>/dev/shm/mpich_shm_\S+)$")


def own_segments(pid: int | str = "self") -> dict[str, int]:
    """Paths and inodes of the segments that a process has mapped, under names that still stand."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            maps = file.read()
    except OSError:
        return {}
    found = (_FORGETTABLE.match(line) for line in maps.splitlines())
    return {match["path"]: int(match["inode"]) for match in found if match}


def forget(segments: dict[str, int]) -> None:
    """Remove the names of these segments, as far as they still stand for the same inodes."""
    for path, inode in segments.items():
        with contextlib.suppress(OSError):  # removed already, or never ours to remove
            if os.stat(path, follow_symlinks=False).st_ino == inode:
                os.unlink(path)
