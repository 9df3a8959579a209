"""What a file system offers beyond POSIX, as a storm may ask for it: the contract that every adapter fulfils.

What an adapter cannot do, here or at all, it says by name: `CannotError` carries the ability and the
reason, and both go into the record. An adapter never guesses, and never does something else instead.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal

import msgspec

from ckptstorm.errors import StormError
from ckptstorm.filesystems import page_cache
from ckptstorm.filesystems.machine import Machine
from ckptstorm.filesystems.mount import Mount

#: All that can be asked of an adapter, in the words that records and reports use.
Ability = Literal["facts", "prepare", "placement", "counters", "drop_cache", "quota", "targets", "version"]


class CannotError(StormError):
    """An adapter cannot do something here.

    Attributes:
        ability: what.
        reason: why, and what would be needed.
    """

    def __init__(self, ability: Ability, reason: str) -> None:
        super().__init__(f"{ability}: {reason}")
        self.ability, self.reason = ability, reason


@dataclass(frozen=True, slots=True)
class Target:
    """What holds data: an OST, a brick, a chunk server, a disk.

    Attributes:
        name: as the file system's own tools name it, and as `Placement.targets` does.
        size_bytes, free_bytes: of it; -1 when it does not say.
    """

    name: str
    size_bytes: int = -1
    free_bytes: int = -1


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on what may be written.

    Attributes:
        who: "user 1000", "project 42", "directory".
        used_bytes, limit_bytes: 0 limits nothing.
        used_inodes, limit_inodes: likewise.
    """

    who: str
    used_bytes: int = 0
    limit_bytes: int = 0
    used_inodes: int = 0
    limit_inodes: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """What a file system says of itself.

    Attributes:
        server: who serves it; "" when nobody else does.
        version: of the software that serves or mounts it; "" when it does not say.
        targets: where data can lie.
        quotas: of the user who runs the storm, and of the directory.
        details: what only this file system has, by its own names; sizes in bytes.
        cannot: abilities that are missing here, with the reason.
    """

    server: str = ""
    version: str = ""
    targets: tuple[Target, ...] = ()
    quotas: tuple[Quota, ...] = ()
    details: dict[str, str | int] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a file's data lies.

    Attributes:
        targets: the names of the targets, one a stripe (or chunk, or copy), in the order of the file.
        details: how it is cut: "stripe_count", "stripe_size_bytes", "pool" …
    """

    targets: tuple[str, ...]
    details: dict[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counters:
    """What has moved since the counters began; only differences mean anything.

    Attributes:
        source: what was counted; two nodes that name the same source counted the same bytes.
        at: where: on the wire between this client and the servers, in the network that the client uses (and others
            too), at the servers, at the device.
        read_bytes, write_bytes: that passed there; -1 when it is not counted.
        values: every counter by its own name.
    """

    source: str
    at: Literal["client's wire", "network", "servers", "device"]
    read_bytes: int
    write_bytes: int
    values: dict[str, int] = field(default_factory=dict)


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[layout] stripe` of a file system that has nothing to set."""


class Adapter:
    """One file system; subclasses say what they can.

    Attributes:
        name: in the table, and in records.
        title: as its makers write it.
        proves_residency: whether an empty page cache on a node proves that the node holds nothing of a file
            (not so where the file system has a cache of its own, or a daemon that may).
        Options: the keys of `[layout] stripe`.
        refused: keys that somebody may look for there, with the reason why they are not to be had.
        mount, machine: what it was made for.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    proves_residency: ClassVar[bool] = False
    Options: ClassVar[type[msgspec.Struct]] = NoOptions
    refused: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, mount: Mount, machine: Machine) -> None:
        self.mount, self.machine = mount, machine

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """Whether this adapter is for that mount."""
        raise NotImplementedError

    def facts(self, directory: str) -> Facts:
        """What the file system says of itself; reads only, and never raises for what is merely missing."""
        del directory
        return Facts(server=self.mount.source)

    def check_options(self, options: msgspec.Struct) -> None:
        """Whether `[layout] stripe` can be had here; reads only.

        Raises:
            CannotError, PlaceError: as `prepare`.
        """
        del options
        if self.Options is NoOptions:
            raise CannotError("prepare", f"{self.title} has no striping that ckptstorm can set")

    def prepare(self, directory: str, options: msgspec.Struct) -> dict[str, str | int]:
        """Set `[layout] stripe` on an empty directory, before the first file.

        Returns:
            What the file system says is in effect now.

        Raises:
            CannotError: it has nothing of the kind, or a program is missing.
            PlaceError: it refuses these values: what was asked, and what there is.
        """
        del directory, options
        raise CannotError("prepare", f"{self.title} has no striping that ckptstorm can set")

    def placement(self, path: str) -> Placement:
        """Where a file's data lies.

        Raises:
            CannotError: it does not say.
        """
        del path
        raise CannotError("placement", f"{self.title} does not say where a file lies")

    def counters(self) -> Counters:
        """What has moved so far between this node and the storage.

        Raises:
            CannotError: nothing is counted here.
        """
        raise CannotError("counters", f"{self.title} counts nothing that a client may read")

    def drop_cache(self, path: str) -> None:
        """Let this node forget a file's clean pages; of a directory: what is held for all of it besides.

        Raises:
            CannotError: it may keep something all the same.
        """
        if not os.path.isdir(path):
            drop_pages(path)


def drop_pages(path: str) -> None:
    """Ask the kernel to let go of a file's clean pages; a file that is not there holds none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    with contextlib.suppress(OSError):  # a hint that failed; what stays in the cache shows in residency
        try:
            page_cache.drop(fd)
        finally:
            os.close(fd)
