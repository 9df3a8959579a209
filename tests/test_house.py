"""The house rules, run: who may import whom, how large a module and a function may be, what a name may not be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ckptstorm"

#: Ground first. A module imports from floors below its own, or from its own room; rooms of a floor are listed together.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors", "clock"),
    ("units", "registry"),
    ("program", "sizes", "sinks", "pacing", "_kernels", "load_tables"),
    ("job", "steps", "payload", "filesystems"),
    ("slo",),
    ("job_words",),
    ("jobfile", "model"),
    ("loads", "layouts", "engines", "measure"),
    ("buffering",),
    ("lowering", "reshaping"),
    ("scene",),
    ("restore_source", "totals"),
    ("plan", "record", "cluster"),
    ("forecast",),
    ("storm",),
    ("plan_loads",),
    ("report", "batch", "plan_text", "tables", "foreign"),
    ("verbs",),
    ("cli",),
    ("__main__", "testing"),
)
#: What only rank 0 may import, and only inside functions of the command line's verbs or in these rooms.
RANK_0_ONLY = {
    "click": ("cli", "verbs"),
    "rich": ("report",),
    "jinja2": ("batch", "report"),
    "h5py": ("record", "engines"),
    "pandas": ("report",),
}
MODULE_LINES, FUNCTION_LINES, PARAMETERS = 300, 50, 6

MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def _room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _floor(room: str) -> int:
    found = [index for index, rooms in enumerate(FLOORS) if room in rooms]
    assert found, f"{room} stands on no floor: put it into FLOORS"
    return found[0]


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _own_imports(path: Path) -> set[str]:
    """Rooms that a module imports, wherever in it."""
    rooms = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ckptstorm":
            parts = node.module.split(".")
            rooms |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("ckptstorm.")}
    return {room for room in rooms if not room.startswith("__version")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path):
    """A module imports only from floors below its own, or from its own room."""
    room = _room(path)
    if room == "__init__":
        return
    for other in _own_imports(path):
        is_down = _floor(other) < _floor(room) or other == room
        assert is_down, f"{path.name} imports {other}, which is not below {room}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_and_functions_are_small(path):
    """At most 300 lines a module, 50 a function (without its docstring), six parameters."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES
    for node in ast.walk(_tree(path)):
        if not isinstance(node, ast.FunctionDef):
            continue
        docstring = ast.get_docstring(node, clean=False)
        lines = (node.end_lineno or 0) - node.lineno + 1 - (len(docstring.splitlines()) if docstring else 0)
        assert lines <= FUNCTION_LINES, f"{node.name} has {lines} lines"
        names = [
            argument.arg
            for argument in (*node.args.posonlyargs, *node.args.args)
            if argument.arg not in ("self", "cls")
        ]
        assert len(names) <= PARAMETERS, f"{node.name} takes {len(names)} parameters"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_packages_stay_where_they_belong(path):
    """Compute nodes stay lean: what only rank 0 needs is imported by rank 0's rooms only."""
    for node in ast.walk(_tree(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            rooms = RANK_0_ONLY.get(name.split(".")[0])
            assert rooms is None or _room(path) in rooms, f"{name} in {path.name}"


def test_plug_ins_never_import_each_other():
    """Two engines share what is in `calls` and `contract`, never one another."""
    plug_ins = {"posix", "null", "native_engine", "slow", "mpiio", "hdf5", "torch"}
    for path in (PACKAGE / "engines").glob("*.py"):
        if path.stem not in plug_ins:
            continue
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ckptstorm.engines."):
                assert node.module.split(".")[2] not in plug_ins - {path.stem}


def test_no_process_ends_below_the_command_line():
    """sys.exit stands in `__main__` alone: everything else raises, or returns an exit code."""
    for path in MODULES:
        if path.name != "__main__.py":
            assert "sys.exit(" not in path.read_text(encoding="utf-8"), path


def test_only_the_cluster_speaks_mpi():
    """mpi4py has one doorway (the entry point starts it, a record tells its version)."""
    allowed = {"cluster", "__main__"}
    handed_a_communicator = {"mpiio.py", "hdf5.py"}
    for path in MODULES:
        if _room(path) in allowed or (_room(path) == "engines" and path.name in handed_a_communicator):
            continue
        for node in ast.walk(_tree(path)):
            name = node.module if isinstance(node, ast.ImportFrom) else None
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [name or ""]
            assert not any(found.split(".")[0] == "mpi4py" for found in names), path
