"""The result folder: whole or not at all, the same when read back, and safe to open from strangers."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.record import files
from ckptstorm.record.record import Failure, MismatchSeen
from ckptstorm.record.stormjson import to_json
from tests.record import synthetic
from tests.record.synthetic import Make, with_phase

#: storm.json keys that others rely on (design, section 8).
PHASE_KEYS = {
    "phase", "round", "seconds", "bytes", "bytes_per_s", "data_op_count", "iops", "iops_over_4k", "metadata_op_count",
    "error_count", "first_done_s", "median_done_s", "last_done_s", "straggler_ratio", "latency_ns", "rank_seconds",
}  # fmt: skip
KEYS = {"schema", "storm_id", "verdict", "receipts", "world", "job", "environment", "phases"}


def _record():
    made = synthetic.record(Make(ranks=6, nodes=3, rounds=2, late={4: 4.0}))
    made = with_phase(made, 0, failures=(Failure("EIO", "fsync", 1, "gpu000", "a", 7, 2),))
    return with_phase(made, 1, mismatches=(MismatchSeen(1, "gpu000", "a differs"),))


@pytest.fixture
def folder(tmp_path):
    """A result folder as a storm leaves it."""
    files.write(_record(), tmp_path / "results" / "x")
    return tmp_path / "results" / "x"


def _same(a, b):
    for each in fields(a):
        one, other = getattr(a, each.name), getattr(b, each.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype and np.array_equal(one, other), each.name
        elif each.name in ("phases", "latency", "timeline"):
            for pair in zip(one, other, strict=True) if each.name == "phases" else [(one, other)]:
                _same(*pair)
        elif each.name != "job":
            assert one == other, each.name


def test_a_record_is_the_same_when_read_back(folder):
    """Every field of every phase, arrays included; the job file verbatim."""
    made = _record()
    loaded = files.load(folder)
    _same(made, loaded)
    assert (folder / "job.toml").read_text() == made.job_text
    assert to_json(loaded) == to_json(made)


def test_storm_json_has_the_keys_that_others_rely_on(folder):
    """All of the design's, and plain JSON."""
    told = json.loads((folder / "storm.json").read_text())
    assert set(told) >= KEYS
    assert set(told["verdict"]) >= {"valid", "met", "reasons"}
    assert all(set(receipt) == {"state", "evidence"} for receipt in told["receipts"].values())
    assert told["world"] == {"ranks": 6, "nodes": 3}
    assert all(set(phase) >= PHASE_KEYS for phase in told["phases"])
    writes = told["phases"][0]["latency_ns"]["write"]["1M"]
    assert set(writes) == {"count", "p50", "p90", "p99", "p999", "max"}
    assert set(told["phases"][0]["rank_seconds"]) == {"p50", "p99", "max"}


def test_storm_h5_opens_without_this_tool(folder):
    """Phase rows as a compound table, the schema as an attribute, histograms beside their names."""
    with h5py.File(folder / "storm.h5") as file:
        assert file.attrs["schema"] == 1
        assert len(file["phase_rows"]) == 4 * 6
        assert set(file["phase_rows"]["rank"].tolist()) == set(range(6))
        assert len(file["latency_keys"]) == len(file["latency_counts"])
        assert file["phase_rows"].compression == "gzip"


def test_an_empty_record_can_be_kept(tmp_path):
    """Interrupted before the first phase: everything known is that."""
    made = replace(_record(), phases=(), ended="interrupted")
    files.write(made, tmp_path / "x")
    assert files.load(tmp_path / "x").ended == "interrupted"


def test_texts_that_are_not_unicode_are_kept_readable(tmp_path):
    """A directory's name may hold any byte; JSON may not."""
    made = replace(_record(), environment={"directory": "/data/\udcff", "path": Path("/x")})
    files.write(made, tmp_path / "x")
    assert files.load(tmp_path / "x").environment == {"directory": "/data/\\udcff", "path": "/x"}


def test_a_result_is_never_overwritten(folder):
    """The folder that is there stays as it was, and nothing is left beside it."""
    before = (folder / "storm.json").read_bytes()
    with pytest.raises(PlaceError, match="exists; a result is never overwritten"):
        files.write(_record(), folder)
    assert (folder / "storm.json").read_bytes() == before
    assert [each.name for each in folder.parent.iterdir()] == ["x"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    """The disk is full while storm.json is written: no folder, no temporary one, one sentence."""

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.stormjson, "encode", full)
    with pytest.raises(PlaceError, match="x cannot be written: No space left on device"):
        files.write(_record(), tmp_path / "results" / "x")
    assert list((tmp_path / "results").iterdir()) == []


def _refused(folder, *words):
    with pytest.raises(PlaceError) as caught:
        files.load(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence and caught.value.exit_code == 2
    for word in words:
        assert word in sentence
    return sentence


@pytest.mark.parametrize("name", ["job.toml", "storm.json", "storm.h5"])
def test_a_missing_file_is_named(folder, name):
    """With what a folder should hold."""
    (folder / name).unlink()
    _refused(folder, name, "No such file")


def test_what_is_no_folder_is_refused(tmp_path):
    """A path that is not there, or is a file."""
    _refused(tmp_path / "nothing", "nothing is no result folder")
    (tmp_path / "file").touch()
    _refused(tmp_path / "file", "is no result folder")


def test_a_fifo_cannot_hold_the_reader(folder):
    """Only regular files are opened."""
    (folder / "storm.json").unlink()
    os.mkfifo(folder / "storm.json")
    _refused(folder, "storm.json", "no regular file")


def test_a_newer_schema_is_refused_with_both_numbers(folder):
    """Which version this tool reads, and what to do."""
    text = (folder / "storm.json").read_text().replace('"schema": 1', '"schema": 7', 1)
    (folder / "storm.json").write_text(text)
    with pytest.raises(PlaceError, match=r"has schema 7, and this version of ckptstorm reads up to 1") as caught:
        files.load(folder)
    assert "newer ckptstorm" in caught.value.hint


def test_an_oversized_file_is_refused_before_it_is_read(folder):
    """A sparse storm.json of a gigabyte."""
    with (folder / "storm.json").open("r+b") as file:
        file.truncate(1 << 30)
    _refused(folder, "storm.json", "more than any storm writes")


def test_deep_nesting_is_refused(folder):
    """A million brackets cannot exhaust the stack."""
    text = (folder / "storm.json").read_text()
    (folder / "storm.json").write_text(text.replace('"job": {', '"job": {"a": ' + "[" * 10**6 + "]" * 10**6 + ",", 1))
    _refused(folder, "storm.json", "damaged")


def test_a_flipped_bit_in_storm_h5_is_found_by_its_checksum(folder):
    """Before the HDF5 library reads the file."""
    content = bytearray((folder / "storm.h5").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "storm.h5").write_bytes(content)
    _refused(folder, "storm.h5", "checksum")


def test_figures_changed_in_storm_json_change_nothing(folder):
    """Numbers are computed from storm.h5; the summary is for reading."""
    told = json.loads((folder / "storm.json").read_text())
    told["phases"][0]["seconds"] = 0.001
    told["verdict"]["valid"] = False
    (folder / "storm.json").write_text(json.dumps(told))
    assert to_json(files.load(folder)) == to_json(_record())


def _with_h5(folder, change):
    """Change storm.h5, and make storm.json vouch for it: what only a hostile hand does."""
    with h5py.File(folder / "storm.h5", "r+") as file:
        change(file)
    _vouch(folder)


def _vouch(folder):
    told = json.loads((folder / "storm.json").read_text())
    told["h5_sha256"] = hashlib.sha256((folder / "storm.h5").read_bytes()).hexdigest()
    (folder / "storm.json").write_text(json.dumps(told))


def _replace(name, **kwargs):
    def change(file):
        del file[name]
        file.create_dataset(name, **kwargs)

    return change


def _set(name, column, value):
    def change(file):
        table = file[name][()]
        if column:
            table[column][0] = value
        else:
            table[0] = value
        file[name][()] = table

    return change


def _external_link(file):
    del file["phase_rows"]
    file["phase_rows"] = h5py.ExternalLink("/etc/hostname", "/x")


def _no_schema(file):
    del file.attrs["schema"]


HOSTILE = {
    "objects": (_replace("phase_rows", data=["a"] * 3, dtype=h5py.string_dtype()), "another type"),
    "another shape": (_replace("latency_counts", data=np.zeros((3, 7), dtype="<i8")), "another type"),
    "a group": (lambda file: (file.__delitem__("phases"), file.create_group("phases")), "no plain table"),
    "a link to another file": (_external_link, "stands in another file"),
    "far too many rows": (
        _replace("node_of_rank", shape=(1 << 40,), dtype="<i4", chunks=(1 << 20,)), "more than any storm has",
    ),
    "no schema": (_no_schema, "damaged"),
    "a newer schema": (lambda file: file.attrs.modify("schema", 9), "schema 9"),
    "a rank that there is not": (_set("phase_rows", "rank", 10**6), "a rank that there is not"),
    "a rank twice": (_set("phase_rows", "rank", 1), "a rank twice"),
    "a node that there is not": (_set("phase_rows", "node", 99), "a node that there is not"),
    "a negative count": (_set("phase_rows", "bytes", -1), "negative"),
    "bytes beyond all sums": (_set("phase_rows", "bytes", 2**63 - 1), "no storm can reach"),
    "a time of a century": (_set("phase_rows", "durable_ns", 4 * 10**18), "ten years"),
    "a phase that there is not": (_set("phases", "phase", 99), "a phase that there is not"),
    "rows outside the table": (_set("phases", "row_count", 10**6), "outside the table"),
    "a share of nothing": (_set("phases", "resident_share", float("nan")), "no number"),
    "a share of two": (_set("phases", "resident_share", 2.0), "no share"),
    "a histogram without a name": (_set("latency_keys", "kind", 200), "a name that there is not"),
    "a size for an op without": (_set("latency_keys", "size_class", 3), "a name that there is not"),
    "bins of a node that there is not": (_set("timelines", "node_count", 10), "more nodes or bins"),
    "more bins than there can be": (_set("timelines", "bin_count", 10**6), "more nodes or bins"),
    "bins outside the table": (_set("timelines", "bin_first", 10**6), "outside the table timeline"),
    "bins of no width": (_set("timelines", "bin_ns", 0), "no width"),
    "a timeline of no phase": (_set("timelines", "phase_index", 99), "belongs to no phase"),
    "a clock of no phase": (_set("clocks", "phase_index", 99), "the table clocks names a phase"),
    "a sight of no node": (_set("visibility", "node", 99), "a node that there is not saw"),
    "sights out of order": (_set("visibility", "phase_index", 2), "the table visibility names a phase"),
    "a clock of no rank": (_set("clocks", "rank", 99), "by a rank that there is not"),
    "a clock of another age": (_set("clocks", "offset_ns", -(2**62)), "ten years"),
    "names without histograms": (lambda file: file["latency_keys"].resize((1,)), "outside the table"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_storm_h5_is_refused_in_one_sentence(folder, case):
    """A file that is sound HDF5, with a checksum that fits, and lies."""
    change, words = HOSTILE[case]
    _with_h5(folder, change)
    _refused(folder, "storm.h5", words)


def test_clocks_a_year_apart_are_no_damage(folder):
    """Offsets are as large as machines are old, and nobody adds them up."""
    _with_h5(folder, _set("clocks", "offset_ns", 3 * 10**17))
    assert all((phase.clocks["offset_ns"][:1] > 0).all() for phase in files.load(folder).phases[:1])


def test_a_record_from_before_the_timeline_still_loads(folder):
    """Without its tables nothing was gathered, and everything else is there."""
    _with_h5(folder, lambda file: [file.__delitem__(name) for name in ("timelines", "timeline")])
    loaded = files.load(folder)
    assert all(phase.timeline.bins.size == 0 for phase in loaded.phases)
    assert to_json(loaded) == to_json(_record())


def test_a_record_from_before_the_newest_op_kinds_still_loads(folder):
    """A table with a column for each of 37 kinds is one in which the later kinds took no time."""
    before = np.concatenate([phase.kind_ns for phase in files.load(folder).phases])
    assert before.any()

    def narrow(file):
        kinds = file["kind_ns"][()]
        del file["kind_ns"]
        file["kind_ns"] = kinds[:, :37]

    _with_h5(folder, narrow)
    loaded = files.load(folder)
    assert np.concatenate([phase.kind_ns for phase in loaded.phases]).tolist() == before.tolist()


def test_large_parts_can_be_left_out(folder):
    """They read as if they had not been gathered; the rest is the same."""
    loaded = files.load(folder, leave_out=("kind_ns", "timeline"))
    assert all(phase.timeline.bins.size == 0 and len(phase.kind_ns) == 0 for phase in loaded.phases)
    made = _record()
    assert all(np.array_equal(a.rows, b.rows) for a, b in zip(made.phases, loaded.phases, strict=True))


def test_files_that_do_not_belong_together_are_refused(folder, tmp_path):
    """storm.json of one storm, storm.h5 of another with fewer phases."""
    files.write(synthetic.record(Make(ranks=6, nodes=3, rounds=1)), tmp_path / "y")
    (folder / "storm.h5").write_bytes((tmp_path / "y" / "storm.h5").read_bytes())
    _vouch(folder)
    _refused(folder, "it tells of 4 phases, storm.h5 of 2")


def _mutated(content, rng):
    """Cut off, bits flipped, a stretch overwritten, or a stretch removed."""
    data = bytearray(content)
    way, at = rng.randrange(4), rng.randrange(len(data))
    if way == 0:
        return bytes(data[:at])
    if way == 1:
        for _ in range(rng.randrange(1, 20)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif way == 2:
        data[at : at + 16] = rng.randbytes(16)
    else:
        del data[at : at + rng.randrange(1, 200)]
    return bytes(data)


@pytest.mark.parametrize("name", ["storm.json", "storm.h5"])
def test_250_damaged_files_end_in_one_sentence_each(folder, name):
    """Whatever happened on the way: loaded (a figure in the summary changed), or refused by name."""
    rng = random.Random(name)
    content = (folder / name).read_bytes()
    refused = 0
    for _ in range(250):
        (folder / name).write_bytes(_mutated(content, rng))
        try:
            files.load(folder)
        except PlaceError as error:
            assert "\n" not in str(error) and str(folder) in str(error)
            refused += 1
    assert refused > (125 if name == "storm.json" else 249)


def test_200_hostile_h5_files_end_in_one_sentence_each(folder):
    """The checksum fits, so the HDF5 library reads the damage: in a child, which must not crash either."""
    script = (
        "import random, sys; from pathlib import Path; from ckptstorm.errors import PlaceError\n"
        "from ckptstorm.record import files; from tests.record.test_files import _mutated, _vouch\n"
        "folder = Path(sys.argv[1]); content = (folder / 'storm.h5').read_bytes(); rng = random.Random(5)\n"
        "for _ in range(200):\n"
        "    (folder / 'storm.h5').write_bytes(_mutated(content, rng)); _vouch(folder)\n"
        "    try: files.load(folder)\n"
        "    except PlaceError as error: assert chr(10) not in str(error), error\n"
    )
    root = Path(__file__).parents[2]
    child = subprocess.run(
        [sys.executable, "-c", script, str(folder)], cwd=root, capture_output=True, text=True, timeout=120, check=False
    )
    assert (child.returncode, child.stderr) == (0, "")
