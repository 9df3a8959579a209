"""Live numbers: whole files at every moment, in a place of their own, and a storm that does not wait for them."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ckptstorm.cluster.slots import SLOT_DTYPE, State
from ckptstorm.errors import PlaceError
from ckptstorm.measure.rows import Phase
from ckptstorm.storm import live_metrics
from ckptstorm.storm.live_metrics import LiveMetrics
from tests.conftest import TINY
from tests.record import synthetic


def _values(path) -> dict[str, float]:
    families = text_string_to_metric_families(path.read_text())
    return {sample.name.removeprefix("ckptstorm_"): sample.value for family in families for sample in family.samples}


def _made(tmp_path) -> LiveMetrics:
    return LiveMetrics(str(tmp_path / "storm.prom"), str(tmp_path / "data"), "x", 4)


def test_it_tells_of_the_phase_under_way_and_of_the_last(tmp_path, monkeypatch):
    """Bytes moved and ranks done by now; then how long a finished phase took; at last that it is over."""
    monkeypatch.setattr(live_metrics, "_FIRST_NS", 0)
    monkeypatch.setattr(live_metrics, "_INTERVAL_NS", 0)
    metrics = _made(tmp_path)
    assert _values(tmp_path / "storm.prom") == {"storm_running": 1.0, "storm_ranks": 4.0}
    lines = np.zeros(4, dtype=SLOT_DTYPE)
    lines["state"], lines["bytes_moved"] = [State.DONE, State.RUNNING, State.RUNNING, State.WAITING], 100
    for now_ns in (1_000_000_000, 3_000_000_000):
        monkeypatch.setattr(live_metrics, "monotonic_ns", lambda now_ns=now_ns: now_ns)
        metrics.look(Phase.SAVE, 1, lines)
        lines["ops_done"][2] += 1
    metrics._pen.close(10)
    found = _values(tmp_path / "storm.prom")
    assert found["current_ranks_done"] == 1 and found["current_moved_bytes"] == 400
    assert found["current_stuck_seconds"] == 2.0

    again = _made(tmp_path)
    record = synthetic.record()
    again.take(record.phases[0], record)
    again.end()
    found = _values(tmp_path / "storm.prom")
    assert found["storm_running"] == 0
    assert found["last_seconds"] == pytest.approx(2.025, abs=0.001)
    assert [each.name for each in tmp_path.iterdir()] == ["storm.prom"]


def test_a_slow_disk_holds_nobody_up(tmp_path, monkeypatch):
    """While a writing hangs, texts are handed over and skipped; only the newest is written afterwards."""
    metrics = _made(tmp_path)
    lets_go, written = threading.Event(), []

    def write(text: str) -> None:
        lets_go.wait(10)
        written.append(text)

    pen = live_metrics._Pen(write)
    for number in range(100):
        pen.write(str(number))
    assert not written
    lets_go.set()
    pen.close(10)
    assert len(written) <= 2 and written[-1] == "99"
    metrics.end()


def test_a_full_disk_is_told_and_the_storm_goes_on(tmp_path, capsys):
    """The directory is gone in the middle of the storm."""
    home = tmp_path / "gone"
    home.mkdir()
    metrics = LiveMetrics(str(home / "storm.prom"), str(tmp_path / "data"), "x", 4)
    (home / "storm.prom").unlink()
    home.rmdir()
    record = synthetic.record()
    metrics.take(record.phases[0], record)
    metrics.end()
    assert "cannot be written: No such file or directory; the storm went on without it" in capsys.readouterr().err


@pytest.mark.parametrize("bad", ["data/storm.prom", "theirs.prom", "nowhere/storm.prom", "."])
def test_a_bad_file_is_refused_before_anything_is_made(bad, tmp_path):
    """In the directory under test, somebody else's, in no directory, a directory: one sentence, nothing replaced."""
    (tmp_path / "data").mkdir()
    (tmp_path / "theirs.prom").write_text("node_load1 0.5\n")
    with pytest.raises(PlaceError, match="--metrics"):
        LiveMetrics(str(tmp_path / bad), str(tmp_path / "data"), "x", 4)
    assert (tmp_path / "theirs.prom").read_text() == "node_load1 0.5\n"
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.mpi
def test_a_storm_keeps_its_file(storm, place):
    """From the command line, through mpiexec, to the file: the numbers of its last phases."""
    ended = storm("--metrics", "storm.prom")
    assert ended.code in (0, 1), ended.said  # on a small machine the client is the limit
    families = {f.name: f for f in text_string_to_metric_families((place / "storm.prom").read_text())}
    assert families["ckptstorm_storm_running"].samples[0].value == 0
    moved = {s.labels["phase"]: s.value for s in families["ckptstorm_last_moved_bytes"].samples}
    saves = [phase for phase in ended.data["phases"] if phase["phase"] == "save"]
    assert moved["save"] == saves[-1]["bytes"] > 0
    refused = storm("--metrics", "ckptstorm-data/x.prom", "--results", "other", job=TINY)
    assert refused.code == 2
    assert "stands in the directory under test" in refused.err
