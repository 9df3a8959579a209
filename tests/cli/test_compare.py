"""Real storms set against each other, and sized: the null engine with planted delays that dominate its time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PATIENCE_S, Ended, clean_environment

pytestmark = pytest.mark.mpi

#: Delays far above what a busy machine adds to a sleep; five rounds are the fewest that can tell anything.
JOB = """
[storm]
rounds = 5
[model]
name = "gpt2-124m"
layers = 1
vocab = 1000
[io]
engine = "null"
[[fault]]
ranks = [1]
phase = "save"
op = "fsync"
delay = "{save}ms"
[[fault]]
ranks = [1]
phase = "restore"
op = "read"
delay = "400ms"
"""


def _ckptstorm(place: Path, *arguments: str) -> Ended:
    command = [sys.executable, "-P", "-m", "ckptstorm", *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=clean_environment(), cwd=place, check=False
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def storms(tmp_path_factory) -> Path:
    """A storm, the same again, and one whose save is planted a tenth longer."""
    place = tmp_path_factory.mktemp("compare")
    for name, save_ms in (("before", 800), ("again", 800), ("slower", 880)):
        (place / f"{name}.toml").write_text(JOB.format(save=save_ms))
        ended = _ckptstorm(place, "run", f"{name}.toml", "--ranks", "2", "--results", name, "--dir", f"data-{name}")
        assert ended.code == 0, ended.said
        (folder,) = (place / name).iterdir()
        folder.rename(place / f"storm-{name}")
    return place


def test_a_planted_regression_is_called_worse(storms):
    """And fails the gate; what differs (the planted delay) is on the page."""
    ended = _ckptstorm(storms, "compare", "storm-before", "storm-slower", "--fail-above", "5%")
    assert ended.code == 1, ended.said
    assert ended.out.startswith("WORSE\n")
    text = " ".join(ended.out.split())
    assert "worse: save T" in text
    assert "differs fault[1].delay: 800ms before, 880ms after" in text
    assert "gate FAILED (--fail-above 5 %): worse in save" in text


def test_a_repetition_is_not(storms):
    """The same or cannot tell, and the gate lets it pass; the change in the JSON is small."""
    ended = _ckptstorm(storms, "compare", "storm-before", "storm-again", "--fail-above", "5%", "--json")
    assert ended.code == 0, ended.said
    assert ended.data["word"] in ("same", "cannot tell")
    save = next(each for each in ended.data["changes"] if each["is_headline"] and each["phase"] == "save")
    assert abs(save["worse_by"]) < 0.05


def test_a_baseline_takes_many(storms):
    """In the order of their start; three are too few for a drift."""
    ended = _ckptstorm(storms, "compare", "storm-slower", "storm-again", "--baseline", "storm-before")
    assert ended.code == 0, ended.said
    text = " ".join(ended.out.split())
    assert text.startswith("WORSE: 2 storms and a baseline")
    assert "3 storms are too few" in text


def test_a_page_is_written(storms):
    """Beside the words on the terminal; another file of that name is left alone."""
    ended = _ckptstorm(storms, "compare", "storm-before", "storm-slower", "--html", "page.html")
    assert ended.code == 0, ended.said
    assert ended.out.startswith("WORSE\n")
    assert "Changes and their intervals" in (storms / "page.html").read_text()
    (storms / "mine.html").write_text("mine")
    ended = _ckptstorm(storms, "compare", "storm-before", "storm-slower", "--html", "mine.html")
    assert ended.code == 2
    assert (storms / "mine.html").read_text() == "mine"


def test_what_is_no_comparison_is_refused(storms):
    """One storm, three without a baseline, no folder, another job: exit code 2 and what to do."""
    assert "one storm was named" in _ckptstorm(storms, "compare", "storm-before").err
    ended = _ckptstorm(storms, "compare", "storm-before", "storm-again", "storm-slower")
    assert ended.code == 2
    assert "--baseline DIR" in ended.err
    assert _ckptstorm(storms, "compare", "storm-before", "nowhere").code == 2
    bad = _ckptstorm(storms, "compare", "storm-before", "storm-again", "--fail-above", "5")
    assert bad.code == 2
    assert 'expected a percentage such as "5%"' in bad.err


def test_a_storm_is_sized(storms):
    """From its own rounds: the save of 0.8 s on 16,384 GPUs, as a page and as JSON."""
    ended = _ckptstorm(storms, "size", "storm-before", "--gpus", "16384", "--mttf", "50676", "--restart", "5min")
    assert ended.code == 0, ended.said
    assert "once in 3 h 5 min: 16,384 GPUs" in ended.out
    data = _ckptstorm(storms, "size", "storm-before", "--gpus", "16384", "--json").data
    assert len(data["costs"]["save_s"]) == 5
    assert min(data["costs"]["save_s"]) >= 0.8
    bad = _ckptstorm(storms, "size", "storm-before", "--overhead", "150%")
    assert bad.code == 2
    assert "below 100 %" in bad.err
