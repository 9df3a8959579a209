"""Results of real storms that stand in git: a newer version reads what an older one wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from ckptstorm.record import files
from ckptstorm.record.verdict import verdict
from ckptstorm.report.terminal import render

RESULTS = Path(__file__).parents[1] / "data" / "results"
FOLDERS = sorted(path.parent for path in RESULTS.rglob("storm.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(RESULTS)))
def test_a_result_in_git_still_loads(folder):
    """Every table, as it was written; its verdict is the one it had, and it has a report."""
    record = files.load(folder)
    assert verdict(record).exit_code == 0
    assert record.storm_id in render(record)


def test_there_are_results_to_load():
    """A straggler, four sizes, two systems, loads beside the save."""
    assert len(FOLDERS) == 8
