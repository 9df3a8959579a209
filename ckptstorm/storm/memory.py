"""What a rank takes of a node's memory, and what the node can still give."""

from __future__ import annotations

#: A rank of ours: Python, NumPy, MPI (43 MiB were measured), and the op tables.
RANK_BYTES = 64 << 20


def available_bytes() -> int:
    """Memory that this node can still give."""
    with open("/proc/meminfo", encoding="ascii") as file:
        figures = dict(line.split(":", 1) for line in file)
    return int(figures["MemAvailable"].split()[0]) * 1024
