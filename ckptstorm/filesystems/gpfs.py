"""IBM Storage Scale (GPFS): every file striped over all disks of its pool, in large blocks; a cache of its own."""

from __future__ import annotations

import ctypes
import os
import re
import urllib.parse
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from ckptstorm.filesystems.contract import Adapter, CannotError, Counters, Facts, Placement, Target
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount

#: The directory that the commands are installed in; PATH seldom has it.
_COMMANDS = "/usr/lpp/mmfs/bin"
_FACTS = (
    "blockSize", "minFragmentSize", "inodeSize", "defaultDataReplicas", "maxDataReplicas", "filesystemVersion",
    "quotasEnforced", "blockAllocationType", "logReplicas", "writeCacheThreshold", "autoInodeLimit",
)  # fmt: skip
_POOL = re.compile(r"^(\S+)\s+\d+\s+(\d+ [KM]B)\s+(yes|no)\s+(yes|no)\s+(\d+)\s+(\d+) ")
_ATTRIBUTES = {"storage pool name": "pool", "fileset name": "fileset", "data replication": "data_replication"}
#: gpfs_fcntl.h: the version of the argument, and the hint that drops a file's pages from the page pool.
_FCNTL_VERSION, _CLEAR_FILE_CACHE = 1, 1004
#: GPFS_ACCESS_RANGE (1001) is told on the descriptor that does the I/O, which makes it a call of the layout's own.
_NO_ACCESS_RANGE = (
    "ckptstorm gives no access range hint (gpfs_fcntl): the calls of a storm are the framework's, and none gives it; "
    'Open MPI does with [io] engine = "mpiio" and hints, see docs/filesystems/gpfs.md'
)


class Gpfs(Adapter):
    """A Storage Scale client. Its page pool is not the kernel's page cache: residency proves nothing here."""

    name: ClassVar[str] = "gpfs"
    title: ClassVar[str] = "Storage Scale (GPFS)"
    refused: ClassVar[Mapping[str, str]] = MappingProxyType({"access_range": _NO_ACCESS_RANGE})

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type == "gpfs"

    @property
    def device(self) -> str:
        """The file system's name, as its commands take it."""
        return self.mount.source.rpartition("/")[2]

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        del directory
        cannot: dict[str, str] = {"quota": "mmlsquota is not asked: its answer lags behind what is written"}
        details: dict[str, str | int] = {}
        targets: tuple[Target, ...] = ()
        try:
            details = _fields(self._ask("mmlsfs", self.device, "-Y"))
        except NoAnswerError as error:
            cannot["facts"] = str(error)
        try:
            targets, blocks = _pools(self._ask("mmlspool", self.device))
            details |= blocks
        except NoAnswerError as error:
            cannot["targets"] = str(error)
        return Facts(
            f"cluster of {self.device}", str(details.get("filesystemVersion", "")), targets, (), details, cannot
        )

    def placement(self, path: str) -> Placement:
        """See `contract.Adapter.placement`: the pool, over all of whose disks the blocks of a file go in turn."""
        try:
            shown = self._ask("mmlsattr", "-L", path)
        except NoAnswerError as error:
            raise CannotError("placement", str(error)) from None
        pairs = (line.partition(":") for line in shown.splitlines())
        found = {_ATTRIBUTES[key.strip()]: value.strip() for key, _, value in pairs if key.strip() in _ATTRIBUTES}
        if "pool" not in found:
            raise CannotError("placement", f"mmlsattr names no storage pool: {shown.strip()[:60]!r}")
        return Placement((found["pool"],), dict(found))

    def counters(self) -> Counters:
        """See `contract.Adapter.counters`: what applications moved, from disks and page pool alike."""
        try:
            shown = self._ask("mmpmon", "-p", given="fs_io_s\n")
        except NoAnswerError as error:
            raise CannotError("counters", str(error)) from None
        for line in shown.splitlines():
            words = line.split()
            pairs = dict(zip(words[1::2], words[2::2], strict=False))
            if words and words[0] == "_fs_io_s_" and pairs.get("_fs_") == self.device:
                values = {name: int(pairs[key]) for key, name in _MMPMON.items() if pairs.get(key, "").isdigit()}
                # Bytes "read" include those that the page pool served: they prove nothing of the wire.
                return Counters(f"{pairs.get('_nn_', '')}:{self.device}", "client's wire", -1, -1, values)
        raise CannotError("counters", f"mmpmon tells nothing of {self.device}: {shown.strip()[:60]!r}")

    def drop_cache(self, path: str) -> None:
        """See `contract.Adapter.drop_cache`: a hint by gpfs_fcntl, of the library that comes with the client."""
        if os.path.isdir(path):
            return
        try:
            library = ctypes.CDLL("libgpfs.so", use_errno=True)
        except OSError:
            raise CannotError("drop_cache", "libgpfs.so is not installed: the page pool may keep files") from None
        clear_file_cache(library, path)

    def _ask(self, program: str, *words: str, given: str = "") -> str:
        installed = os.path.join(_COMMANDS, program)
        return self.machine.ask(installed if os.path.exists(installed) else program, *words, given=given)


class _ClearFileCache(ctypes.Structure):
    """gpfsFcntlHeader_t and gpfsClearFileCache_t, one after the other."""

    _fields_ = tuple(
        (name, ctypes.c_int)
        for name in ("total_bytes", "version", "error_offset", "reserved", "struct_bytes", "struct_type")
    )


def clear_file_cache(library: ctypes.CDLL, path: str) -> None:
    """Have the client forget what its page pool holds of a file.

    Raises:
        CannotError: it refuses.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        hint = _ClearFileCache(ctypes.sizeof(_ClearFileCache), _FCNTL_VERSION, 0, 0, 8, _CLEAR_FILE_CACHE)
        if library.gpfs_fcntl(fd, ctypes.byref(hint)):
            raise CannotError("drop_cache", f"gpfs_fcntl: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(fd)


#: mmpmon's keywords (fs_io_s), and the words that stand for them here.
_MMPMON = {
    "_br_": "bytes_read", "_bw_": "bytes_written", "_oc_": "opens", "_cc_": "closes", "_rdc_": "reads",
    "_wc_": "writes", "_dir_": "readdirs", "_iu_": "inode_updates", "_d_": "disks_now",
}  # fmt: skip


def _fields(shown: str) -> dict[str, str | int]:
    """`mmlsfs DEVICE -Y`: a line a field, columns by colons, values percent-encoded."""
    found: dict[str, str | int] = {}
    for line in shown.splitlines():
        columns = line.split(":")
        if len(columns) > 8 and columns[0] == "mmlsfs" and columns[7] in _FACTS:
            value = urllib.parse.unquote(columns[8])
            found[columns[7]] = int(value) if value.isdigit() else value
    return found


def _pools(shown: str) -> tuple[tuple[Target, ...], dict[str, str | int]]:
    """`mmlspool DEVICE`: pools that hold data, with their sizes in KiB, and their block sizes."""
    found = [match for line in shown.splitlines() if (match := _POOL.match(line))]
    data = [match for match in found if match[3] == "yes"]
    targets = tuple(Target(match[1], int(match[5]) * 1024, int(match[6]) * 1024) for match in data)
    return targets, {f"pool.{match[1]}.blockSize": match[2] for match in data}
