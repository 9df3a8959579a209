"""The report in a terminal: 80 columns, plain when piped, and all that a reader needs is there."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ckptstorm.record.record import Failure, MismatchSeen
from ckptstorm.report.sections import sections
from ckptstorm.report.terminal import WIDTH, print_to, render
from tests.record import synthetic
from tests.record.synthetic import Make, with_column, with_job, with_phase

LONG = "a-very-long-host-name-" * 6
FAILURE = Failure("ENOSPC", "write", 3, LONG, "step-1/" + "x" * 200, 1 << 33, 5)


def _failed():
    made = with_phase(synthetic.record(), 0, failures=(FAILURE,))
    made = replace(with_column(made, 0, "error_count", [0, 0, 0, 5]), ended="storage_failed", ended_because="ENOSPC")
    return replace(made, phases=made.phases[:1])


def _mismatched():
    seen = MismatchSeen(1, "gpu000", "step-1/__1_0.distcp at offset 4096: expected byte 0x12, found 0x00")
    return with_column(with_phase(synthetic.record(), 1, mismatches=(seen,)), 1, "mismatch_count", [0, 1, 0, 0])


def _null():
    made = synthetic.record()
    return replace(made, environment=made.environment | {"engine": {"name": "null", "moves_data": False}})


def _limits():
    made = synthetic.record(Make(late={2: 4.0}))
    return with_job(made, "slo", save_seconds=5.0, save_bytes_per_s=500 * 2**20, restore_seconds_median=2.0)


STORMS = {
    "good": synthetic.record,
    "one rank, one round": lambda: synthetic.record(Make(ranks=1, rounds=1)),
    "straggler and limits": _limits,
    "1024 ranks": lambda: synthetic.record(
        Make(ranks=1024, nodes=128, rounds=8, late={700: 9.0, 3: 7.0, 5: 6.0, 9: 6.0})
    ),
    "failed": _failed,
    "wrong bytes": _mismatched,
    "null": _null,
    "client bound": lambda: synthetic.record(Make(generate_share=0.31)),
    "interrupted": lambda: replace(synthetic.record(), phases=(), ended="interrupted", ended_because="SIGINT"),
    "nothing known": lambda: replace(
        synthetic.record(), phases=(), job={}, environment={}, asked={}, nodes=(), node_of_rank=()
    ),
    "long names": lambda: replace(
        synthetic.record(), environment={"directory": "/" + "d" * 300, "mount": {"type": "x" * 90}}, storm_id="i" * 200
    ),
}


@pytest.mark.parametrize("storm", STORMS)
def test_no_line_is_longer_than_80_characters(storm):
    """Whatever the storm was like, however long its names are."""
    assert WIDTH == 80
    for line in render(STORMS[storm]()).splitlines():
        assert len(line) <= WIDTH, line
        assert line == line.rstrip()


def _flat(text):
    return " ".join(text.split())


SAYS = {
    "good": """VALID - NO LIMIT SET (exit code 0) | held 4 GPUs for 2.05 s | median of 3 rounds
        | llama3-8b as dcp (fsdp2)
        | 4 ranks on 1 node | engine posix | lustre | first rank | tail | IOPS | p99.9 | write to 1M | fsync | open
        | GPU-seconds | durable YES | cold COLD | verified ALL | docs/reading-a-result.md | round 3 | max÷med | compare
        | T = the last rank's durable minus the first rank's release""",
    "straggler and limits": """VALID - LIMIT MISSED (exit code 1)
        | save_seconds: at most 5.00 s was asked, 6.04 s was found
        | rank 2 on gpu000 in round 3 (late in 3 of 3 rounds): 6.04 s, 3.0 times the median
        | 4.00 s more than a median rank in fsync | MISSED | met | +35.6 % | slowest (rank 2)""",
    "1024 ranks": """1,024 GPUs | 1,024 ranks on 128 nodes | rank 700 on gpu087 | and 1 more rank (storm.json)
        | round 8""",
    "failed": """INVALID - NO LIMIT SET (exit code 3: the storage failed after the first byte) | ENOSPC | 5 times
        | rank 3 | offset 8,589,934,592 | FAILED | the storage's own log""",
    "wrong bytes": "exit code 3 | 1 read differed | expected byte 0x12 | round 1 FAILED",
    "null": "INSTRUMENT ONLY: no storage was measured (exit code 0) | posix",
    "client bound": "INVALID | lower bound for the storage | 31 % of the save making bytes | CLIENT BOUND",
    "interrupted": "INVALID | exit code 130: interrupted by a signal | SIGINT | run the storm again",
}


@pytest.mark.parametrize("storm", SAYS)
def test_a_report_says_what_must_be_known(storm):
    """Verdict first, then the answer, the question, who was late and why, evidence, and the next step."""
    text = _flat(render(STORMS[storm]()))
    for words in SAYS[storm].split("|"):
        assert words.strip() in text, words


def test_the_verdict_comes_first():
    """On the second line, under the storm's name."""
    lines = render(STORMS["straggler and limits"]()).splitlines()
    assert lines[1].startswith("VALID - LIMIT MISSED")
    assert lines[2].startswith("because")


def test_a_piped_report_is_plain_and_the_same_text():
    """No escape codes when the output is no terminal."""
    made = synthetic.record()
    out = io.StringIO()
    print_to(Console(file=out, force_terminal=False), sections(made))
    assert out.getvalue() == render(made)
    assert "\x1b" not in out.getvalue()


def test_colour_never_carries_the_meaning(monkeypatch):
    """In a terminal the same words are coloured; with NO_COLOR they are not."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = io.StringIO()
    print_to(Console(file=out, force_terminal=True, color_system="standard", width=80), sections(synthetic.record()))
    assert "\x1b[1;32mVALID" in out.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    print_to(Console(file=out, force_terminal=True, width=80), sections(synthetic.record()))
    assert "32m" not in out.getvalue()


def test_names_cannot_send_control_characters():
    """A host called "ESC ]0;title BEL" is shown with question marks; markup of rich is shown as it is."""
    made = with_phase(synthetic.record(), 0, failures=(replace(FAILURE, host="\x1b]0;x\x07", file="[red]a\nb"),))
    out = io.StringIO()
    print_to(Console(file=out, force_terminal=False), sections(made))
    assert "\x1b" not in out.getvalue() and "\x07" not in out.getvalue()
    assert "[red]a?b" in out.getvalue()


def test_a_number_stays_on_the_line_of_its_unit():
    """No line begins with a unit."""
    for make in STORMS.values():
        for line in render(make()).splitlines():
            assert line.split()[:1] not in (["%"], ["s"], ["ms"], ["us"], ["GiB"], ["MiB/s"], ["GiB/s"])


def test_planted_faults_are_told():
    """Without that, the straggler would be blamed on the storage."""
    made = synthetic.record(Make(late={2: 4.0}))
    made = replace(made, job=made.job | {"fault": [{"ranks": [2], "op": "fsync", "delay": 4 * 10**9}]})
    assert "Faults planted by the job" in render(made)
    assert "op = fsync" in render(made)


def test_a_report_needs_neither_mpi_nor_engines_nor_a_storm():
    """A result folder is read on a laptop: importing the report loads none of them."""
    script = (
        "import sys; import ckptstorm.report.terminal, ckptstorm.record.files\n"
        "bad = [m for m in sys.modules if m.split('.')[0] == 'mpi4py' or m.startswith(\n"
        "    ('ckptstorm.storm', 'ckptstorm.cluster', 'ckptstorm.engines', 'h5py', 'pandas'))]\n"
        "print(bad)\n"
    )
    root = Path(__file__).parents[2]
    child = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"
