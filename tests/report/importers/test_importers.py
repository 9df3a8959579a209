"""Other tools' results: numbers as the tool measured them, its headline beside them, and strangers' files refused."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import ckptstorm
from ckptstorm.errors import PlaceError
from ckptstorm.measure import histogram
from ckptstorm.report import imported, importers, tabular, terminal
from ckptstorm.report.frame_columns import COLUMNS
from ckptstorm.report.importers.seen import PhaseSeen, Seen
from tests.require import missing

DATA = Path(__file__).parents[2] / "data" / "peers"
PEERS = {
    "dlio": DATA / "dlio",
    "ior": DATA / "ior-4.1.0.json",
    "mdtest": DATA / "mdtest-4.1.0.txt",
    "fio": DATA / "fio-3.33.json",
    "elbencho": DATA / "elbencho-3.1.csv",
}


def _read(kind: str) -> tuple[Seen, ...]:
    return importers.read(kind, str(PEERS[kind]))


def _phase(seen: Seen, word: str, number: int = 1) -> PhaseSeen:
    return next(each for each in seen.phases if (each.phase, each.round) == (word, number))


def test_dlio_shows_the_rank_that_the_headline_hides():
    """Rank 2 took 4 s longer in the second save: DLIO's own figure for it is rank 0's 0.052 s."""
    (seen,) = _read("dlio")
    assert (seen.rank_count, seen.node_count) == (4, 2)
    second = _phase(seen, "save", 2)
    assert second.seconds == pytest.approx(4.06)
    assert second.tool_seconds == pytest.approx(0.052)
    assert second.bytes == round(1.2155 * 2**30)
    assert second.tool_bytes_per_s / second.bytes_per_s == pytest.approx(4.06 / 0.052, rel=1e-4)
    assert [rank.seconds for rank in second.ranks] == pytest.approx([0.052, 0.056, 4.06, 0.064])
    text = " ".join(terminal.render_sections(imported.sections((seen,))).split())
    assert "hidden the headline of save 2 is 78.08 times what the last one done allows" in text


def test_dlio_without_all_ranks_claims_no_last_one(tmp_path):
    """Rank 2's file was not kept: it may have been the last, so there is no time of the save."""
    shutil.copytree(PEERS["dlio"], tmp_path / "run")
    (tmp_path / "run" / "2_per_epoch_stats.json").unlink()
    (seen,) = importers.read("dlio", str(tmp_path / "run"))
    assert all(phase.seconds is None for phase in seen.phases)
    assert _phase(seen, "save").tool_seconds == pytest.approx(0.051)
    assert "1 of 4 ranks have no file, the first of them rank 2" in seen.notes[0]


def test_ior_is_read_as_it_wrote():
    """Three repetitions; 2 tasks x 2 segments x 4 MiB each; 16 ops of 1 MiB."""
    (seen,) = _read("ior")
    assert (seen.version, seen.rank_count, seen.node_count) == ("4.1.0+dev", 2, 1)
    assert [(each.phase, each.round) for each in seen.phases] == [
        (word, number) for number in (1, 2, 3) for word in ("save", "restore")
    ]
    assert all(each.bytes == 16 << 20 and each.data_op_count == 16 for each in seen.phases)
    told = json.loads(PEERS["ior"].read_text())["tests"][0]["Results"]
    assert [each.seconds for each in seen.phases] == [result["totalTime"] for result in told]
    for phase in seen.phases:
        assert phase.bytes_per_s == pytest.approx(phase.tool_bytes_per_s, rel=0.02)  # times have four digits


def test_a_stonewalled_ior_claims_no_bytes(tmp_path):
    """How much was moved before the deadline is not in the file."""
    text = PEERS["ior"].read_text().replace('"deadlineForStonewall": 0', '"deadlineForStonewall": 30')
    (tmp_path / "x.json").write_text(text)
    (seen,) = importers.read("ior", str(tmp_path / "x.json"))
    assert _phase(seen, "save").bytes is None and _phase(seen, "save").bytes_per_s is None
    assert "stonewalled" in seen.notes[0]


def test_mdtest_is_told_by_its_slowest_iteration():
    """100 items at the lowest rate; its headline is the mean."""
    (seen,) = _read("mdtest")
    assert (seen.rank_count, seen.node_count) == (2, 1)
    creation = _phase(seen, "file creation")
    assert creation.metadata_op_count == 100
    assert creation.seconds == pytest.approx(100 / 5000.005)
    assert creation.tool_per_s == pytest.approx(6944.816)
    assert _phase(seen, "tree creation").seconds is None


def test_fio_jobs_are_ranks():
    """Two jobs wrote 4 MiB each, four ops and two syncs of it; their histograms hold every op."""
    save, restore = _read("fio")
    phase = _phase(save, "save")
    assert (save.version, save.rank_count) == ("3.33", 2)
    assert phase.bytes == 8 << 20 and phase.data_op_count == 8
    told = json.loads(PEERS["fio"].read_text())["jobs"]
    assert [rank.seconds for rank in phase.ranks] == [job["write"]["runtime"] / 1000 for job in told[:2]]
    assert phase.seconds == max(rank.seconds for rank in phase.ranks)
    assert phase.tool_bytes_per_s == sum(job["write"]["bw_bytes"] for job in told[:2])
    writes = next(each for each in phase.latencies if each.kind == "write")
    assert sum(each.count for each in writes.bins) == 8
    assert writes.max_ns == max(job["write"]["clat_ns"]["max"] for job in told[:2])
    assert _phase(restore, "restore").data_op_count == 64


def test_the_fio_of_this_machine_is_read(tmp_path):
    """A real run, now: whatever its version, bytes and ops are those that it was asked for."""
    fio = shutil.which("fio")
    if fio is None:
        missing("fio", "fio is not installed")
    out = tmp_path / "out.json"
    asked = ["--name=x", "--size=1m", "--bs=64k", "--rw=write", "--ioengine=psync", "--numjobs=2", "--end_fsync=1"]
    command = [fio, f"--directory={tmp_path}", *asked, "--output-format=json+", f"--output={out}"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (seen,) = importers.read("fio", str(out))
    phase = _phase(seen, "save")
    assert phase.bytes == 2 << 20 and phase.data_op_count == 32
    assert sum(each.count for each in phase.latencies[0].bins) == 32
    assert len(phase.ranks) == 2


def test_what_fio_prints_around_its_json_is_passed_over(tmp_path):
    """Of --output-format=normal,json+, and of servers, whose sum line is no rank."""
    text = PEERS["fio"].read_text()
    (tmp_path / "both").write_text(f"a: (g=0): rw=write\nStarting 2 processes\n\n{text}\na: (groupid=0): err= 0\n")
    assert importers.read("fio", str(tmp_path / "both"))[0].phases == _read("fio")[0].phases
    told = json.loads(text)
    jobs = [job | {"hostname": f"h{index}"} for index, job in enumerate(told.pop("jobs")[:2])]
    told["client_stats"] = [*jobs, jobs[0] | {"jobname": "All clients"}]
    (tmp_path / "clients").write_text(json.dumps(told))
    (seen,) = importers.read("fio", str(tmp_path / "clients"))
    assert (seen.rank_count, seen.node_count) == (2, 2)
    assert [rank.host for rank in seen.phases[0].ranks] == ["h0", "h1"]


def test_fios_bins_are_the_ones_it_counts_in():
    """Beside one another without gaps, each around the value that names it, as wide as ours."""
    from ckptstorm.report.importers.fio import _bin

    edges = [_bin(value, 1) for value in range(64)]
    for shift in range(1, 20):
        width = 1 << shift
        edges += [_bin((64 + step) * width + width // 2, 1) for step in range(64) if (64 + step) * width >= 128]
    edges = [each for each in edges if each.low_ns >= 128]
    for before, after in pairwise(edges):
        assert after.low_ns == before.high_ns + 1
    ours = histogram.bucket_index(np.array([each.low_ns for each in edges], dtype=np.int64))
    assert (histogram.bucket_low_ns(ours) == [each.low_ns for each in edges]).all()


def test_elbencho_keeps_first_and_last_done():
    """Its hero number is that of the moment when the first thread was done; ours that of the last."""
    (seen,) = _read("elbencho")
    assert (seen.version, seen.rank_count, seen.node_count) == ("3.1-9", 8, 2)
    first, second = _phase(seen, "save"), _phase(seen, "save", 2)
    assert (first.first_done_s, first.seconds) == (0.4, 1.6)
    assert first.bytes_per_s == pytest.approx(640 * 2**20)
    assert second.seconds == 0.42
    assert _phase(seen, "mkdirs").metadata_op_count == 8
    assert "sync" not in {each.phase for each in seen.phases}


@pytest.mark.parametrize("kind", PEERS)
def test_frames_have_the_columns_of_ours(kind, tmp_path):
    """Each with its documented columns first; numbers are those that were read; and they go into CSV."""
    frames = ckptstorm.import_result(kind, str(PEERS[kind]))
    for name, columns in COLUMNS.items():
        assert list(getattr(frames, name).columns)[: len(columns)] == list(columns)
    assert len(frames.phases) == sum(len(run.phases) for run in frames.runs)
    assert frames.phases.seconds.max() == max(p.seconds for run in frames.runs for p in run.phases if p.seconds)
    assert len(frames.ranks) == sum(len(p.ranks) for run in frames.runs for p in run.phases)
    tabular.write_csv(frames, str(tmp_path / "tables"))
    assert (tmp_path / "tables" / "phases.csv").read_text().count("\n") >= len(frames.phases)


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("other", PEERS)
def test_a_file_of_another_tool_is_refused(kind, other):
    """In one sentence that names the file and the tool."""
    if kind == other:
        return
    with pytest.raises(PlaceError, match=r"is no .* result: ") as refused:
        importers.read(kind, str(PEERS[other]))
    assert PEERS[other].name in str(refused.value)


@pytest.mark.parametrize("kind", [kind for kind in PEERS if kind != "dlio"])
def test_files_of_strangers_end_in_a_sentence(kind, tmp_path):
    """300 files with bytes changed, cut off or doubled, and some that are nothing: read, or refused by name."""
    whole, dice = PEERS[kind].read_bytes(), random.Random(5)
    file = tmp_path / "x"
    made = [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b"{}", b'{"jobs": [], "fio version": "x"}', b"a,b\n1\n"]
    for _ in range(300):
        at, content = dice.randrange(len(whole)), bytearray(whole)
        if dice.random() < 0.3:
            content = content[:at]
        elif dice.random() < 0.5:
            content[at : at + dice.randrange(1, 40)] = dice.randbytes(dice.randrange(0, 20))
        else:
            content[at] = dice.choice(b'0123456789-",{}[]en.\x00')
        made.append(bytes(content))
    refused = 0
    for content in made:
        file.write_bytes(content)
        try:
            terminal.render_sections(imported.sections(importers.read(kind, str(file))))
        except PlaceError as error:
            refused += 1
            assert str(file) in str(error)
    assert refused > 20


def test_places_that_are_no_files_are_refused(tmp_path):
    """A folder, a missing file, an empty folder, a huge world that no loop may walk through."""
    for path, kind in ((tmp_path, "fio"), (tmp_path / "none", "ior"), (tmp_path, "dlio"), (PEERS["ior"], "dlio")):
        with pytest.raises(PlaceError):
            importers.read(kind, str(path))
    shutil.copytree(PEERS["dlio"], tmp_path / "run")
    (tmp_path / "run" / "summary.json").write_text('{"num_accelerators": 1000000000000}')
    with pytest.raises(PlaceError, match="num_accelerators"):
        importers.read("dlio", str(tmp_path / "run"))


@pytest.mark.parametrize("kind", PEERS)
def test_no_line_is_longer_than_80_characters(kind):
    """Of any page."""
    for line in terminal.render_sections(imported.sections(_read(kind))).splitlines():
        assert len(line) <= terminal.WIDTH, line
