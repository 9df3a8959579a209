"""JuiceFS: blocks in an object store, names in a database; the client shows what it is and counts what it moves."""

from __future__ import annotations

import json
import os
import re
from typing import Any, ClassVar

from ckptstorm.filesystems.contract import Adapter, CannotError, Counters, Facts, Placement
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount

_GET, _PUT = "juicefs_object_request_data_bytes_GET", "juicefs_object_request_data_bytes_PUT"
_OBJECT = re.compile(r"^\|\s*\d+\s*\|\s*(\S+)\s*\|", re.MULTILINE)
_CHUNK_FACTS = ("CacheSize", "CacheDir", "CacheLargeWrite", "MaxUpload", "UploadLimit", "DownloadLimit", "BufferSize")


class JuiceFS(Adapter):
    """JuiceFS by the virtual files in the root of a mount."""

    name: ClassVar[str] = "juicefs"
    title: ClassVar[str] = "JuiceFS"

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type == "fuse.juicefs"

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        del directory
        cannot = {"quota": "a client is not told of quotas", "targets": "the object store is one target"}
        try:
            told = self._configuration()
        except CannotError as error:
            return Facts(self.mount.source, cannot=cannot | {"facts": error.reason})
        form, chunk = told.get("Format", {}), told.get("Chunk", {})
        details: dict[str, str | int] = {
            "storage": str(form.get("Storage", "")),
            "bucket": str(form.get("Bucket", "")),
            "block_bytes": int(chunk.get("BlockSize", 0)),
            "compression": str(form.get("Compression", "")),
            # With it, fsync returns before the object store has anything: what is durable is this node's cache.
            "writeback": "on" if chunk.get("Writeback") else "off",
            "attribute_cache_ns": int(told.get("AttrTimeout", 0)),
            "entry_cache_ns": int(told.get("EntryTimeout", 0)),
        }
        details |= {name: str(chunk[name]) for name in _CHUNK_FACTS if name in chunk}
        server = f"{form.get('Storage', 'object store')} {form.get('Bucket', '')}".strip()
        return Facts(server, str(told.get("Version", "")), (), (), details, cannot)

    def placement(self, path: str) -> Placement:
        """See `contract.Adapter.placement`: `juicefs info` lists a file's objects."""
        try:
            shown = self.machine.ask("juicefs", "info", path)
        except NoAnswerError as error:
            raise CannotError("placement", str(error)) from None
        bucket = str(self.facts("").details.get("bucket", "objects"))
        objects = _OBJECT.findall(shown)
        return Placement((bucket,), {"objects": len(objects)})

    def counters(self) -> Counters:
        """See `contract.Adapter.counters`: bytes got from and put into the object store."""
        try:
            lines = self.machine.read(os.path.join(self.mount.mount_point, ".stats")).splitlines()
        except NoAnswerError as error:
            raise CannotError("counters", str(error)) from None
        pairs = (line.rpartition(" ") for line in lines)
        values = {name: int(value) for name, _, value in pairs if value.isdigit() and _is_counter(name)}
        source = f"client {self._configuration().get('Pid', self.mount.mount_point)}"
        # What has never moved is not listed yet.
        return Counters(source, "client's wire", values.get(_GET, 0), values.get(_PUT, 0), values)

    def _configuration(self) -> dict[str, Any]:
        try:
            found = json.loads(self.machine.read(os.path.join(self.mount.mount_point, ".config")))
        except (NoAnswerError, ValueError) as error:
            raise CannotError("facts", f".config of the mount: {error}") from None
        return dict(found)


def _is_counter(name: str) -> bool:
    """Counters only grow; the client lists levels of its own process among them."""
    return (
        name.startswith(("juicefs_object_request", "juicefs_fuse_", "juicefs_blockcache_"))
        and not name.endswith(("_blocks", "_bytes", "open_handlers"))
    ) or name in ("juicefs_blockcache_hit_bytes", "juicefs_blockcache_miss_bytes")
