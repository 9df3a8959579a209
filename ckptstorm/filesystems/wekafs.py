"""WekaFS: data spread over all backends; the mount's mode decides what a client may cache."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from ckptstorm.filesystems.contract import Adapter, CannotError, Counters, Facts, Placement
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount

_MODES = ("forcedirect", "readcache", "writecache", "coherent")
_OPTIONS = ("inode_bits", "readahead_kb", "dentry_max_age_positive", "dentry_max_age_negative", "container_name", "acl")
_FACTS = (
    "status",
    "group_name",
    "total_budget",
    "used_total",
    "free_total",
    "ssd_budget",
    "is_encrypted",
    "auth_required",
)
#: WEKA 4.4 documentation: "List of statistics" (READ_BYTES, WRITE_BYTES, PORT_RX_BYTES, PORT_TX_BYTES: unit Bytes/Sec),
#: "Manage statistics using the CLI" (a start of the period, a resolution in steps of 60 s) and "CLI reference guide"
#: (`weka stats realtime`: readbps, writebps). What `--accumulated` prints is nowhere shown.
_NO_COUNTERS = (
    "weka stats has no running totals of bytes, only Bytes/Sec over whole minutes (realtime: over the last second), "
    "and what its --accumulated adds up is not documented: nothing can be subtracted around a phase"
)


class WekaFS(Adapter):
    """A WEKA client. Its cache is the driver's own as well as the kernel's: residency proves nothing here."""

    name: ClassVar[str] = "wekafs"
    title: ClassVar[str] = "WekaFS"

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type == "wekafs"

    @property
    def file_system(self) -> str:
        """Its name: "default" of "10.0.0.1/default"."""
        return self.mount.source.rpartition("/")[2]

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        del directory
        mode = next((mode for mode in _MODES if self.mount.option(mode)), "unknown")
        details: dict[str, str | int] = {"file_system": self.file_system, "mode": mode}
        details |= {key: value for key in _OPTIONS if (value := self.mount.option(key))}
        # With forcedirect every call is direct, whatever its flags; buffered calls then need no alignment.
        details["direct_by_default"] = "yes" if mode == "forcedirect" else "no"
        cannot: dict[str, str] = {"quota": "quotas are the cluster's to list, not a client's"}
        cannot |= {"targets": "a file is spread over all backends"}
        version = ""
        try:
            details |= self._of_cluster()
            version = self.machine.ask("weka", "version", "current").strip()
        except NoAnswerError as error:
            cannot["facts"] = str(error)
        backend = self.mount.source.rpartition("/")[0]
        return Facts(backend or f"cluster of {self.file_system}", version, (), (), details, cannot)

    def placement(self, path: str) -> Placement:
        """See `contract.Adapter.placement`."""
        del path
        raise CannotError("placement", "WekaFS spreads every file over all backends")

    def counters(self) -> Counters:
        """See `contract.Adapter.counters`."""
        raise CannotError("counters", _NO_COUNTERS)

    def drop_cache(self, path: str) -> None:
        """See `contract.Adapter.drop_cache`: in forcedirect nothing is kept; else the kernel's pages go."""
        super().drop_cache(path)

    def _of_cluster(self) -> dict[str, str | int]:
        """`weka fs -J`: a list of file systems, or in older versions a table of them by their ids."""
        try:
            listed: Any = json.loads(self.machine.ask("weka", "fs", "-J"))
        except ValueError as error:
            raise NoAnswerError(f"weka fs -J prints no JSON: {error}") from None
        entries = list(listed.values()) if isinstance(listed, dict) else listed
        for entry in entries:
            if isinstance(entry, dict) and entry.get("name") == self.file_system:
                return {
                    key: entry[key] if isinstance(entry[key], int) else str(entry[key])
                    for key in _FACTS
                    if key in entry
                }
        raise NoAnswerError(f"weka fs -J does not list {self.file_system}")
