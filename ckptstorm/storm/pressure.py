"""Memory held as a trainer holds it, so that a node's page cache cannot absorb a save or answer a restore.

A node with two terabytes of free memory swallows any checkpoint; the same node in training has none to spare. Each
rank takes its part of what is missing to `[io] memory_pressure` of the node's memory, writes to every page, and keeps
it until the storm is over.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap

import numpy as np

from ckptstorm.cluster.comm import Cluster
from ckptstorm.errors import PlaceError
from ckptstorm.storm.memory import available_bytes, total_bytes
from ckptstorm.units import bytes_text

#: Between two looks at signals and heartbeats.
_CHUNK_BYTES = 256 << 20
_WORDS_A_PAGE = mmap.PAGESIZE // 8


class Pressure:
    """Memory that this rank holds; a context, let go of when it is left.

    Attributes:
        held_bytes: of this rank.
    """

    def __init__(self, cluster: Cluster, share: float) -> None:
        """A collective of all ranks.

        Args:
            cluster: the world.
            share: of each node's memory that shall be in use, 0 to below 1; 0 holds nothing.
        """
        self.held_bytes = 0
        self._held: list[mmap.mmap] = []
        if share <= 0:
            return
        wanted = to_hold_bytes(share) // cluster.place.local_count
        cluster.barrier()  # all have looked before anybody takes
        salt = (cluster.rank + 1) << 40
        while self.held_bytes < wanted:
            size = min(_CHUNK_BYTES, wanted - self.held_bytes)
            self._held.append(_taken(size, salt + self.held_bytes))
            self.held_bytes += size
            cluster.tick()
        cluster.barrier()

    def __enter__(self) -> Pressure:
        return self

    def __exit__(self, *exception: object) -> None:
        for each in self._held:
            each.close()
        self._held.clear()


def to_hold_bytes(share: float) -> int:
    """What a node must take so that `share` of its memory is in use; whole pages, 0 when it is so already."""
    total = total_bytes()
    missing = int(share * total) - (total - available_bytes())
    return max(0, missing) // mmap.PAGESIZE * mmap.PAGESIZE


def _taken(size: int, first: int) -> mmap.mmap:
    """Anonymous memory with something else on every page, so that nothing can merge or compress it away.

    Raises:
        PlaceError: the kernel does not give it.
    """
    try:
        memory = mmap.mmap(-1, max(size, mmap.PAGESIZE))
    except (OSError, ValueError) as error:
        raise PlaceError(
            f"[io] memory_pressure: the kernel does not give {bytes_text(size)} more: {error}", "lower it"
        ) from None
    words = np.frombuffer(memory, dtype=np.uint64)
    words[::_WORDS_A_PAGE] = np.arange(first, first + len(words[::_WORDS_A_PAGE]), dtype=np.uint64)
    del words  # the mapping can only be closed when nobody looks at it
    with contextlib.suppress(OSError, AttributeError):  # out of swap's reach where the limit on locked memory allows it
        ctypes.CDLL(None).mlock(ctypes.c_void_p(_address(memory)), ctypes.c_size_t(len(memory)))
    return memory


def _address(memory: mmap.mmap) -> int:
    view = np.frombuffer(memory, dtype=np.uint8)
    return int(view.ctypes.data)
