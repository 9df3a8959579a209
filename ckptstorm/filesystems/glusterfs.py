"""GlusterFS: files by the hash of their names on bricks; the client counts what it exchanges with each brick."""

from __future__ import annotations

import os
import re
from typing import ClassVar

from ckptstorm.filesystems.contract import Adapter, CannotError, Counters, Facts, Placement, Target
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount

#: The hidden folder of a mount in which the client shows its parts, as the glusterfs client's meta translator does.
_META = ".meta"
_GRAPH = f"{_META}/graphs/active"
_POSIX = re.compile(r"<POSIX\(([^)]*)\):([^:]*):")
_VALUE = re.compile(r"^(total_bytes_read|total_bytes_written) = (\d+)$", re.MULTILINE)


class GlusterFS(Adapter):
    """GlusterFS by the hidden files of its FUSE mount, and its extended attributes: no daemon of ours to ask."""

    name: ClassVar[str] = "glusterfs"
    title: ClassVar[str] = "GlusterFS"

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type == "fuse.glusterfs"

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        cannot: dict[str, str] = {"quota": "a client is not told of a volume's quotas"}
        bricks, version = {}, ""
        try:
            bricks = self._bricks()
            shown = self._meta(f"{_META}/version")
            version = shown.split('"')[3] if shown.count('"') >= 4 else ""
        except NoAnswerError as error:
            cannot["targets"] = str(error)
        kinds = self._kinds()
        details: dict[str, str | int] = {"volume": self.mount.source.partition(":/")[2], "bricks": len(bricks), **kinds}
        targets = tuple(Target(name) for name in sorted(bricks.values()))
        return Facts(self.mount.source.partition(":")[0], version, targets, (), details, cannot)

    def placement(self, path: str) -> Placement:
        """See `contract.Adapter.placement`: a target a copy; a sharded file shows where its first shard is."""
        try:
            raw = os.getxattr(path, "trusted.glusterfs.pathinfo").decode(errors="replace")
        except OSError as error:
            raise CannotError("placement", f"trusted.glusterfs.pathinfo (for root only): {error.strerror}") from None
        try:
            bricks = set(self._bricks().values())
        except NoAnswerError:
            bricks = set()
        found = [_brick(brick, host, bricks) for brick, host in _POSIX.findall(raw)]
        if not found:
            raise CannotError("placement", f"trusted.glusterfs.pathinfo says {raw[:80]!r}")
        kinds = {kind.lower(): raw.count(f"<{kind}:") for kind in ("REPLICATE", "EC", "STRIPE") if f"<{kind}:" in raw}
        return Placement(tuple(found), {"copies": len(found), **kinds})

    def counters(self) -> Counters:
        """See `contract.Adapter.counters`: what this client exchanged with each brick."""
        values: dict[str, int] = {}
        try:
            for client, brick in self._bricks().items():
                counted = dict(_VALUE.findall(self._meta(f"{_GRAPH}/{client}/private")))
                values[f"{brick}.read_bytes"] = int(counted["total_bytes_read"])
                values[f"{brick}.write_bytes"] = int(counted["total_bytes_written"])
            process = self._meta(f"{_META}/process_uuid").strip()
        except (NoAnswerError, KeyError) as error:
            raise CannotError("counters", f"{_META} of the mount: {error}") from None
        read = sum(value for name, value in values.items() if name.endswith(".read_bytes"))
        written = sum(value for name, value in values.items() if name.endswith(".write_bytes"))
        return Counters(f"client {process}", "client's wire", read, written, values)

    def _bricks(self) -> dict[str, str]:
        """Each client translator ("v0-client-0") and the brick that it talks to ("server:/brick")."""
        graph = os.path.join(self.mount.mount_point, _GRAPH)
        names = [name for name in self.machine.names(graph) if re.fullmatch(r".*-client-\d+", name)]
        if not names:
            raise NoAnswerError(f"{graph}: no clients of bricks are to be seen")
        return {name: f"{self._option(name, 'remote-host')}:{self._option(name, 'remote-subvolume')}" for name in names}

    def _option(self, client: str, option: str) -> str:
        return self._meta(f"{_GRAPH}/{client}/options/{option}").strip()

    def _kinds(self) -> dict[str, str | int]:
        """How the bricks are put together: translators of each kind in the client's graph."""
        names = self.machine.names(os.path.join(self.mount.mount_point, _GRAPH))
        counted = {
            kind: sum(bool(re.fullmatch(rf".*-{kind}-\d+", n)) for n in names) for kind in ("replicate", "disperse")
        }
        return {kind: count for kind, count in counted.items() if count}

    def _meta(self, name: str) -> str:
        return self.machine.read(os.path.join(self.mount.mount_point, name))


def _brick(path: str, host: str, bricks: set[str]) -> str:
    """A brick as the mount names its server: by name or by address; the attribute has the server's own name."""
    if f"{host}:{path}" in bricks:
        return f"{host}:{path}"
    same_path = [brick for brick in bricks if brick.partition(":")[2] == path]
    return same_path[0] if len(same_path) == 1 else f"{host}:{path}"
