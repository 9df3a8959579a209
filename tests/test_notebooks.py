"""The notebooks of analysis/: they run on a small real result, and on any other by one path."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ckptstorm.record import files
from tests.record import synthetic
from tests.record.synthetic import Make
from tests.record.synthetic_loads import with_loads
from tests.require import missing

ROOT = Path(__file__).parents[1]
NAMES = ("first_look", "tail_latency", "stragglers", "scaling", "interference", "two_systems")
_EXECUTE = """
import json, sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=180, resources={"metadata": {"path": sys.argv[2]}}).execute()
print(json.dumps([[sorted(output.get("data", {})) for output in cell.get("outputs", [])] for cell in notebook.cells]))
"""
_CELLS = """
import sys, warnings
warnings.simplefilter("error")
import matplotlib
matplotlib.use("Agg")
space = {}
for cell in sys.stdin.read().split("# next cell\\n"):
    exec(compile(cell, "cell", "exec"), space)
print(len(space["table" if "table" in space else "late"]))
"""


def _notebook(name):
    return json.loads((ROOT / "analysis" / f"{name}.ipynb").read_text(encoding="utf-8"))


def _source(cell):
    return "".join(cell["source"])


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_asks_a_question_and_is_changed_in_one_place(name):
    """A question as its title, text before each plot, one path in the first code cell, no outputs in git."""
    cells = _notebook(name)["cells"]
    assert re.match(r"# .*\?\n", _source(cells[0]))
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert re.fullmatch(r'RESULTS = "\.\./tests/data/results/[\w/-]+"  # change this path to .*', _source(code[0]))
    assert not any("tests/data" in _source(cell) for cell in cells[2:])
    assert sum(cell["cell_type"] == "markdown" for cell in cells) >= 3
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_on_the_example(name):
    """In Jupyter's own kernel, where it stands: it ends with a plot and a table."""
    try:
        import ipykernel  # noqa: F401
        import nbclient  # noqa: F401
    except ImportError:
        missing("notebooks", "needs nbclient and ipykernel")
    path = ROOT / "analysis" / f"{name}.ipynb"
    command = [sys.executable, "-P", "-c", _EXECUTE, str(path), str(path.parent)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert child.returncode == 0, child.stderr[-3000:]
    kinds = [kind for cell in json.loads(child.stdout) for output in cell for kind in output]
    assert "image/png" in kinds and "text/html" in kinds


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_on_another_folder(name, tmp_path):
    """Two storms of 64 ranks, opened by changing the path and nothing else."""
    for ranks, late in ((32, {}), (64, {5: 4.0})):
        made = with_loads(synthetic.record(Make(ranks=ranks, nodes=ranks // 8, late=late)))
        files.write(replace(made, storm_id=f"storm-{ranks}"), tmp_path / f"results-{ranks}")
    code = [_source(cell) for cell in _notebook(name)["cells"] if cell["cell_type"] == "code"]
    one_storm = name in ("tail_latency", "stragglers", "interference")
    code[0] = f"RESULTS = {str(tmp_path / 'results-64' if one_storm else tmp_path)!r}"
    command = [sys.executable, "-P", "-c", _CELLS]
    child = subprocess.run(
        command, input="\n# next cell\n".join(code), capture_output=True, text=True, timeout=120, check=False
    )
    assert child.returncode == 0, child.stderr[-3000:]
    assert int(child.stdout.splitlines()[-1]) > 0
