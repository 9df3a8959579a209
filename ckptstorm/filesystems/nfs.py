"""NFS: one server's export (or several addresses of one); the client counts what it asks of the server."""

from __future__ import annotations

from typing import ClassVar

from ckptstorm.filesystems.contract import Adapter, CannotError, Counters, Facts, Placement
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount

_OPTIONS = (
    "vers", "rsize", "wsize", "proto", "nconnect", "max_connect", "acregmin", "acregmax", "acdirmin", "acdirmax",
    "actimeo", "noac", "hard", "soft", "timeo", "retrans", "sync", "local_lock", "lookupcache", "nocto", "addr", "fsc",
)  # fmt: skip
#: The columns of mountstats' "bytes:" line (kernel: fs/nfs/super.c, nfs_show_stats).
_BYTES = (
    "normal_read", "normal_written", "direct_read", "direct_written", "server_read", "server_written", "read_pages",
    "written_pages",
)  # fmt: skip


class Nfs(Adapter):
    """A Linux NFS client, of versions 3 and 4."""

    name: ClassVar[str] = "nfs"
    title: ClassVar[str] = "NFS"
    proves_residency: ClassVar[bool] = True

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type in ("nfs", "nfs4")

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        del directory
        details: dict[str, str | int] = {key: value for key in _OPTIONS if (value := self.mount.option(key))}
        server, _, export = self.mount.source.rpartition(":")
        cannot = {"quota": "the server's quotas are asked with quota(1), which speaks to the server's rquotad"}
        cannot |= {"placement": "an NFS client sees one server", "targets": "an NFS client sees one server"}
        return Facts(server, f"NFS {details.get('vers', '')}".strip(), (), (), details | {"export": export}, cannot)

    def placement(self, path: str) -> Placement:
        """See `contract.Adapter.placement`."""
        del path
        raise CannotError("placement", "an NFS client sees one server")

    def counters(self) -> Counters:
        """See `contract.Adapter.counters`: bytes of READ and WRITE calls to the server, by /proc/self/mountstats."""
        try:
            lines = self._own_lines()
        except NoAnswerError as error:
            raise CannotError("counters", str(error)) from None
        values: dict[str, int] = {}
        for line in lines:
            key, _, rest = line.strip().partition(":")
            if key == "bytes":
                values |= dict(zip(_BYTES, (int(word) for word in rest.split()), strict=False))
            elif key.isupper() and rest.split() and all(word.isdigit() for word in rest.split()):
                values[f"{key.lower()}.calls"] = int(rest.split()[0])
        if "server_read" not in values:
            raise CannotError("counters", "/proc/self/mountstats has no bytes of this mount")
        return Counters(
            f"mount {self.mount.device}", "client's wire", values["server_read"], values["server_written"], values
        )

    def _own_lines(self) -> list[str]:
        """The block of this mount: it begins with "device SOURCE mounted on POINT"."""
        own: list[str] = []
        is_own = False
        for line in self.machine.read("/proc/self/mountstats").splitlines():
            if line.startswith("device "):
                is_own = line.startswith(f"device {self.mount.source} mounted on {self.mount.mount_point} ")
            elif is_own:
                own.append(line)
        return own
