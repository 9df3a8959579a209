"""The scaling table: storms of a folder against the smallest that asked the same, whatever else lies there."""

from __future__ import annotations

import json

import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.report import scaling as scaling_module
from ckptstorm.report.scaling import is_folder_of_folders, scaling, sections
from ckptstorm.report.terminal import render_sections

pytestmark = pytest.mark.io


def _storms(storm, place, *points):
    """Real storms of the tiny model, each with its results below results/<number>."""
    for number, (ranks, layout) in enumerate(points):
        ended = storm("--set", f"layout.name={layout}", "--results", f"results/{number}", ranks=ranks)
        assert ended.data["ended"] == "complete"
    return str(place / "results")


@pytest.mark.mpi
def test_storms_are_set_against_the_smallest_that_asked_the_same(storm, ckptstorm, place):
    """Efficiency 1 for the first of each layout; the other by bandwidth a rank; junk is named and left out."""
    folder = _storms(storm, place, (2, "dcp"), (1, "dcp"), (2, "file_per_rank"))
    (place / "results/junk/x").mkdir(parents=True)
    (place / "results/junk/x/storm.json").write_text("{")
    (place / "results/3/y.partial").mkdir(parents=True)
    (place / "results/3/y.partial/storm.json").write_text("{}")
    found = scaling(folder)
    assert [(row.rank_count, row.varied["layout.name"]) for row in found.rows] == [
        (1, "dcp"), (2, "dcp"), (2, "file_per_rank"),
    ]  # fmt: skip
    first, second, third = found.rows
    assert first.save.efficiency == first.restore.efficiency == third.save.efficiency == 1.0
    assert second.save.efficiency == pytest.approx(second.save.bytes_per_s / 2 / first.save.bytes_per_s)
    assert first.save.p99_ns > 0 and first.save.iops > 0
    assert [name.rpartition("/")[2] for name, _ in found.skipped] == ["y.partial", "x"]
    text = render_sections(sections(found))
    assert max(map(len, text.splitlines())) <= 80
    assert "3 storms; they differ in ranks, layout.name" in text
    shown = ckptstorm("report", "results", "--json")
    assert [row["rank_count"] for row in shown.data["storms"]] == [1, 2, 2]
    assert shown.code == max(row["exit_code"] for row in shown.data["storms"])


def test_what_holds_no_result_is_no_folder_of_folders(tmp_path):
    """A result folder, an empty one, a file; links are not followed; one level too deep is not looked at."""
    assert not is_folder_of_folders(str(tmp_path))
    assert not is_folder_of_folders(str(tmp_path / "absent"))
    deep = tmp_path / "a/b/c"
    deep.mkdir(parents=True)
    (deep / "storm.json").write_text(json.dumps({}))
    assert not is_folder_of_folders(str(tmp_path))
    assert is_folder_of_folders(str(tmp_path / "a"))
    (tmp_path / "outside").symlink_to(deep)
    assert not is_folder_of_folders(str(tmp_path))
    with pytest.raises(PlaceError, match="holds no result folder"):
        scaling_module.scaling(str(tmp_path))
