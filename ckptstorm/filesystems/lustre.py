"""Lustre: files striped over OSTs; striping set and read by `lfs`, bytes on the wire counted by each OSC."""

from __future__ import annotations

import os
from typing import ClassVar, Literal

import msgspec

from ckptstorm.errors import PlaceError
from ckptstorm.filesystems import lustre_text as text
from ckptstorm.filesystems.contract import Adapter, CannotError, Counters, Facts, Placement, Quota, Target
from ckptstorm.filesystems.machine import NoAnswerError
from ckptstorm.filesystems.mount import Mount
from ckptstorm.units import parse_bytes

#: Where clients of different versions show their statistics, the newer first.
_STATS = ("/sys/kernel/debug/lustre", "/proc/fs/lustre")
_PARAMETERS = ("/sys/fs/lustre", "/proc/fs/lustre")
#: What of a client shapes a storm; of the first OSC and of llite.
_TUNABLES = (
    ("osc", "max_rpcs_in_flight"),
    ("osc", "max_dirty_mb"),
    ("osc", "checksums"),
    ("osc", "max_pages_per_rpc"),
    ("llite", "max_read_ahead_mb"),
    ("llite", "max_cached_mb"),
)


class Component(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One component of a progressive layout."""

    end: str  # up to which byte of the file: "64MiB"; "eof"
    count: int | None = None  # OSTs; -1: all
    size: str | None = None  # of a stripe: "4MiB"
    pool: str | None = None
    pattern: Literal["raid0", "overstriped", "mdt"] = "raid0"  # mdt: data on the metadata server


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[layout] stripe` on Lustre."""

    count: int | None = None  # OSTs of a file; -1: all
    size: str | None = None  # of a stripe: "4MiB"
    pool: str | None = None  # of OSTs
    pattern: Literal["raid0", "overstriped"] = "raid0"  # overstriped: several stripes on one OST
    components: tuple[Component, ...] = ()  # a progressive layout, instead of the keys above


class Lustre(Adapter):
    """A Lustre client."""

    name: ClassVar[str] = "lustre"
    title: ClassVar[str] = "Lustre"
    proves_residency: ClassVar[bool] = True
    Options: ClassVar[type[msgspec.Struct]] = Options

    @classmethod
    def matches(cls, mount: Mount) -> bool:
        """See `contract.Adapter.matches`."""
        return mount.type == "lustre"

    @property
    def file_system(self) -> str:
        """Its name: "scratch" of "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch/sub"."""
        return self.mount.source.partition(":/")[2].split("/")[0]

    def facts(self, directory: str) -> Facts:
        """See `contract.Adapter.facts`."""
        cannot: dict[str, str] = {}
        details: dict[str, str | int] = {"file_system": self.file_system}
        targets: tuple[Target, ...] = ()
        quotas: tuple[Quota, ...] = ()
        try:
            targets = self._targets()
        except NoAnswerError as error:
            cannot["targets"] = cannot["placement"] = cannot["prepare"] = str(error)
        try:
            layout = text.layout(self.machine.ask("lfs", "getstripe", "-d", directory))
            details |= {f"directory.{key}": value for key, value in layout.items()}
            quotas = (self._quota(directory),)
        except (NoAnswerError, ValueError) as error:
            cannot["quota"] = str(error)
        details |= self._tunables()
        return Facts(self.mount.source.partition(":/")[0], self._version(), targets, quotas, details, cannot)

    def check_options(self, options: msgspec.Struct) -> None:
        """See `contract.Adapter.check_options`: counts, sizes and pools against what there is."""
        assert isinstance(options, Options)
        if options.components and any(value is not None for value in (options.count, options.size, options.pool)):
            raise PlaceError("[layout] stripe has components and keys beside them: a layout is one or the other")
        try:
            osts = [target for target in self._targets() if not target.name.endswith("-MDT")]
        except NoAnswerError as error:
            raise CannotError("prepare", str(error)) from None
        for part in options.components or (options,):
            if part.count is not None and (part.count == 0 or part.count < -1):
                raise PlaceError(f"[layout] stripe count = {part.count}: no number of OSTs", "1 or more, or -1 for all")
            if part.count is not None and part.count > len(osts) and part.pattern != "overstriped":
                raise PlaceError(
                    f"[layout] stripe count = {part.count}: {self.file_system} has {len(osts)} OSTs",
                    f'ask for at most {len(osts)}, for all with count = -1, or set pattern = "overstriped"',
                )
            if part.pool is not None:
                self._check_pool(part.pool)
            _bytes_of("size", part.size)

    def prepare(self, directory: str, options: msgspec.Struct) -> dict[str, str | int]:
        """See `contract.Adapter.prepare`: `lfs setstripe` on the directory, whose files inherit it."""
        assert isinstance(options, Options)
        self.check_options(options)
        words = _words(options) if not options.components else [word for c in options.components for word in _of(c)]
        try:
            self.machine.ask("lfs", "setstripe", *words, directory)
            return text.layout(self.machine.ask("lfs", "getstripe", "-d", directory))
        except NoAnswerError as error:
            raise PlaceError(
                f"[layout] stripe: {error}", "see `lfs help setstripe` for what this version takes"
            ) from None

    def placement(self, path: str) -> Placement:
        """See `contract.Adapter.placement`: a target an object; "MDT" for what lies on the metadata server."""
        try:
            shown = self.machine.ask("lfs", "getstripe", path)
        except NoAnswerError as error:
            raise CannotError("placement", str(error)) from None
        indices = text.objects(shown)
        return Placement(tuple(self._ost(index) for index in indices), text.layout(shown))

    def counters(self) -> Counters:
        """See `contract.Adapter.counters`: bulk bytes of each OSC, and the calls of llite and the MDCs."""
        values: dict[str, int] = {}
        read = written = -1
        for kind in ("osc", "mdc", "llite"):
            for name, shown in self._statistics(kind):
                found = text.statistics(shown)
                if kind == "osc":
                    read, written = max(read, 0), max(written, 0)
                    read, written = read + found.get("read_bytes", 0), written + found.get("write_bytes", 0)
                short = name.partition("-")[2].rpartition("-")[0] or "client"
                values |= {f"{kind}.{short}.{key}": value for key, value in found.items()}
        if read < 0:
            raise CannotError("counters", f"no osc statistics under {' or '.join(_STATS)} (root may be needed)")
        return Counters(f"{os.uname().nodename}:{self.mount.source}", "client's wire", read, written, values)

    def drop_cache(self, path: str) -> None:
        """See `contract.Adapter.drop_cache`: a directory's lock cache, with which the pages under the locks go."""
        if not os.path.isdir(path):
            super().drop_cache(path)
            return
        cleared = False
        for root in _PARAMETERS:
            for name in self.machine.names(f"{root}/ldlm/namespaces"):
                if name.startswith(f"{self.file_system}-OST") and "-osc-" in name:
                    self._clear(f"{root}/ldlm/namespaces/{name}/lru_size")
                    cleared = True
        if not cleared:
            raise CannotError("drop_cache", "no lock namespaces of this file system's OSTs are to be seen")

    def _clear(self, path: str) -> None:
        try:
            self.machine.path(path).write_text("clear")
        except OSError as error:
            raise CannotError("drop_cache", f"{path}: {error.strerror} (clearing the lock cache takes root)") from None

    def _targets(self) -> tuple[Target, ...]:
        return text.targets(self.machine.ask("lfs", "df", self.mount.mount_point))

    def _check_pool(self, pool: str) -> None:
        try:
            pools = text.pools(self.machine.ask("lfs", "pool_list", self.file_system))
        except NoAnswerError as error:
            raise CannotError("prepare", str(error)) from None
        if pool.removeprefix(f"{self.file_system}.") not in pools:
            there = ", ".join(pools) if pools else "none"
            raise PlaceError(f'[layout] stripe pool = "{pool}": {self.file_system} has no such pool', f"pools: {there}")

    def _quota(self, directory: str) -> Quota:
        user = str(os.getuid())
        return text.quota(self.machine.ask("lfs", "quota", "-q", "-u", user, directory), f"user {user}")

    def _statistics(self, kind: str) -> list[tuple[str, str]]:
        """(device, its stats file) of this file system; nothing where they may not be read."""
        for root in _STATS:
            names = [n for n in self.machine.names(f"{root}/{kind}") if n.startswith(f"{self.file_system}-")]
            try:
                found = [(name, self.machine.read(f"{root}/{kind}/{name}/stats")) for name in names]
            except NoAnswerError:
                continue
            if found:
                return found
        return []

    def _tunables(self) -> dict[str, str | int]:
        found: dict[str, str | int] = {}
        for root in _PARAMETERS:
            for kind, name in _TUNABLES:
                devices = [n for n in self.machine.names(f"{root}/{kind}") if n.startswith(f"{self.file_system}-")]
                try:
                    found[f"{kind}.{name}"] = self.machine.read(f"{root}/{kind}/{devices[0]}/{name}").split("\n")[0]
                except (IndexError, NoAnswerError):
                    continue
        return found

    def _version(self) -> str:
        for path in ("/sys/fs/lustre/version", "/proc/fs/lustre/version"):
            try:
                return self.machine.read(path).split()[-1]
            except (NoAnswerError, IndexError):
                continue
        return ""

    def _ost(self, index: int) -> str:
        return f"{self.file_system}-OST{index:04x}" if index >= 0 else f"{self.file_system}-MDT"


def _words(part: Options | Component) -> list[str]:
    """The words of `lfs setstripe` for one layout or component."""
    words: list[str] = []
    if part.pattern == "mdt":
        return ["-L", "mdt"]
    if part.count is not None:
        words += ["-C" if part.pattern == "overstriped" else "-c", str(part.count)]
    if part.size is not None:
        words += ["-S", str(_bytes_of("size", part.size))]
    return words + (["-p", part.pool] if part.pool is not None else [])


def _of(component: Component) -> list[str]:
    end = "-1" if component.end == "eof" else str(_bytes_of("end", component.end))
    return ["-E", end, *_words(component)]


def _bytes_of(key: str, value: str | None) -> int:
    try:
        size = parse_bytes(value) if value is not None else 1 << 16
    except ValueError as error:
        raise PlaceError(f"[layout] stripe {key}: {error}") from None
    if size % (1 << 16):
        raise PlaceError(f'[layout] stripe {key} = "{value}": Lustre cuts at multiples of 64 KiB')
    return size
