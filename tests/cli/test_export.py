"""`export` on the command line: each form, the standard output, and nothing overwritten."""

from __future__ import annotations

import json
from dataclasses import replace

import pandas
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import ckptstorm as ckptstorm_package
from ckptstorm.record import files
from ckptstorm.report.frame_columns import COLUMNS
from ckptstorm.report.metrics import openmetrics
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


def test_a_phase_that_comes_twice_in_a_round_has_two_samples():
    """Cleaning up does, and loads have a name: a strict reader takes no two samples with the same labels."""
    made = synthetic.record(Make(rounds=1))
    twice = replace(made, phases=(*made.phases, made.phases[1], replace(made.phases[1], name="lookups")))
    families = {f.name: f for f in text_string_to_metric_families(openmetrics(twice))}
    labels = [sample.labels for sample in families["ckptstorm_phase_seconds"].samples if sample.labels["round"] == "1"]
    assert [each.get("part") for each in labels] == [None, None, "2", None]
    assert labels[3]["name"] == "lookups"


def test_tables_are_the_frames(ckptstorm, place):
    """CSV files and JSON lines hold the rows and columns of ckptstorm.load, to the last digit."""
    folder = _folder(place)
    ended = ckptstorm("export", folder, "--csv", "tables", "--json-lines", "rows.jsonl")
    assert ended.code == 0, ended.said
    frames = ckptstorm_package.load(place / folder)
    lines = [json.loads(line) for line in (place / "rows.jsonl").read_text().splitlines()]
    for name in COLUMNS:
        frame, told = getattr(frames, name), pandas.read_csv(place / "tables" / f"{name}.csv")
        assert list(told.columns) == list(frame.columns)
        assert len(told) == len(frame) == sum(line["frame"] == name for line in lines)
    ranks = [line for line in lines if line["frame"] == "ranks"]
    assert [line["durable_ns"] for line in ranks] == frames.ranks.durable_ns.tolist()
    seconds = pandas.read_csv(place / "tables" / "phases.csv").seconds
    assert seconds.tolist() == frames.phases.seconds.tolist()
    assert ckptstorm("export", folder, "--csv", "tables").code == 2
    files.write(synthetic.record(storm_id="another"), place / "another")
    assert ckptstorm("export", ".", "--csv", "all").code == 0
    assert len(pandas.read_csv(place / "all" / "storms.csv")) == 2


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
