"""The journal of a storm under way: what was finished can be read, whatever came after."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.record import files, journal, last_words, stormjson
from tests.record.synthetic import record as storm


def _journalled(folder, record):
    kept = journal.Journal(folder)
    kept.begin(record)
    for phase in record.phases:
        kept.add(record, phase)
    return folder


def test_a_journal_reads_as_the_record(tmp_path):
    """Phase by phase, in order, and the numbers are those of the whole record."""
    known = storm()
    loaded = files.load(_journalled(tmp_path / "x.partial", known))
    assert [(phase.phase, phase.round) for phase in loaded.phases] == [(p.phase, p.round) for p in known.phases]
    assert stormjson.to_json(loaded)["phases"] == stormjson.to_json(known)["phases"]


def test_the_circumstances_are_the_latest(tmp_path):
    """What was learned on the way (O_DIRECT's evidence) is not that of the beginning."""
    known, kept = storm(), journal.Journal(tmp_path / "x.partial")
    kept.begin(known)
    kept.add(replace(known, environment=known.environment | {"later": 1}), known.phases[0])
    assert files.load(tmp_path / "x.partial").environment["later"] == 1


def test_last_words_are_said_once(tmp_path):
    """Who speaks first knows most; they are why the storm ended."""
    folder = _journalled(tmp_path / "x.partial", storm())
    assert last_words.say(folder, "rank 3 on h died")
    assert not last_words.say(folder, "mpiexec ended with 9")
    assert files.load(folder).ended_because == "rank 3 on h died"
    assert sorted(name for name in os.listdir(folder) if name.startswith(".")) == []


def test_a_foreboding_counts_until_it_is_withdrawn_or_somebody_knows_more(tmp_path):
    """Written over as often as it changes; last words go before it."""
    folder = _journalled(tmp_path / "x.partial", storm())
    before = files.load(folder).ended_because
    assert last_words.forebode(folder, "rank 2 is silent") and last_words.forebode(folder, "rank 3 is silent")
    assert files.load(folder).ended_because == "rank 3 is silent"
    last_words.withdraw(folder)
    assert files.load(folder).ended_because == before
    last_words.forebode(folder, "rank 3 is silent")
    last_words.say(folder, "rank 3 on h died")
    assert files.load(folder).ended_because == "rank 3 on h died"
    assert sorted(name for name in os.listdir(folder) if name.startswith(".")) == []
    journal.remove(folder)
    assert not folder.exists()
    assert not last_words.forebode(folder, "there is no journal")


def test_a_journal_is_removed_by_name(tmp_path):
    """All of ours goes; a stranger's file, and the folder around it, stay."""
    folder = _journalled(tmp_path / "x.partial", storm())
    last_words.say(folder, "x")
    journal.remove(folder)
    assert not folder.exists()
    folder = _journalled(folder, storm())
    (folder / "mine.txt").write_text("x")
    journal.remove(folder)
    assert os.listdir(folder) == ["mine.txt"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"because": 3}', b"[" * 100_000])
def test_damaged_last_words_are_a_sentence(tmp_path, content):
    """They are data from strangers like all else."""
    folder = _journalled(tmp_path / "x.partial", storm())
    (folder / last_words.NAME).write_bytes(content)
    with pytest.raises(PlaceError, match="damaged"):
        files.load(folder)


def test_phases_of_another_storm_are_refused(tmp_path):
    """A folder copied into a journal does not become part of it."""
    folder = _journalled(tmp_path / "x.partial", storm())
    files.write(replace(storm(), storm_id="other"), folder / files.phase_name(99))
    with pytest.raises(PlaceError, match="another storm"):
        files.load(folder)
