"""From the text of a site file to a `Site`, or to one sentence that says what is wrong with it and where."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from ckptstorm.batch.site import LAUNCHERS, OF_SRUN, UNKNOWN_TO, DurationOrAuto, Site
from ckptstorm.errors import JobError
from ckptstorm.registry import allowed, suggestion
from ckptstorm.units import Bytes, Duration, parse_bytes, parse_duration

_SIZE_CAP_BYTES = 1 << 20
_AT = re.compile(r" - at (?:`key` in )?`\$(?P<path>.*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<key>[^`]*)`", re.IGNORECASE)


def shipped_sites() -> list[Path]:
    """The site files that come with the package (or with the source tree)."""
    return sorted(slurm_folder().joinpath("sites").glob("*.toml"))


def slurm_folder() -> Path:
    """Where templates and site files are: beside the package's modules, or in the source tree.

    Raises:
        JobError: they were not installed.
    """
    package = Path(__file__).parents[1]
    for folder in (package / "slurm", package.parent / "slurm"):
        if folder.is_dir():
            return folder
    raise JobError("the templates of ckptstorm are missing: slurm/ was not installed", "install the package again")


def read_site(name: str) -> Site:
    """The site in a file, or of a site file that comes with ckptstorm ("one-node").

    Raises:
        JobError: naming file, key, what is allowed, and the nearest name.
    """
    path = Path(name)
    shipped = {one.stem: one for one in shipped_sites()}
    if not path.exists() and name in shipped:
        path = shipped[name]
    try:
        with path.open("rb") as file:
            raw = file.read(_SIZE_CAP_BYTES + 1)
    except OSError as error:
        hint = f"sites that come with ckptstorm: {', '.join(shipped)}"
        raise JobError(f"--site {name}: {error.strerror}{suggestion(path.stem, shipped)}", hint) from None
    if len(raw) > _SIZE_CAP_BYTES:
        raise JobError(f"--site {name}: not a site file: larger than 1 MiB")
    try:
        return decode(raw.decode("utf-8-sig"), name)
    except UnicodeDecodeError as error:
        raise JobError(f"--site {name}: not UTF-8 text at byte {error.start}") from None


def launcher_of(site: Site) -> str:
    """What starts the ranks: the site's word, or the batch system's own."""
    return site.launch.launcher or LAUNCHERS[site.scheduler][0]


def decode(text: str, origin: str) -> Site:
    """The site that `text` holds; `origin` names it in errors. Raises JobError."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise JobError(f"{origin}: not TOML: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except RecursionError:
        raise JobError(f"{origin}: not a site: nested too deeply") from None
    try:
        site = msgspec.convert(data, Site, dec_hook=_decode_unit)
    except msgspec.ValidationError as error:
        raise _problem(str(error), data, origin) from None
    return _honoured(site, data, origin)


def _honoured(site: Site, data: dict[str, Any], origin: str) -> Site:
    for place in UNKNOWN_TO[site.scheduler]:
        table, _, key = place.partition(".")
        if key in data.get(table, {}):
            raise JobError(
                f"{origin}: [{table}] {key}: {site.scheduler} has nothing for it",
                "remove it; what the launcher itself takes can stand in [launch] arguments",
            )
    launcher = launcher_of(site)
    if launcher not in LAUNCHERS[site.scheduler]:
        raise JobError(
            f'{origin}: [launch] launcher = "{launcher}" does not start ranks under {site.scheduler}',
            allowed(f'"{name}"' for name in LAUNCHERS[site.scheduler]),
        )
    for key in OF_SRUN if launcher != "srun" else ():
        if key in data.get("launch", {}):
            raise JobError(f'{origin}: [launch] {key} means nothing to "{launcher}"', "use [launch] arguments for it")
    if site.container is not None and site.container.runtime == "pyxis" and launcher != "srun":
        raise JobError(f'{origin}: [container] runtime = "pyxis" works through srun only', 'set launcher = "srun"')
    if site.container is not None and site.software.archive is not None:
        raise JobError(f"{origin}: [container] and [software] archive: choose one", "an image is staged by its runtime")
    return site


def _decode_unit(target: type, value: Any) -> Any:
    if target is Bytes:
        return parse_bytes(value)
    if target is Duration:
        return parse_duration(value)
    if target is DurationOrAuto:
        return target(0 if value == target.word else parse_duration(value))
    raise NotImplementedError(f"a site has no {target.__name__}")


def _problem(error: str, data: dict[str, Any], origin: str) -> JobError:
    match = _AT.search(error)
    path = [part for part in re.split(r"[.\[\]]+", match["path"]) if part] if match else []
    reason = _AT.sub("", error)
    reason = reason[:1].lower() + reason[1:]
    where = f"[{path[0]}] {' '.join(path[1:])}".strip() if path else ""
    unknown = _UNKNOWN.search(error)
    if unknown:
        known = _keys_at(path)
        home = _home_of(unknown["key"]) if not path else ""
        near = f"; it belongs into [{home}]" if home else suggestion(unknown["key"], known)
        told = f"{where} {unknown['key']}".strip() if path else unknown["key"]
        return JobError(f"{origin}: {told}: unknown key{near}", allowed(known))
    found: Any = data
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    shown = f" = {found!r}" if isinstance(found, str | int | float) else ""
    return JobError(f"{origin}: {where}{shown}: {reason}", "see slurm/sites/example.toml for what is allowed")


def _keys_at(path: list[str]) -> list[str]:
    table: Any = Site
    for step in path:
        kinds = {field.encode_name: field.type for field in msgspec.structs.fields(table)}
        table = kinds.get(step, Site)
        table = next((kind for kind in getattr(table, "__args__", ()) if hasattr(kind, "__struct_fields__")), table)
    return list(table.__struct_fields__)


def _home_of(key: str) -> str:
    """The table that a key written without one belongs into."""
    names = ("allocation", "launch", "software", "container", "storage")
    return next((name for name in names if key in _keys_at([name])), "")


def with_time_limit(site: Site, text: str) -> Site:
    """The site with another time limit ("30min", "auto"). Raises JobError."""
    try:
        limit = DurationOrAuto(0 if text == DurationOrAuto.word else parse_duration(text))
    except ValueError as error:
        raise JobError(f"--time {text}: {error}") from None
    if text != DurationOrAuto.word and not limit:
        raise JobError(f"--time {text}: no time to run in", 'a time such as "30min", or "auto"')
    return msgspec.structs.replace(site, allocation=msgspec.structs.replace(site.allocation, time_limit=limit))
