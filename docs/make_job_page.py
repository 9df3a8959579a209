"""Makes docs/job.md from the types in ckptstorm/job.py: each key, its type, its default, its comment.

python docs/make_job_page.py            prints the page
python docs/make_job_page.py --write    writes docs/job.md
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

import msgspec

from ckptstorm import job
from ckptstorm.jobfile import describe
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
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _section(title: str, table: type, comments: dict[str, dict[str, str]]) -> str:
    purpose = (table.__doc__ or "").partition(": ")[2].strip()
    return f"{title}\n\n{purpose[:1].upper()}{purpose[1:]}\n\n{_table(table, comments[table.__name__])}"


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
