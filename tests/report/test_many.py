"""Many storms in one table: in their order, the gravest exit code, and what cannot be read told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptstorm.errors import EXIT_LOST_RANK, EXIT_MET, EXIT_NOT_MET, EXIT_REFUSED, PlaceError
from ckptstorm.record import files
from ckptstorm.report import many, terminal
from tests.record import synthetic
from tests.record.synthetic import Make, with_job


def _write(place, name, started, record=None):
    made = record or synthetic.record()
    made = replace(made, storm_id=name, environment=made.environment | {"started": started})
    files.write(made, place / name)
    return str(place / name)


def _text(found):
    return terminal.render_sections(many.sections(found))


def test_storms_stand_in_the_order_of_their_start(tmp_path):
    """Whatever they are called; with times, bandwidth and verdict; the random end of a name is left out."""
    late = _write(tmp_path, "20261102-120000-aaaaaa", "2026-11-02")
    early = _write(tmp_path, "20261101-120000-bbbbbb", "2026-11-01", synthetic.record(Make(save_s=9.0)))
    found = many.read([late, early])
    lines = [line for line in _text(found).splitlines() if line.startswith("2026")]
    assert lines[0].split() == ["20261101-120000", "4", "9.20", "s", "9.29", "s", "445", "MiB/s", "1.02", "s", "valid"]
    assert lines[1].startswith("20261102-120000 ")
    assert found.exit_code == EXIT_MET


def test_a_folder_of_storms_and_a_pattern_are_many(tmp_path):
    """Both mean the same storms, and each is read once."""
    for number in range(3):
        _write(tmp_path, f"s{number}", f"2026-11-0{number + 1}")
    assert len(many.read([str(tmp_path), str(tmp_path / "s*"), str(tmp_path / "s1")]).rows) == 3


def test_the_gravest_exit_code_counts(tmp_path):
    """A lost rank before an invalid record, whatever the order."""
    good = _write(tmp_path, "good", "1")
    invalid = _write(tmp_path, "invalid", "2", synthetic.record(Make(generate_share=0.5)))
    lost = _write(tmp_path, "lost", "3", synthetic.record(ended="lost_rank", ended_because="rank 3 hung"))
    assert many.read([good, invalid]).exit_code == EXIT_NOT_MET
    found = many.read([lost, good, invalid])
    assert found.exit_code == EXIT_LOST_RANK
    assert "LOST RANK" in _text(found) and "INVALID" in _text(found)


def test_what_cannot_be_read_is_told_and_the_rest_shown(tmp_path):
    """A damaged folder is named; none at all is refused."""
    good = _write(tmp_path, "good", "1")
    bad = _write(tmp_path, "bad", "2")
    (tmp_path / "bad" / "storm.h5").write_bytes(b"nothing")
    found = many.read([good, bad, str(tmp_path / "none")])
    assert len(found.rows) == 1 and len(found.unread) == 2
    assert found.exit_code == EXIT_REFUSED
    assert "its checksum is not the one" in " ".join(_text(found).split())
    with pytest.raises(PlaceError, match="none of these is a result folder"):
        many.read([bad])


def test_other_questions_are_told(tmp_path):
    """A table of storms that asked different things says which."""
    one = _write(tmp_path, "one", "1")
    other = _write(tmp_path, "other", "2", with_job(synthetic.record(), "layout", name="deepspeed"))
    assert "layout.name dcp (1), deepspeed (1)" in " ".join(_text(many.read([one, other])).split())


def test_no_line_is_longer_than_80_characters(tmp_path):
    """Of long names, huge worlds, unfinished storms."""
    made = [
        _write(tmp_path, "n" * 90, "1"),
        _write(tmp_path, "x", "2", synthetic.record(Make(ranks=5000, nodes=600, save_s=9000.0, rounds=1))),
        _write(tmp_path, "y", "3", synthetic.record(phases=(), ended="storage_failed", ended_because="EIO")),
    ]
    text = _text(many.read([*made, "/" + "z" * 300]))
    for line in text.splitlines():
        assert len(line) <= terminal.WIDTH, line
    assert "STORAGE FAILED" in text
