"""`export` on the command line: each form, the standard output, and nothing overwritten."""

from __future__ import annotations

import json

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ckptstorm.record import files
from tests.record import synthetic
from tests.record.synthetic import Make


def _folder(place):
    files.write(synthetic.record(Make(rounds=2, late={1: 4.0})), place / "storm")
    return "storm"


def test_each_form_is_written(ckptstorm, place):
    """Three at once: a trace, metrics with the save's time, and a copy that is a result folder."""
    ended = ckptstorm(
        "export", _folder(place), "--perfetto", "trace.json", "--openmetrics", "storm.txt", "--anonymous", "copy"
    )
    assert ended.code == 0, ended.said
    assert json.loads((place / "trace.json").read_text())["traceEvents"]
    families = {f.name: f for f in text_string_to_metric_families((place / "storm.txt").read_text())}
    saves = [s.value for s in families["ckptstorm_phase_seconds"].samples if s.labels["phase"] == "save"]
    assert len(saves) == 2 and min(saves) > 5.9
    worst = {
        s.labels["quantile"]: s.value
        for s in families["ckptstorm_op_latency_seconds"].samples
        if s.labels["op"] == "fsync" and s.labels["round"] == "1"
    }
    assert worst["1"] > 4 > worst["0.5"]
    assert ckptstorm("report", "copy").code == ckptstorm("report", "storm").code


def test_the_standard_output_and_what_exists(ckptstorm, place):
    """`-` prints; an existing file or folder stays as it is, with exit code 2."""
    folder = _folder(place)
    assert ckptstorm("export", folder, "--openmetrics", "-").out.endswith("# EOF\n")
    (place / "mine").write_text("mine")
    ended = ckptstorm("export", folder, "--perfetto", "mine")
    assert ended.code == 2
    assert "exists, and is not overwritten" in ended.err
    assert (place / "mine").read_text() == "mine"
    assert ckptstorm("export", folder, "--anonymous", "storm").code == 2
    assert ckptstorm("export", folder).code == 2
