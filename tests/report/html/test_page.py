"""The page as text: self-contained, small, escaped, whatever the storm was like; figures that plotly accepts."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.record.record import Node
from ckptstorm.report.html import page, storm
from ckptstorm.report.html.chart import Chart
from tests.record import synthetic
from tests.record.synthetic import Make
from tests.record.synthetic_loads import with_loads
from tests.report.test_terminal import STORMS

go = pytest.importorskip("plotly.graph_objects")
#: 6 MB at 1,024 ranks is what a page may have.
LIMIT_BYTES = 6_000_000
EVIL = '<img src=x onerror="alert(1)"></script><b>&amp;'


def _charts(record):
    return {part.name: part for part in storm.page(record).parts if isinstance(part, Chart)}


def _traces(chart, view=0):
    return {trace["name"]: trace for trace in chart.views[view].figure["data"] if "name" in trace}


def with_placement(made):
    """A file of 3 GiB on ost3 and one of 1 GiB on ost1, of four targets."""
    told = {
        "file_count": 2,
        "asked_count": 2,
        "targets": {"ost1": {"files": 1, "bytes": 1 << 30}, "ost3": {"files": 1, "bytes": 3 << 30}},
        "map": [[0, "a", [1]], [1, "b", [0]], "nonsense", [9, "c", [0]], [0, 5, [1]], [0, "d", [True, -1, "x"]]],
    }
    there = [{"name": f"ost{number}"} for number in range(4)]
    return replace(made, environment=made.environment | {"placement": told, "file_system": {"targets": there}})


def _numbers(spec):
    import base64

    return np.frombuffer(base64.b64decode(spec["bdata"]), dtype=spec["dtype"])


@pytest.mark.parametrize("name", STORMS)
def test_every_storm_has_a_page(name):
    """Failed, interrupted, empty, one rank, long names: verdict first, every section of the terminal's report."""
    text = page.render(storm.page(STORMS[name]()))
    assert text.startswith(page.MARK)
    shown = re.sub(r"<[^>]+>", "", text[text.index("<main") :])
    first = next(word for word in ("INSTRUMENT ONLY", "INVALID", "VALID") if word in shown)
    assert shown.index(first) < shown.index("Receipts: what shows that this is true") < shown.index("How to read this")
    for chart in _charts(STORMS[name]()).values():
        assert chart.finding and chart.views


@pytest.mark.parametrize("name", ["good", "1024 ranks", "straggler and limits"])
def test_plotly_accepts_every_figure(name):
    """Names of traces and attributes are plotly's; Python's plotly checks them."""
    for chart in _charts(STORMS[name]()).values():
        for view in chart.views:
            go.Figure(view.figure)


def test_a_page_at_1024_ranks_is_small_and_complete():
    """All charts, all in one file that names no other place, under the limit."""
    text = page.render(storm.page(STORMS["1024 ranks"]()))
    assert len(text.encode()) < LIMIT_BYTES
    own = text[: text.index('<script type="text/plain" id="library">')]
    assert not re.search(r"(src|href)=\"(?!#|data:)", own) and "@import" not in own and "http://" not in own
    for title in ("Time of each round", "Every rank's time", "Latency of ops", "Bytes by node and time",
                  "Nodes side by side", "What was asked, and what took effect", "The job file"):  # fmt: skip
        assert f"<h2>{title.replace(chr(39), '&#39;')}</h2>" in text


def test_the_same_record_gives_the_same_page():
    """To the byte: pages can be compared and kept in a cache."""
    assert page.render(storm.page(synthetic.record())) == page.render(storm.page(synthetic.record()))


@pytest.mark.parametrize(("ranks", "nodes"), [(4, 1), (128, 16), (2048, 256), (4096, 512)])
def test_the_straggler_is_seen_at_every_size(ranks, nodes):
    """A line of its own, at least 3 pixels thick, ending where it ended, named."""
    late = ranks // 3
    chart = _charts(synthetic.record(Make(ranks=ranks, nodes=nodes, rounds=1, late={late: 4.0})))["ranks"]
    lines, marks = [trace for trace in chart.views[0].figure["data"] if trace["name"] == "straggler"]
    assert lines["line"]["width"] >= 3 and marks["marker"]["size"] >= 9
    assert marks["text"] == [f"rank {late}"] and marks["customdata"] == [
        f"rank {late} on gpu{late * nodes // ranks:03d}"
    ]
    assert 5.9 < _numbers(marks["x"])[0] < 6.2
    by_node = ranks > 2048
    assert _numbers(marks["y"])[0] == (late * nodes // ranks if by_node else late)
    assert chart.views[0].figure["layout"]["yaxis"]["title"]["text"] == ("node" if by_node else "rank")


def test_beyond_2048_ranks_every_straggler_keeps_its_line():
    """Forty of 4,096, of which a few are named; the others are lines by node."""
    late = {rank: 4.0 + rank / 1000 for rank in range(5, 4000, 100)}
    chart = _charts(synthetic.record(Make(ranks=4096, nodes=512, rounds=1, late=late)))["ranks"]
    _, marks = [trace for trace in chart.views[0].figure["data"] if trace["name"] == "straggler"]
    assert len(marks["customdata"]) == 40 and "rank 3905 on gpu488" in marks["customdata"]
    assert 1 <= sum(bool(name) for name in marks["text"]) <= 8
    assert len(_numbers(_traces(chart)["until its first rank was durable"]["x"])) == 3 * 512


def test_latency_lines_end_at_the_exact_maximum():
    """And begin at all ops; the share at a time is that of the ops that took at least so long."""
    made = synthetic.record(Make(rounds=1, late={2: 4.0}))
    chart = _charts(made)["latency"]
    trace = _traces(chart)["fsync"]
    us, shares = _numbers(trace["x"]), _numbers(trace["y"])
    assert shares[0] == 1.0 and shares[-1] == 0.25 and (np.diff(shares) <= 0).all()
    assert us[-1] == pytest.approx(4.2e6, rel=1e-6)
    slowest = next(t for t in chart.views[0].figure["data"] if t["name"] == "slowest")
    assert "fsync: slowest 4.20 s" in slowest["text"]


def test_heat_map_holds_every_byte_and_neighbours_are_grouped():
    """The sum over squares is what moved; 512 nodes become 256 rows."""
    made = synthetic.record(Make(ranks=1024, nodes=512, rounds=1))
    heat = _charts(made)["heat"].views[0].figure["data"][0]
    values = _numbers(heat["z"])
    bins = made.phases[0].timeline
    assert heat["z"]["shape"] == f"256, {bins.bins.shape[1]}"
    moved = values.sum() * (1 << 30) * bins.bin_ns / 1e9
    assert moved == pytest.approx(int(made.phases[0].rows["bytes"].sum()), rel=1e-4)


def test_interference_is_told_and_drawn():
    """A line a window for each action, in the words of the finding; the quiet save has a view and is compared."""
    charts = _charts(with_loads(synthetic.record(Make(ranks=4, rounds=2))))
    chart = charts["beside"]
    assert [view.label for view in chart.views] == ["users: stat", "users: create"]
    lines = [trace["name"] for trace in chart.views[0].figure["data"] if trace["mode"] == "lines"]
    assert lines == ["before the save", "during the save", "after the save", "during the restore"]
    assert (
        "one stat in a hundred took 10.0 ms or more before the save, and 200 ms during it, 20.0 times" in chart.finding
    )
    assert "The save took 2.04 s with the loads and 1.02 s without them (medians of 2 rounds)." in chart.finding
    assert [view.label for view in charts["rounds"].views] == ["save", "quiet save", "restore"]
    assert "users during the save" in [view.label for view in charts["latency"].views]
    assert "beside" not in _charts(synthetic.record())
    for view in chart.views:
        go.Figure(view.figure)


def test_targets_are_set_against_an_even_share():
    """Two of four targets hold everything, one most of it: it is hatched, and the line is a quarter."""
    made = synthetic.record(Make(ranks=2, rounds=1))
    chart = _charts(with_placement(made))["targets"]
    assert "2 files lie on 2 of 4 targets; the fullest, ost3, holds 75 % of the bytes, 3.00 times" in chart.finding
    traces = _traces(chart)
    assert _numbers(traces["more than 1.5 times its share"]["y"]).tolist() == [3.0]
    assert traces["an even share"]["y"] == [1.0, 1.0]
    assert "targets" not in _charts(made)


def test_markup_in_names_stays_text():
    """A host, a directory, a job and a storm's name that hold tags and quotes: none of them becomes one."""
    made = synthetic.record(Make(ranks=4, nodes=2, rounds=1, late={2: 4.0}))
    made = replace(
        made,
        storm_id=EVIL,
        job_text=f"# {EVIL}",
        nodes=(Node(EVIL, 2), Node(EVIL + "2", 2)),
        environment=made.environment | {"directory": f"/{EVIL}"},
        asked={EVIL: (EVIL, EVIL)},
    )
    text = page.render(storm.page(made))
    assert "<img" not in text and "</script><b>" not in text
    figures = re.search(r'id="figures">(.*?)</script>', text, flags=re.S)[1]
    assert "<" not in figures and ">" not in figures
    assert "&lt;img src=x" in json.dumps(json.loads(figures))  # plotly.js turns it back into text


def test_a_page_replaces_its_own_kind_only(tmp_path):
    """Written whole; an earlier report is replaced, anything else stays and is named, links included."""
    path = tmp_path / "report.html"
    text = page.render(storm.page(synthetic.record()))
    page.write(text, path)
    page.write(text, path)
    assert path.read_text(encoding="utf-8") == text
    path.write_text("<html>mine</html>")
    with pytest.raises(PlaceError, match="no report of ckptstorm: it is left as it is"):
        page.write(text, path)
    assert path.read_text() == "<html>mine</html>"
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlaceError, match="left as it is"):
        page.write(text, path)
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(PlaceError, match="cannot be written: No such file"):
        page.write(text, tmp_path / "nowhere" / "report.html")


def test_missing_libraries_are_named_with_the_remedy(monkeypatch):
    """Both, or the one that is missing."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PlaceError, match="needs jinja2 and plotly, which are not installed") as caught:
        page.render(storm.page(synthetic.record()))
    assert caught.value.hint == "pip install 'ckptstorm[report]'"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "plotly" else name)
    with pytest.raises(PlaceError, match="needs plotly, which is not installed"):
        page.require()


def test_the_command_writes_into_the_folder_or_elsewhere(place, ckptstorm):
    """`report DIR --html`, `--output`; the exit code is the record's; a foreign file is refused with code 2."""
    from ckptstorm.record import files

    files.write(synthetic.record(), Path("x"))
    ended = ckptstorm("report", "x", "--html")
    assert (ended.code, ended.out) == (0, "x/report.html\n")
    assert Path("x/report.html").read_text(encoding="utf-8").startswith(page.MARK)
    assert ckptstorm("report", "x", "--output", "page.html").out == "page.html\n"
    Path("page.html").write_text("mine")
    ended = ckptstorm("report", "x", "--output", "page.html")
    assert ended.code == 2 and "left as it is" in ended.err
    assert ckptstorm("report", "x", "--json").code == 0


@pytest.mark.mpi
def test_a_storm_writes_its_page_on_request(place, storm):
    """`run --html`: beside the record, made by rank 0; standard output stays JSON."""
    ended = storm("--html")
    assert ended.code in (0, 1), ended.said
    folder = next(Path("results").iterdir())
    assert ended.data["storm_id"] == folder.name
    assert (folder / "report.html").read_text(encoding="utf-8").startswith(page.MARK)
    assert "report.html" in ended.err
