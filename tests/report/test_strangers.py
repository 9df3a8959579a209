"""A stranger's storm.json, sound JSON with values that no storm writes: refused by name or shown, no traceback."""

from __future__ import annotations

import copy
import json
import random

import pytest

import ckptstorm as package
from ckptstorm.errors import PlaceError
from ckptstorm.record import files
from ckptstorm.report.frame_columns import COLUMNS
from ckptstorm.report.html import storm
from ckptstorm.report.terminal import render
from tests.record import synthetic
from tests.record.synthetic import Make
from tests.record.synthetic_loads import with_loads
from tests.report.html.test_page import with_placement

#: What a hostile hand puts in place of anything.
ODD = (None, True, -1, 0, 1e308, "", "x" * 300, [], {}, [1], {"a": 1}, "\x1b[31m<b>", 2**70, [[]], "nan")
#: What of storm.json is read back.
READ = ("job", "environment", "asked", "nodes", "phases", "ended", "ended_because", "simulated", "storm_id")


def _paths(value, path=()):
    """Where a value stands, the first few of each list."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:6]) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _paths(each, (*path, key))


def _changed(told, places, chance):
    changed = copy.deepcopy(told)
    for path in chance.choices(places, k=chance.choice((1, 1, 2, 4))):
        at = changed
        try:
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = chance.choice(ODD)
        except (KeyError, IndexError, TypeError):  # an earlier change took it away
            continue
    return changed


def test_values_of_other_types_never_end_in_a_traceback(tmp_path):
    """80 records: every frame, the terminal's report and the page's charts either show one or refuse it by name."""
    pytest.importorskip("pandas")
    folder, chance, shown = tmp_path / "x", random.Random(3), 0
    files.write(with_placement(with_loads(synthetic.record(Make(ranks=3, nodes=2, rounds=1)))), folder)
    told = json.loads((folder / "storm.json").read_text())
    places = list(_paths({name: told[name] for name in READ}))
    for _ in range(80):
        (folder / "storm.json").write_text(json.dumps(_changed(told, places, chance)))
        try:
            record = files.load(folder)
            render(record)
            storm.page(record)
            results = package.load(folder)
            for name in COLUMNS:
                getattr(results, name)
            shown += 1
        except PlaceError as error:
            assert "\n" not in str(error) and "storm.json" in str(error)
    assert 5 < shown < 80
