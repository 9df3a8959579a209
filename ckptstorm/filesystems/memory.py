"""tmpfs and ramfs: files in this node's memory. A storm on them is valid only when its job says so."""

from __future__ import annotations

from typing import ClassVar

from ckptstorm.filesystems.contract import Adapter, CannotError, Facts
from ckptstorm.filesystems.mount import MEMORY_TYPES, Mount


class Memory(Adapter):
    """Memory with a file system's face."""

    name: ClassVar[str] = "memory"
    title: ClassVar[str] = "tmpfs"

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type in MEMORY_TYPES

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        del directory
        details: dict[str, str | int] = {key: self.mount.option(key) for key in ("size", "nr_inodes", "huge")}
        return Facts(server="this node's memory", details={key: value for key, value in details.items() if value})

    def drop_cache(self, path: str) -> None:
        """See `contract.Adapter.drop_cache`."""
        del path
        raise CannotError("drop_cache", "tmpfs has no storage behind its pages: nothing there is ever cold")
