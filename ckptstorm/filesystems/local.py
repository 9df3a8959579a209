"""File systems on a block device of one node: XFS, ext4, btrfs; their device's own counters are the wire."""

from __future__ import annotations

import os
import stat
from typing import ClassVar

from ckptstorm.filesystems.contract import Adapter, CannotError, Counters, Facts, Quota, Target
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount
from ckptstorm.filesystems.quotas import user_quota

_TYPES = {"xfs": "XFS", "ext4": "ext4", "ext3": "ext3", "ext2": "ext2", "btrfs": "btrfs", "f2fs": "F2FS"}
#: /sys/dev/block/*/stat counts in 512-byte sectors, whatever the device's own (kernel: block/stat.rst).
_SECTOR_BYTES = 512
_STAT_FIELDS = (
    "reads",
    "read_merges",
    "read_sectors",
    "read_ms",
    "writes",
    "write_merges",
    "write_sectors",
    "write_ms",
)


class Local(Adapter):
    """A local file system."""

    name: ClassVar[str] = "local"
    title: ClassVar[str] = "a local file system"
    proves_residency: ClassVar[bool] = True

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type in _TYPES

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        details: dict[str, str | int] = {"file_system": _TYPES[self.mount.type], "device": self.mount.source}
        cannot = {}
        try:
            queue = self._queue()
            details |= {name: self.machine.read(f"{queue}/{name}").strip() for name in _QUEUE_FACTS}
        except (CannotError, NoAnswerError) as error:
            cannot["targets"] = str(error)
        target = Target(self.mount.source, self.mount.size_bytes, self.mount.free_bytes)
        quotas: tuple[Quota, ...] = ()
        try:
            quotas = (self._quota(directory),)
        except (CannotError, NoAnswerError) as error:
            cannot["quota"] = str(error)
        version = f"linux {os.uname().release}"
        return Facts("this node", version, (target,), quotas, details, cannot)

    def counters(self) -> Counters:
        """Bytes that passed the device: of all that use it, so fewer than claimed proves a cache."""
        number = self._device()
        try:
            words = self.machine.read(f"/sys/dev/block/{number}/stat").split()
        except NoAnswerError as error:
            raise CannotError("counters", str(error)) from None
        values = dict(zip(_STAT_FIELDS, (int(word) for word in words), strict=False))
        read, written = values["read_sectors"] * _SECTOR_BYTES, values["write_sectors"] * _SECTOR_BYTES
        return Counters(f"{self._boot()}:{number}", "device", read, written, values)

    def _device(self) -> str:
        """major:minor of the device; a btrfs has an anonymous one, so its source tells."""
        number = self.mount.device
        if not number.startswith("0:") and self.machine.path(f"/sys/dev/block/{number}/stat").exists():
            return number
        try:
            status = os.stat(self.machine.path(self.mount.source))
        except OSError:
            raise CannotError(
                "counters", f"{self.mount.source}: the device behind the mount is not to be seen"
            ) from None
        if not stat.S_ISBLK(status.st_mode):
            raise CannotError("counters", f"{self.mount.source} is no block device")
        return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"

    def _queue(self) -> str:
        """The folder of the device's request queue; a partition has that of its disk."""
        block = f"/sys/dev/block/{self._device()}"
        return f"{block}/queue" if self.machine.path(f"{block}/queue").exists() else f"{block}/../queue"

    def _boot(self) -> str:
        """This running kernel: two node names on one machine share a device."""
        try:
            return self.machine.read("/proc/sys/kernel/random/boot_id").strip()
        except NoAnswerError:
            return os.uname().nodename

    def _quota(self, directory: str) -> Quota:
        """Of the user; of the subvolume on btrfs, by `btrfs qgroup show`: id, referenced, exclusive, limit."""
        if self.mount.type != "btrfs":
            return user_quota(self.mount.source)
        shown = self.machine.ask("btrfs", "qgroup", "show", "--raw", "-r", "-f", directory)
        words = shown.splitlines()[-1].split()
        limit = words[3] if len(words) > 3 else "none"
        return Quota(f"subvolume {words[0]}", int(words[1]), int(limit) if limit.isdigit() else 0)


_QUEUE_FACTS = ("rotational", "logical_block_size", "physical_block_size", "max_sectors_kb", "scheduler", "write_cache")
