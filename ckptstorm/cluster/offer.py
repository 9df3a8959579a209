"""The board that a parent offers to the ranks it starts: memory without a name, so that nothing is ever left behind."""

from __future__ import annotations

import os
import secrets

from ckptstorm.cluster import slots
from ckptstorm.cluster.slots import Shared


class Offer:
    """A board for a world about to be started.

    Attributes:
        shared: the board, mapped.
    """

    def __init__(self, rank_count: int) -> None:
        self._fd = os.memfd_create("ckptstorm-board")
        os.ftruncate(self._fd, slots.size_bytes(rank_count))
        self._path, self._token = f"/proc/{os.getpid()}/fd/{self._fd}", secrets.token_hex(8)
        self.shared: Shared = slots.map_board(self._path, rank_count)
        self.shared.header["token"] = self._token.encode()

    def environment(self) -> dict[str, str]:
        """What ranks must find in their environment."""
        return {slots.VARIABLE: f"{self._path}:{self._token}"}

    @property
    def storm_id(self) -> str:
        """Of the storm that rank 0 has begun; "" before."""
        return bytes(self.shared.header["storm_id"][0]).decode(errors="replace")

    @property
    def is_ending(self) -> bool:
        """Whether rank 0, or a rank in its place, has given the world up."""
        return bool(self.shared.header["is_ending"][0])

    def close(self) -> None:
        """Let go of it; ranks keep their own mappings."""
        os.close(self._fd)
