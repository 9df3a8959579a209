"""What a rank takes of a node's memory, and what the node can still give."""

from __future__ import annotations

#: A rank of ours: Python, NumPy, MPI (43 MiB were measured), and the op tables.
RANK_BYTES = 64 << 20


#: Where a container's limit stands: version 2 of control groups, then version 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available_bytes() -> int:
    """Memory that this node can still give."""
    return _figures()["MemAvailable"]


def total_bytes() -> int:
    """Memory of this node, or of the container that it is to us."""
    limits = [limit for path in _LIMITS if (limit := _limit(path)) > 0]
    return min([_figures()["MemTotal"], *limits])


def _figures() -> dict[str, int]:
    with open("/proc/meminfo", encoding="ascii") as file:
        figures = dict(line.split(":", 1) for line in file)
    return {name: int(figures[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable")}


def _limit(path: str) -> int:
    """A limit in bytes; 0 when there is none."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):  # absent, or the word "max"
        return 0
