"""Sweeps: which storms they are, what is refused, and which of them have their result already."""

from __future__ import annotations

import json

import pytest

from ckptstorm.batch.submit import left_of
from ckptstorm.batch.sweep import is_finished, points
from ckptstorm.errors import JobError


def test_all_combinations_with_the_last_key_fastest():
    """Ranks set nodes; other keys are overrides; the label says both."""
    swept = points(("ranks=8,16", "layout.name=dcp,file_per_rank"), None, 8)
    assert [(p.rank_count, p.node_count, p.overrides) for p in swept] == [
        (8, 1, ("layout.name=dcp",)),
        (8, 1, ("layout.name=file_per_rank",)),
        (16, 2, ("layout.name=dcp",)),
        (16, 2, ("layout.name=file_per_rank",)),
    ]
    assert swept[0].label == "ranks=8+layout.name=dcp"


def test_keys_may_change_together_and_values_may_hold_commas():
    """A layout and the sharding that belongs to it; a list in brackets is one value."""
    (first, second) = points(("layout.name+parallel.sharding=dcp+fsdp2,deepspeed+zero3",), 4, 8)
    assert first.overrides == ("layout.name=dcp", "parallel.sharding=fsdp2")
    assert second.overrides == ("layout.name=deepspeed", "parallel.sharding=zero3")
    lists = points(('storm.allow=["tmpfs", "warm"],[]',), 4, 8)
    assert [point.overrides for point in lists] == [('storm.allow=["tmpfs", "warm"]',), ("storm.allow=[]",)]


def test_labels_are_plain_and_differ():
    """Nothing in a value can leave its folder, and two values never share one."""
    swept = points(("model.name=../../etc,..%..%etc",), 4, 8)
    assert all("/" not in point.label for point in swept)
    assert len({point.label for point in swept}) == 2


@pytest.mark.parametrize(
    ("sweeps", "ranks", "sentence"),
    [
        (("ranks",), None, "not a sweep"),
        (("ranks=8,,16",), None, "not a sweep"),
        (("ranks=8,x",), None, "x is no number of ranks"),
        (("ranks=0",), None, "0 is no number of ranks"),
        (("ranks=8,08",), None, "a value stands there twice"),
        (("layout=dcp",), 4, "not a sweep"),
        (("layout.name+parallel.sharding=dcp",), 4, "not a sweep"),
        (("ranks=8", "ranks=16"), None, "names ranks twice"),
        (("layout.name=dcp",), None, "how many ranks?"),
        ((), None, "how many ranks?"),
        (("ranks=8",), 4, "say two things"),
        (("ranks=" + ",".join(map(str, range(1, 1003))),), None, "more than 1000 storms"),
    ],
)
def test_what_is_no_sweep(sweeps, ranks, sentence):
    """One sentence, and how to write it."""
    with pytest.raises(JobError, match=sentence.replace("?", r"\?")):
        points(sweeps, ranks, 8)


def test_what_has_its_result_is_not_run_again(tmp_path):
    """Interrupted, lost and damaged ones are; the others are grouped by nodes, smallest first."""
    swept = points(("ranks=8,16,4,9",), None, 8)
    for label, ended in (("ranks=8", "complete"), ("ranks=16", "interrupted")):
        (tmp_path / label / "id").mkdir(parents=True)
        (tmp_path / label / "id/storm.json").write_text(json.dumps({"ended": ended}))
    (tmp_path / "ranks=4/id").mkdir(parents=True)
    (tmp_path / "ranks=4/id/storm.json").write_text('{"ended": "compl')
    assert is_finished(tmp_path, "ranks=8")
    assert not is_finished(tmp_path, "ranks=16")
    assert left_of(swept, tmp_path) == [(1, [2]), (2, [1, 3])]
