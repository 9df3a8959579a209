"""A file system that we have no adapter for: what POSIX and the mount table say of it, and nothing else."""

from __future__ import annotations

from typing import ClassVar

from ckptstorm.filesystems.contract import Adapter
from ckptstorm.filesystems.mount import Mount


class Generic(Adapter):
    """Any mount."""

    name: ClassVar[str] = "generic"
    title: ClassVar[str] = "a file system without an adapter"

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        del mount
        return True
