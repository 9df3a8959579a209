"""Makes docs/job.md from the types in ckptstorm/job.py: each key, its type, its default, its comment.

python docs/make_job_page.py            prints the page
python docs/make_job_page.py --write    writes docs/job.md
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import typing
from pathlib import Path

import msgspec

from ckptstorm import job, load_tables, slo
from ckptstorm.filesystems import FILE_SYSTEMS
from ckptstorm.job_words import describe
from ckptstorm.layouts import LAYOUTS
from ckptstorm.registry import find

PAGE = Path(__file__).with_name("job.md")
OPENING = """# The job file

A job is the question: a TOML file of about 20 lines, kept in git. Every key that it leaves out has the
default below; unknown keys are refused. `--set table.key=value` overrides any of them for one run, and the
resolved job stands in every record.

Sizes are written `4096`, `"4KiB"`, `"1.5GB"` (KiB and bare K are 1024, KB is 1000); times `"200ms"`, `"30s"`,
`"10min"`, `"1h"`.

This page is made from the types (`docs/make_job_page.py`); the test suite compares them.
"""


def page() -> str:
    """The whole page."""
    source = Path(job.__file__).read_text(encoding="utf-8")
    comments = _comments(source)
    parts = [OPENING]
    for field in msgspec.structs.fields(job.Job):
        if field.name == "slo":
            parts.append(_limits())
            continue
        if field.name == "load":
            parts += _loads()
            continue
        is_list = field.name == "fault"
        table = job.Fault if is_list else field.type
        title = f"[[{field.name}]]" if is_list else f"[{field.name}]"
        parts.append(_section(f"## {title}", table, comments))
        for inner in msgspec.structs.fields(table):
            if isinstance(inner.type, type) and issubclass(inner.type, msgspec.Struct):
                parts.append(_section(f"## [{field.name}.{inner.encode_name}]", inner.type, comments))
    parts.append("## Options of the layouts\n\nThey stand in `[layout]`, beside the name.")
    for name, entry in LAYOUTS.items():
        options = find("layout", LAYOUTS, name).Options
        if options.__struct_fields__:
            module = Path(importlib.import_module(options.__module__).__file__ or "").read_text(encoding="utf-8")
            rows = _table(options, _comments(module).get(options.__name__, {}))
            parts.append(f"### {name}\n\n{entry.purpose}.\n\n{rows}")
    parts.append("## `[layout] stripe`\n\nOf file systems that have something to set (docs/filesystems).")
    for name in FILE_SYSTEMS:
        adapter = find("file system", FILE_SYSTEMS, name)
        module = Path(importlib.import_module(adapter.__module__).__file__ or "").read_text(encoding="utf-8")
        for table in _tables_of(adapter.Options):
            where = f"{name}: components" if table is not adapter.Options else name
            parts.append(f"### {where}\n\n{_table(table, _comments(module).get(table.__name__, {}))}")
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _limits() -> str:
    """[slo]: its keys are put together, so their parts are listed."""
    rows = [f"| `{name}` | {number.bound} | {_UNITS[number.unit]} | {_OWNERS[number.owner]} | {number.meaning} |"
            for name, number in slo.NUMBERS.items()]  # fmt: skip
    head = "| number | bound | limit | who has it | meaning |\n|---|---|---|---|---|\n"
    quantiles = ", ".join(f"`{quantile}`" for quantile in slo.QUANTILES)
    return LIMITS.format(numbers=head + "\n".join(rows), quantiles=quantiles)


_UNITS = {
    "seconds": 'a number, or a time such as "30s"',
    "bytes_per_s": 'a size such as "5GB"',
    "per_s": "a number",
    "ratio": "a number",
    "ns": 'a time such as "50ms"',
}
_OWNERS = {
    "phase": "save, restore, delete",
    "load": "loads",
    "any": "both",
    "save": "save",
    "staged": "asynchronous saves",
    "metadata": "metadata loads",
}
LIMITS = """## [slo]

Limits on numbers of the record, each reported as met or not with its margin; one that is missed is exit code 1. A key
is put together from words, and refused when it names nothing that the job measures.

    [of whom_]number[_median]                              save_seconds, restore_seconds_median, iops_per_node
    [of whom_]op_quantile[_during_save|_during_restore]    write_p99, save_fsync_max, stat_p99_during_save

*Of whom* is `save`, `restore`, `delete`, or a load's name; without it the worst counts, of the save and the
restore (or of the loads that have such a number). A limit holds for the worst measured round, with `_median` for the
median one.

{numbers}

*Op* is an op kind (`write`, `read`, `fsync`, `open`, `stat`, `unlink` …) or an action of a load (`create`, `list` …);
*quantile* is one of {quantiles}, and the limit a time such as `"50ms"`. `_during_save` is of loads that run
beside the save.
"""


def _tables_of(options: type) -> list[type]:
    """A table of options, and the table that it holds a list of; nothing when it has no keys."""
    if not options.__struct_fields__:
        return []
    kinds = [typing.get_args(field.type) for field in msgspec.structs.fields(options)]
    inner = [kind[0] for kind in kinds if kind and isinstance(kind[0], type) and issubclass(kind[0], msgspec.Struct)]
    return [options, *inner]


def _section(title: str, table: type, comments: dict[str, dict[str, str]]) -> str:
    purpose = (table.__doc__ or "").partition(": ")[2].strip()
    return f"{title}\n\n{purpose[:1].upper()}{purpose[1:]}\n\n{_table(table, comments[table.__name__])}"


def _loads() -> list[str]:
    """A section a kind of [[load]]."""
    comments = _comments(Path(load_tables.__file__).read_text(encoding="utf-8"))
    shared = comments["LoadTable"]
    opening = "Traffic that is not a checkpoint; [loads.md](loads.md) says what the keys mean together."
    parts = [f"## [[load]]\n\n{opening}"]
    for kind, table in load_tables.KINDS.items():
        purpose = (table.__doc__ or "").partition(": ")[2].strip()
        rows = _table(table, shared | comments[table.__name__])
        parts.append(f'### kind = "{kind}"\n\n{purpose[:1].upper()}{purpose[1:]}\n\n{rows}')
    return parts


def _table(table: type, comments: dict[str, str]) -> str:
    lines = ["| key | allowed | default | meaning |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(table):
        if field.name == "options" or (isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)):
            continue
        allowed = describe(field.type).replace("|", "\\|")
        lines.append(f"| `{field.encode_name}` | {allowed} | {_default(field)} | {comments.get(field.name, '')} |")
    return "\n".join(lines)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return "needed"
    value = job.plain(field.default) if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else repr(value).replace(chr(39), chr(34))}`"


def _comments(source: str) -> dict[str, dict[str, str]]:
    """Per class, the comment of each field: behind it, or in the lines above it that begin with '#:'."""
    lines = source.splitlines()
    found: dict[str, dict[str, str]] = {}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef):
            continue
        fields = [item for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]
        found[node.name] = {field.target.id: _comment(lines, field) for field in fields}  # type: ignore[union-attr]
    return found


def _comment(lines: list[str], field: ast.AnnAssign) -> str:
    last = lines[(field.end_lineno or 1) - 1]
    behind = re.search(r"  # (?!fmt|type|noqa)(.*)$", last)
    if behind:
        return behind[1]
    above: list[str] = []
    at = field.lineno - 2
    while at >= 0 and lines[at].strip().startswith("#:"):
        above.insert(0, lines[at].strip().removeprefix("#:").strip())
        at -= 1
    return " ".join(above)


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
