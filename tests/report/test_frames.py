"""The frames: what is in the record is in them, in documented columns, and a stranger's folder is only data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ckptstorm as package
from ckptstorm.errors import PlaceError
from ckptstorm.record import files
from ckptstorm.record.summary import summarize
from ckptstorm.report.frame_columns import COLUMNS
from tests.record import synthetic
from tests.record.synthetic import Make
from tests.record.synthetic_loads import COUNT, STAT_MS, with_loads
from tests.record.test_files import _vouch
from tests.report.html.test_page import with_placement

pd = pytest.importorskip("pandas")
MADE = Make(ranks=6, nodes=3, late={4: 4.0})


@pytest.fixture
def folder(tmp_path):
    """One result folder among other things."""
    files.write(synthetic.record(MADE), tmp_path / "results" / "a")
    (tmp_path / "results" / "notes").mkdir()
    (tmp_path / "results" / "readme.txt").touch()
    return tmp_path / "results" / "a"


def _frames(results):
    return {name: getattr(results, name) for name in COLUMNS}


def test_every_frame_has_its_documented_columns(folder):
    """In the documented order; kind_ns has one for each kind that took time."""
    files.write(with_loads(synthetic.record(MADE)), folder.parent / "loads")
    for name, frame in _frames(package.load(folder.parent / "loads")).items():
        if name == "kind_ns":
            assert list(frame.columns) == ["storm_id", "phase", "round", "rank", "write_ns", "read_ns", "fsync_ns"]
        else:
            assert list(frame.columns) == list(COLUMNS[name])
        assert len(frame)


def test_numbers_are_those_of_the_record(folder):
    """Sums, maxima and times, frame by frame, against the record that was written."""
    record, results = synthetic.record(MADE), package.load(folder)
    assert [phase.bytes for phase in summarize(record)] == results.phases["bytes"].tolist()
    assert [phase.seconds for phase in summarize(record)] == results.phases.seconds.tolist()
    assert results.phases.straggler_count.tolist() == [1, 0] * 3
    late = results.ranks[results.ranks.is_straggler]
    assert set(late["rank"]) == {4} and set(late["phase"]) == {"save"} and set(late["host"]) == {"gpu002"}
    worst = results.ranks.groupby(["phase", "round"], observed=True).seconds.max()
    assert worst["save"].tolist() == results.phases.seconds[::2].tolist()
    for phase in record.phases:
        word = (phase.phase.word, phase.round)
        rows = results.ranks.set_index(["phase", "round"]).loc[[word]]
        assert rows["durable_ns"].tolist() == phase.rows["durable_ns"].tolist()
        bins = results.timeline.set_index(["phase", "round"]).loc[[word]]
        assert bins["bytes"].sum() == phase.rows["bytes"].sum()
        counts = results.latency.set_index(["phase", "round"]).loc[[word]]
        assert counts["count"].sum() == phase.latency.counts.sum()
        assert counts["max_ns"].max() == phase.latency.max_ns.max()
        kinds = results.kind_ns.set_index(["phase", "round"]).loc[[word]]
        assert kinds["write_ns"].sum() + kinds["read_ns"].sum() + kinds["fsync_ns"].sum() == phase.kind_ns.sum()
    assert results.placement.host.tolist() == ["gpu000", "gpu000", "gpu001", "gpu001", "gpu002", "gpu002"]
    assert results.clock.agrees.all() and (results.clock.uncertainty_ns == 20_000).all()
    storm = results.storms.iloc[0]
    assert (storm.valid, storm.model, storm.ranks, storm.save_rounds) == (True, "llama3-8b", 6, 3)
    assert "durable=yes" in storm.receipts


def test_loads_are_told_window_by_window(tmp_path):
    """Actions, percentiles, what was due and what ended; phases and latencies go by the stage's own name."""
    files.write(with_loads(synthetic.record(Make(ranks=3, rounds=1))), tmp_path / "x")
    results = package.load(tmp_path)
    loads = results.loads[results.loads.action == "stat"].set_index("window")
    assert loads.index.tolist() == list(STAT_MS)
    assert loads["load"].unique().tolist() == ["users"] and (loads["count"] == COUNT).all()
    assert (loads.max_ns / 10**7).tolist() == list(STAT_MS.values())
    assert loads.ended_count.tolist() == [COUNT, COUNT - COUNT // 10, COUNT, COUNT]
    assert loads.p50_ns["during the save"] / loads.p50_ns["before the save"] == pytest.approx(20, rel=0.02)
    assert "users during the save" in results.phases.phase.tolist()
    assert set(results.ranks.phase.unique()) >= {"quiet save", "save", "users before the save"}


def test_placement_tells_where_the_files_lie(tmp_path):
    """A row a rank, file and target; what is no placement in a stranger's record is left out."""
    files.write(with_placement(synthetic.record(Make(ranks=3, rounds=1))), tmp_path / "x")
    placement = package.load(tmp_path).placement
    assert placement["rank"].tolist() == [0, 1, 2]
    assert placement["file"].tolist()[:2] == ["a", "b"] and placement["file"].isna().tolist() == [False, False, True]
    assert placement["target"].tolist()[:2] == ["ost3", "ost1"]


def test_latency_bins_hold_their_values(folder):
    """Widths are those of the histogram, and the exact maximum lies in the last bin that counted."""
    bins = package.load(folder).latency
    assert (bins.low_ns <= bins.high_ns).all() and (bins["count"] > 0).all()
    last = bins.sort_values("low_ns").groupby(["phase", "round", "kind", "size_class"], observed=True).tail(1)
    assert ((last.low_ns <= last.max_ns) & (last.max_ns <= last.high_ns)).all()


def test_frames_are_made_when_asked_for_and_once(folder):
    """A damaged storm.h5 is met by the frame that needs it, not by load; the same frame is the same object."""
    results = package.load(folder)
    assert results.ranks is results.ranks
    (folder / "storm.h5").write_bytes(b"")
    assert package.load(folder).folders == (folder,)
    with pytest.raises(PlaceError, match=r"storm\.h5 is damaged"):
        package.load(folder).ranks  # noqa: B018


def test_many_storms_stand_one_below_the_other(folder):
    """A folder of results, or a pattern; a journal only when it is named; categories stay categories."""
    other = replace(synthetic.record(Make(ranks=2, rounds=1)), storm_id="other")
    files.write(other, folder.parent / "b")
    files.write(other, folder.parent / "c.partial")
    files.write(other, folder.parent / ".d.growing-1")
    for path in (folder.parent, str(folder.parent / "[ab]"), f"{folder.parent}/?"):
        results = package.load(path)
        assert [each.name for each in results.folders] == ["a", "b"]
    assert results.storms.ranks.tolist() == [6, 2]
    assert len(results.ranks) == 6 * 6 + 2 * 2
    for frame in (results.ranks, results.latency, results.timeline):
        assert isinstance(frame["storm_id"].dtype, pd.CategoricalDtype)
        assert set(frame["storm_id"]) == {"llama3-8b-20261101-120000", "other"}
    assert package.load(folder.parent / "c.partial").storms.storm_id.tolist() == ["other"]


def test_a_path_without_results_is_refused(tmp_path):
    """By its name, with what a result folder holds."""
    for path in (tmp_path, tmp_path / "nothing", tmp_path / "no*"):
        with pytest.raises(PlaceError, match="there is no result folder at"):
            package.load(path)


def test_a_storm_without_phases_has_empty_frames(tmp_path):
    """Interrupted before the first: a row in storms, columns everywhere."""
    files.write(replace(synthetic.record(), phases=(), ended="interrupted"), tmp_path / "x")
    frames = _frames(package.load(tmp_path))
    assert len(frames["storms"]) == 1 and np.isnan(frames["storms"].save_seconds[0])
    assert all(len(frames[name]) == 0 for name in COLUMNS if name not in ("storms", "placement"))


def test_load_needs_no_mpi_and_importing_the_package_needs_nothing(folder):
    """A rank that imports the package loads neither pandas nor the frames; an analyst needs no MPI."""
    script = (
        "import sys, ckptstorm; before = set(sys.modules); print([m for m in before if m.startswith('ckptstorm.')])\n"
        "results = ckptstorm.load(sys.argv[1]); print('pandas' in sys.modules); results.ranks\n"
        "print([m for m in sys.modules if m.split('.')[0] == 'mpi4py' or m.startswith(('ckptstorm.storm',\n"
        "    'ckptstorm.cluster', 'ckptstorm.engines'))])\n"
    )
    command = [sys.executable, "-P", "-c", script, str(folder)]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    assert child.stdout.split("\n")[:3] == ["[]", "False", "[]"]


def test_without_pandas_the_remedy_is_named(folder, monkeypatch):
    """One sentence and the command."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(PlaceError, match="needs pandas") as caught:
        package.load(folder)
    assert caught.value.hint == "pip install 'ckptstorm[analysis]'"


def test_text_in_a_folder_stays_text(tmp_path):
    """A job, a host and a storm's name that look like code or markup are shown, never run."""
    evil = "__import__('os').system('touch /tmp/owned')"
    made = synthetic.record(Make(ranks=2, rounds=1))
    node = replace(made.nodes[0], host=evil)
    made = replace(made, storm_id=evil, nodes=(node,), environment=made.environment | {"directory": evil})
    files.write(made, tmp_path / "x")
    results = package.load(tmp_path)
    assert results.storms.directory[0] == evil
    assert set(results.placement.host) == {evil}


_MUTATE = """
import random, resource, sys
from pathlib import Path
import ckptstorm
from ckptstorm.errors import PlaceError
from tests.record.test_files import _mutated, _vouch

folder, rng, ended = Path(sys.argv[1]), random.Random(9), {"refused": 0, "read": 0}
whole = {name: (folder / name).read_bytes() for name in ("storm.h5", "storm.json")}
results = ckptstorm.load(folder); results.ranks
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for turn in range(2000):
    name = "storm.json" if turn % 4 == 0 else "storm.h5"
    (folder / name).write_bytes(_mutated(whole[name], rng))
    if name == "storm.h5" and turn % 4 < 3:
        _vouch(folder)
    try:
        results = ckptstorm.load(folder)
        results.ranks, results.timeline, results.kind_ns
        ended["read"] += 1
    except PlaceError as error:
        assert chr(10) not in str(error) and str(folder) in str(error), error
        ended["refused"] += 1
    for each, content in whole.items():
        (folder / each).write_bytes(content)
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
print(ended["refused"] + ended["read"], ended["refused"] > 1200)
"""


def test_2000_damaged_and_hostile_files_end_in_one_sentence_each(tmp_path):
    """Cut off, flipped, overwritten, shortened, most with a checksum that fits; in a child, which must not crash."""
    files.write(synthetic.record(Make(ranks=2, rounds=1)), tmp_path / "x")
    child = subprocess.run(
        [sys.executable, "-c", _MUTATE, str(tmp_path / "x")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (child.returncode, child.stderr, child.stdout) == (0, "", "2000 True\n")


def test_a_file_of_holes_cannot_take_all_memory(folder):
    """A hostile storm.h5 of 6 KB that claims a table of gigabytes is refused before a byte of it is read."""
    import h5py

    with h5py.File(folder / "storm.h5", "r+") as file:
        del file["timeline"]
        file.create_dataset("timeline", shape=(1 << 33,), dtype=np.dtype("V16"), chunks=(1 << 16,))
    _vouch(folder)
    with pytest.raises(PlaceError, match='"timeline"'):
        package.load(folder).timeline  # noqa: B018


def test_the_page_of_the_frames_is_made_from_the_columns():
    """docs/frames.md is what docs/make_frames_page.py makes."""
    root = Path(__file__).parents[2]
    made = subprocess.run(
        [sys.executable, "-P", str(root / "docs" / "make_frames_page.py")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
    )
    assert (root / "docs" / "frames.md").read_text(encoding="utf-8") == made.stdout


def test_a_summary_that_was_changed_changes_nothing(folder):
    """Numbers come from storm.h5."""
    told = json.loads((folder / "storm.json").read_text())
    told["phases"][0]["seconds"] = 0.001
    (folder / "storm.json").write_text(json.dumps(told))
    assert package.load(folder).phases.seconds[0] > 1
