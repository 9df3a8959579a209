"""CephFS: files cut into objects over OSDs; layouts are extended attributes of directories and files."""

from __future__ import annotations

import json
import os
from typing import ClassVar

import msgspec

from ckptstorm.errors import PlaceError
from ckptstorm.filesystems import network
from ckptstorm.filesystems.contract import Adapter, CannotError, Counters, Facts, Placement, Quota
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount
from ckptstorm.units import parse_bytes

#: Each object is asked of the monitors on its own: of a large file the first ones stand for all.
_OBJECTS_ASKED = 4


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[layout] stripe` on CephFS."""

    count: int | None = None  # objects that a stripe goes over
    size: str | None = None  # of a stripe unit: "4MiB"
    object: str | None = None  # size of an object: "4MiB"
    pool: str | None = None  # of data


class CephFS(Adapter):
    """The FUSE client and the kernel's."""

    name: ClassVar[str] = "cephfs"
    title: ClassVar[str] = "CephFS"
    Options: ClassVar[type[msgspec.Struct]] = Options

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type in ("ceph", "fuse.ceph-fuse", "fuse.ceph")

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        cannot: dict[str, str] = {"targets": "a client is not told which OSDs there are"}
        details: dict[str, str | int] = {"client": "kernel" if self.mount.type == "ceph" else "ceph-fuse"}
        layout = _attribute(directory, "ceph.dir.layout")
        details |= {"directory.layout": layout} if layout else {}
        limits = [_attribute(directory, f"ceph.quota.max_{what}") for what in ("bytes", "files")]
        used = [_attribute(directory, f"ceph.dir.r{what}") for what in ("bytes", "files")]
        quotas: tuple[Quota, ...] = ()
        if any(limits):
            numbers = [int(value or 0) for pair in zip(used, limits, strict=True) for value in pair]
            quotas = (Quota("directory", *numbers),)
        version = ""
        try:
            version = self.machine.ask("ceph", "--version").split()[2]
        except (NoAnswerError, IndexError) as error:
            cannot["version"] = str(error)
        return Facts(self.mount.source.partition(":/")[0] or self.mount.source, version, (), quotas, details, cannot)

    def prepare(self, directory: str, options: msgspec.Struct) -> dict[str, str | int]:
        """See `contract.Adapter.prepare`: the directory's layout attributes, which its files inherit."""
        assert isinstance(options, Options)
        wanted = {
            "stripe_unit": _bytes_text("size", options.size),
            "object_size": _bytes_text("object", options.object),
        }
        wanted |= {"stripe_count": str(options.count) if options.count is not None else None, "pool": options.pool}
        # An object must be a multiple of its stripe unit at every step, so the larger of the two goes first.
        for key in ("pool", "object_size", "stripe_unit", "stripe_count"):
            value = wanted[key]
            if value is not None:
                self._set(directory, key, value)
        return {"layout": _attribute(directory, "ceph.dir.layout")}

    def placement(self, path: str) -> Placement:
        """See `contract.Adapter.placement`: the first objects' primary OSDs, by `ceph osd map`."""
        layout = dict(pair.split("=", 1) for pair in _attribute(path, "ceph.file.layout").split() if "=" in pair)
        if not layout:
            raise CannotError("placement", "the file has no ceph.file.layout attribute")
        status = os.stat(path)
        count = -(-max(status.st_size, 1) // int(layout.get("object_size", 1 << 22)))
        targets = []
        for index in range(min(count, _OBJECTS_ASKED)):
            name = f"{status.st_ino:x}.{index:08x}"
            try:
                found = json.loads(self.machine.ask("ceph", "osd", "map", layout["pool"], name, "-f", "json"))
                targets.append(f"osd.{found['acting_primary']}")
            except (NoAnswerError, ValueError, KeyError) as error:
                raise CannotError("placement", f"ceph osd map: {error}") from None
        return Placement(tuple(targets), {**layout, "objects": count})

    def counters(self) -> Counters:
        """See `contract.Adapter.counters`: the network of the FUSE daemon; the kernel client shows no bytes to all."""
        if self.mount.type == "ceph":
            raise CannotError("counters", "the kernel client's counters are in debugfs, without a fixed form")
        return network.counters_of(self.machine, "ceph-fuse", self.mount, {})

    def drop_cache(self, path: str) -> None:
        """See `contract.Adapter.drop_cache`: the kernel's pages go; ceph-fuse has a cache beside them."""
        super().drop_cache(path)
        if self.mount.type != "ceph":
            raise CannotError("drop_cache", "ceph-fuse keeps objects in a cache of its own (client_oc)")

    def _set(self, directory: str, key: str, value: str) -> None:
        try:
            os.setxattr(directory, f"ceph.dir.layout.{key}", value.encode())
        except OSError as error:
            have = _attribute(directory, "ceph.dir.layout") or "the default layout"
            raise PlaceError(
                f"[layout] stripe: {key} = {value} is refused: {error.strerror}", f"it has {have}"
            ) from None


def _attribute(path: str, name: str) -> str:
    """An extended attribute; "" when it is not there."""
    try:
        return os.getxattr(path, name).decode(errors="replace")
    except OSError:
        return ""


def _bytes_text(key: str, value: str | None) -> str | None:
    try:
        return None if value is None else str(int(parse_bytes(value)))
    except ValueError as error:
        raise PlaceError(f"[layout] stripe {key}: {error}") from None
