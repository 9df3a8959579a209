"""A resolved job as TOML text: what is read from it is what was written."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ckptstorm.job import to_builtins
from ckptstorm.jobfile import decode, shipped_jobs
from ckptstorm.record.tomltext import tables


@pytest.mark.parametrize("path", shipped_jobs(), ids=lambda path: path.stem)
def test_a_shipped_job_comes_back(path: Path):
    """Resolved, written, and decoded again: the same job."""
    job = decode(path.read_text(), path.name)
    assert decode(tables(to_builtins(job)), "again") == job


def test_strings_keys_and_nested_values_come_back():
    """Quotes, control characters, odd keys, lists of tables, tables in lists."""
    job = {
        "a b": {"k.1": 'say "x"\n\t\\ \x7f ü', "n": 1, "f": 0.5, "yes": True, "list": [1, "2"], "in": {"deep": [1]}},
        "fault": [{"ranks": [0, 1], "delay": "1s"}, {"ranks": []}],
    }
    assert tomllib.loads(tables(job)) == job
