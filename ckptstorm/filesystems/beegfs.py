"""BeeGFS: files cut into chunks over storage targets; asked by `beegfs` (8 and later) or `beegfs-ctl` (7)."""

from __future__ import annotations

import re
import shutil
from typing import ClassVar

import msgspec

from ckptstorm.errors import PlaceError
from ckptstorm.filesystems.contract import Adapter, CannotError, Facts, Placement, Target
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount
from ckptstorm.units import parse_bytes

_TARGET = re.compile(r"^\s*\+\s*(\d+) @ (\S+)", re.MULTILINE)
_LISTED_7 = re.compile(r"^\s*(\d+)\s+\S+\s+\S+\s+\S+\s*$")
_LISTED_8 = re.compile(r"^s:(\d+)\s+storage\s")
_FIELDS = {
    "Type": "pattern", "Chunksize": "chunk_size", "Number of storage targets": "targets", "Storage Pool": "pool",
    "Metadata node": "metadata_node",
}  # fmt: skip


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[layout] stripe` on BeeGFS."""

    count: int | None = None  # storage targets of a file
    size: str | None = None  # of a chunk: "1MiB"; a power of two, 64 KiB or more


class BeeGFS(Adapter):
    """A BeeGFS client."""

    name: ClassVar[str] = "beegfs"
    title: ClassVar[str] = "BeeGFS"
    proves_residency: ClassVar[bool] = True
    Options: ClassVar[type[msgspec.Struct]] = Options

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type == "beegfs"

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        cannot: dict[str, str] = {"quota": "quotas are read by the administrator's tools only"}
        details: dict[str, str | int] = {}
        targets: tuple[Target, ...] = ()
        try:
            details = _details(self._entry(directory))
        except NoAnswerError as error:
            cannot["placement"] = cannot["prepare"] = str(error)
        try:
            targets = self._targets()
        except NoAnswerError as error:
            cannot["targets"] = str(error)
        version = ""
        try:
            version = self.machine.read("/sys/module/beegfs/version").strip()
        except NoAnswerError as error:
            cannot["version"] = str(error)
        return Facts(self.mount.option("cfgFile") or self.mount.source, version, targets, (), details, cannot)

    def check_options(self, options: msgspec.Struct) -> None:
        """See `contract.Adapter.check_options`."""
        assert isinstance(options, Options)
        try:
            there = self._targets()
        except NoAnswerError as error:
            raise CannotError("prepare", str(error)) from None
        if options.count is not None and not 1 <= options.count <= len(there):
            raise PlaceError(
                f"[layout] stripe count = {options.count}: there are {len(there)} storage targets",
                f"ask for 1 to {len(there)}",
            )
        _chunk_bytes(options.size)

    def prepare(self, directory: str, options: msgspec.Struct) -> dict[str, str | int]:
        """See `contract.Adapter.prepare`: the pattern of the directory, which its files inherit."""
        assert isinstance(options, Options)
        self.check_options(options)
        is_new = self._is_new()
        words = ["beegfs", "entry", "set"] if is_new else ["beegfs-ctl", "--setpattern"]
        if options.count is not None:
            words.append(f"--{'num-targets' if is_new else 'numtargets'}={options.count}")
        if options.size is not None:
            words.append(f"--{'chunk-size' if is_new else 'chunksize'}={_chunk_bytes(options.size)}")
        try:
            self.machine.ask(*words, directory)
            return _details(self._entry(directory))
        except NoAnswerError as error:
            raise PlaceError(f"[layout] stripe: {error}") from None

    def placement(self, path: str) -> Placement:
        """See `contract.Adapter.placement`: "TARGET @ SERVER", one a stripe."""
        try:
            shown = self._entry(path)
        except NoAnswerError as error:
            raise CannotError("placement", str(error)) from None
        found = [number for number, _ in _TARGET.findall(shown)]
        if not found:
            raise CannotError("placement", f"no storage targets in {shown.strip()[:60]!r}")
        return Placement(tuple(found), _details(shown))

    def _is_new(self) -> bool:
        return shutil.which("beegfs") is not None

    def _entry(self, path: str) -> str:
        """Both generations print the same lines, the newer on request."""
        if self._is_new():
            return self.machine.ask("beegfs", "entry", "info", "--retro", "--verbose", path)
        return self.machine.ask("beegfs-ctl", "--getentryinfo", "--verbose", path)

    def _targets(self) -> tuple[Target, ...]:
        """Of the newer: "s:101  storage  …" a target; of the older: id, reachability, consistency, node."""
        if self._is_new():
            shown, form = self.machine.ask("beegfs", "target", "list"), _LISTED_8
        else:
            words = ("--listtargets", "--nodetype=storage", "--state", f"--mount={self.mount.mount_point}")
            shown, form = self.machine.ask("beegfs-ctl", *words), _LISTED_7
        found = [match for line in shown.splitlines() if (match := form.match(line))]
        return tuple(Target(match[1]) for match in found)


def _details(shown: str) -> dict[str, str | int]:
    pairs = (line.strip().lstrip("+ ").partition(":") for line in shown.splitlines())
    return {_FIELDS[key.strip()]: value.strip() for key, _, value in pairs if key.strip() in _FIELDS and value.strip()}


def _chunk_bytes(value: str | None) -> int:
    try:
        size = parse_bytes(value) if value is not None else 1 << 16
    except ValueError as error:
        raise PlaceError(f"[layout] stripe size: {error}") from None
    if size < 1 << 16 or size & (size - 1):
        raise PlaceError(f'[layout] stripe size = "{value}": chunks are powers of two from 64 KiB')
    return size
