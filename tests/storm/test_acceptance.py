"""The acceptance job, small: every limit is judged by itself, met or not, with its margin and the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.mpi

JOB = (Path(__file__).parents[2] / "jobs" / "acceptance.toml").read_text()
SMALL = {
    '"until 10%, at most 20"': '1\nstorm.around = "300ms"\nstorm.allow = ["tmpfs", "warm"]',
    'model.name = "llama3-8b"': 'model = { name = "gpt2-124m", layers = 1, vocab = 1000 }',
    '"60s"': '"1s"',
    '"8GiB"': '"64MiB"',
    "direct = true": "warm = true",
}
WIDE = {"10_000": "1", "1_000": "1", '"100ms"': '"100s"'}


def _small(*changes):
    text = JOB
    for change in (SMALL, *changes):
        for before, after in change.items():
            assert before in text
            text = text.replace(before, after)
    return text


def test_every_limit_is_judged_by_itself(storm):
    """With wide limits all are met; with one that no system meets the record stays valid and the exit code is 1."""
    ended = storm(job=_small(WIDE, {"random_iops = 1": "random_iops = 1_000_000_000"}))
    assert ended.code == 1, ended.said
    limits = {limit["key"]: limit for limit in ended.data["limits"]}
    assert list(limits) == [line.partition(" ")[0] for line in JOB.partition("[slo]\n")[2].splitlines()]
    assert [key for key, limit in limits.items() if not limit["met"]] == ["random_iops"]
    assert all(limit["found"] > 0 for limit in limits.values())
    assert limits["random_iops"]["margin"] == pytest.approx(limits["random_iops"]["found"] / 1e9 - 1)
    alone = [entry for entry in ended.data["phases"] if entry["name"] == "small-files"]
    assert limits["small-files_ops_per_s_per_node"]["found"] == pytest.approx(
        sum(one["per_s"] for entry in alone for one in entry.get("per_action", []) if one["action"] != "reset"),
        rel=0.01,
    )
