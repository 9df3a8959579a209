"""MooseFS: chunks of 64 MiB on chunk servers, each kept as often as its goal says; the client is a FUSE daemon."""

from __future__ import annotations

import os
import re
from typing import ClassVar

import msgspec

from ckptstorm.errors import PlaceError
from ckptstorm.filesystems import network
from ckptstorm.filesystems.contract import Adapter, CannotError, Counters, Facts, Placement, Quota
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount

CHUNK_BYTES = 64 << 20
_COPY = re.compile(r"copy \d+: (\S+?)(?: \(status:(\w+)\))?$")
_PARAMETERS = (
    "mfscachemode", "working_keep_cache_mode", "mfswritecachesize", "mfsreadaheadsize", "mfsreadaheadleng",
    "mfsattrcacheto", "mfsfsyncmintime", "mfsfsyncbeforeclose", "mfsioretries", "mfstimeout",
)  # fmt: skip


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[layout] stripe` on MooseFS."""

    goal: int  # copies of each chunk


class MooseFS(Adapter):
    """MooseFS 3 and 4, by its own tools and the hidden files in the root of a mount."""

    name: ClassVar[str] = "moosefs"
    title: ClassVar[str] = "MooseFS"
    Options: ClassVar[type[msgspec.Struct]] = Options

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type.startswith(("fuse", "moosefs")) and mount.source.startswith(("mfs#", "mfsmaster"))

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        cannot: dict[str, str] = {"targets": "a client is not told which chunk servers there are"}
        parameters: dict[str, str] = {}
        try:
            lines = self._hidden(".params").splitlines()
            parameters = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
        except NoAnswerError as error:
            cannot["version"] = str(error)
        details: dict[str, str | int] = {key: parameters[key] for key in _PARAMETERS if key in parameters}
        details["chunk_bytes"] = CHUNK_BYTES
        quotas: tuple[Quota, ...] = ()
        try:
            details["goal"] = self._goal(directory)
            quotas = _quotas(self.machine.ask("mfsgetquota", directory))
        except NoAnswerError as error:
            cannot["quota"] = cannot["placement"] = str(error)
        server = parameters.get("mfsmaster", self.mount.source.partition("#")[2])
        version = parameters.get("moosefs_mount_version", "")
        return Facts(f"master {server}", version, (), quotas, details, cannot)

    def prepare(self, directory: str, options: msgspec.Struct) -> dict[str, str | int]:
        """See `contract.Adapter.prepare`: sets the goal of the directory, which its files inherit."""
        assert isinstance(options, Options)
        try:
            self.machine.ask("mfssetgoal", str(options.goal), directory)
        except NoAnswerError as error:
            if "not on PATH" in str(error):
                raise CannotError("prepare", str(error)) from None
            raise PlaceError(f"[layout] stripe goal = {options.goal}: {error}", "goals are 1 to 9") from None
        return {"goal": self._goal(directory)}

    def placement(self, path: str) -> Placement:
        """See `contract.Adapter.placement`: a target a copy of a chunk, in the order of the file."""
        try:
            shown = self.machine.ask("mfsfileinfo", path)
        except NoAnswerError as error:
            raise CannotError("placement", str(error)) from None
        copies = [match for line in shown.splitlines() if (match := _COPY.search(line.strip()))]
        bad = sum(match[2] not in (None, "VALID") for match in copies)
        details: dict[str, str | int] = {"chunk_bytes": CHUNK_BYTES, "chunks": shown.count("\tchunk ")}
        return Placement(tuple(match[1] for match in copies), details | ({"invalid_copies": bad} if bad else {}))

    def counters(self) -> Counters:
        """See `contract.Adapter.counters`: the daemon counts calls, the network under it bytes."""
        try:
            lines = self._hidden(".stats").splitlines()
        except NoAnswerError as error:
            raise CannotError("counters", str(error)) from None
        pairs = [(key, value.strip()) for key, _, value in (line.rpartition(":") for line in lines)]
        values = {key: int(value) for key, value in pairs if value.isdigit()}
        return network.counters_of(self.machine, "mfsmount", self.mount, values)

    def _goal(self, directory: str) -> int:
        """`mfsgetgoal DIR` prints "DIR: 2"."""
        shown = self.machine.ask("mfsgetgoal", directory)
        if not shown.rpartition(":")[2].strip().isdigit():
            raise NoAnswerError(f"mfsgetgoal prints {shown.strip()[:60]!r}")
        return int(shown.rpartition(":")[2])

    def _hidden(self, name: str) -> str:
        return self.machine.read(os.path.join(self.mount.mount_point, name))


def _quotas(shown: str) -> tuple[Quota, ...]:
    """`mfsgetquota DIR`: a line a kind: current, soft and hard, "-" where there is no limit."""
    rows = {}
    for line in shown.splitlines()[1:]:
        name, *columns = (column.strip() for column in line.split("|"))
        rows[name] = [int(column) if column.isdigit() else 0 for column in columns]
    if "inodes" not in rows or "size" not in rows:
        return ()
    bytes_limit = min((limit for limit in rows["size"][1:] + rows.get("length", [0])[1:] if limit), default=0)
    inodes_limit = min((limit for limit in rows["inodes"][1:] if limit), default=0)
    return (Quota("directory", rows["size"][0], bytes_limit, rows["inodes"][0], inodes_limit),)
