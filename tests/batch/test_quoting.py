"""Hostile values in scripts: bash, sbatch and Flux read back exactly what was put in, and nothing is run."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.batch import quoting
from ckptstorm.errors import JobError

HOSTILE = (
    "; rm -rf /", "$(touch pwned)", "`touch pwned`", "it's", 'say "hi"', "back\\slash", "two\nlines", "tab\there",
    "#SBATCH --uid=0", "a\n#SBATCH --uid=0", "${HOME}", "!history", "~root", "*", "-rf", "", "ünïcode", "x y", "&",
    "%j", "'\"'\"'", "\\'", "\x1b[31m", "\u2028",
)  # fmt: skip


def read_by_bash(*words: str) -> list[str]:
    """The words as bash understands them, in a script whose every other line would betray an escape."""
    script = f"args=({' '.join(words)})\nprintf '%s\\0' \"${{args[@]}}\"\n"
    ended = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, check=True)
    return ended.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


def test_bash_reads_back_every_hostile_value():
    """Each stays one word, as it was; no line of the script begins with what was inside a value."""
    quoted = [quoting.shell(value) for value in HOSTILE]
    assert read_by_bash(*quoted) == list(HOSTILE)
    assert all("\n" not in word for word in quoted)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))), min_size=1, max_size=20))
def test_bash_reads_back_any_text(values):
    """Any Unicode text but NUL."""
    assert read_by_bash(*(quoting.shell(value) for value in values)) == values


def test_flux_reads_back_what_shlex_reads():
    """Flux splits directive lines as shlex does."""
    values = [value for value in HOSTILE if value.isprintable()]
    assert [shlex.split(quoting.flux_directive(value))[0] for value in values] == values


@pytest.mark.parametrize("quote", [quoting.slurm_directive, quoting.flux_directive, quoting.pbs_directive])
@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x00b", "a\u2028b"])
def test_no_directive_takes_a_second_line(quote, value):
    """What follows a line end would be a directive of its own: refused, not mangled."""
    with pytest.raises(JobError, match="control character"):
        quote(value)


def test_pbs_takes_only_what_needs_no_quotes():
    """qsub's quoting is not one thing: refused by value."""
    assert quoting.pbs_directive("proj-123") == "proj-123"
    with pytest.raises(JobError, match="cannot stand in a #PBS line"):
        quoting.pbs_directive("a b")
    with pytest.raises(JobError, match="NUL"):
        quoting.shell("a\0b")


def test_sbatch_reads_back_every_hostile_value(cluster, place):
    """The real sbatch, asked for a job of that name; the real scontrol tells which name it took."""
    for value in [one for one in HOSTILE if one.isprintable() and one]:
        script = f"#!/bin/bash\n#SBATCH --comment={quoting.slurm_directive(value)}\n#SBATCH --hold -o /dev/null\ntrue\n"
        (place / "script.sh").write_text(script)
        job = cluster.command("sbatch", "--parsable", "script.sh")
        told = cluster.command("scontrol", "show", "job", job)
        found = next(line for line in told.splitlines() if line.strip().startswith("Comment="))
        assert found.strip().removeprefix("Comment=") == value.rstrip(), value
        cluster.command("scancel", job)
    assert not (place / "pwned").exists()
