"""Whose fault a tail is: known causes are planted in rows, alone, together, and where they cannot be told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ckptstorm.measure.rows import Phase
from ckptstorm.record.attribution import attribution
from tests.record import synthetic
from tests.record.synthetic import Make, S

RANKS, NODES, ROUNDS = 16, 4, 6


def _record(seconds, targets=None, moved=None, rounds=ROUNDS):
    """A record whose save of round k takes rank r `seconds(k, r)`; `targets(k, r)` is where its file lies."""
    made = synthetic.record(Make(ranks=RANKS, nodes=NODES, rounds=rounds))
    phases = []
    for phase in made.phases:
        if phase.phase == Phase.SAVE:
            rows = phase.rows.copy()
            rows["release_ns"] = 0
            rows["durable_ns"] = [int(seconds(phase.round, rank) * S) for rank in range(RANKS)]
            if moved is not None:
                rows["bytes"] = [moved(rank) for rank in range(RANKS)]
            phase = replace(phase, rows=rows)
        phases.append(phase)
    environment = dict(made.environment)
    if targets is not None:
        by_round = {str(k): [targets(k, rank) for rank in range(RANKS)] for k in range(1, rounds + 1)}
        environment["placement_by_round"] = {"names": ["ost0", "ost1", "ost2", "ost3"], "rounds": by_round}
    return replace(made, phases=tuple(phases), environment=environment)


def _noise(k, rank):
    return 1 + 0.05 * np.sin(37.0 * k + 11.0 * rank * rank + rank)


def _target(k, rank):
    return int(np.random.default_rng(100 * k + rank).integers(0, 4))


def _slow_node(k, rank):
    return _noise(k, rank) * (3 if rank // 4 == 2 else 1)


def _slow_target(k, rank):
    return _noise(k, rank) * (4 if _target(k, rank) == 1 else 1)


def _heavy(rank):
    return (4 if rank in (0, 5, 10) else 1) << 30


@pytest.mark.parametrize(
    ("record", "kind", "name", "times"),
    [
        (_record(_slow_node, _target), "node", "gpu002", 3),
        (_record(_slow_target, _target), "target", "ost1", 4),
        (_record(lambda k, r: _noise(k, r) * _heavy(r) / (1 << 30), _target, _heavy), "role", "shards of 4.00 GiB", 4),
    ],
)
def test_one_cause_is_found_and_named(record, kind, name, times):
    """It explains nearly all, the others nearly nothing, and its factor is the planted one."""
    found = attribution(record, Phase.SAVE)
    (culprit,) = found.culprits
    assert (culprit.kind, culprit.name, culprit.same_as) == (kind, name, "")
    assert culprit.share > 0.9 and culprit.chance < 0.01
    assert culprit.times == pytest.approx(times, rel=0.1)
    assert all(cause.share < 0.1 for cause in found.causes[1:])
    assert found.chance_share < 0.1


def test_two_causes_at_once_are_both_found():
    """A slow node and a slow target, in rows that also have a heavy role without effect."""
    both = _record(lambda k, r: _slow_node(k, r) * (4 if _target(k, r) == 1 else 1), _target, _heavy)
    found = attribution(both, Phase.SAVE)
    assert {(cause.kind, cause.name) for cause in found.culprits} == {("node", "gpu002"), ("target", "ost1")}


def test_luck_is_called_luck():
    """A tail that falls on another rank each round is nobody's: there are causes to look at, and none is named."""
    random = np.random.default_rng(5)
    lucky = random.lognormal(0, 0.8, (ROUNDS + 1, RANKS))
    found = attribution(_record(lambda k, r: 1 + lucky[k, r], _target), Phase.SAVE)
    assert found.tail > 1.2 and found.culprits == ()
    assert found.chance_share > 0.5


def test_causes_that_go_together_are_named_together():
    """Every heavy shard on one node, no other rank on it: role and node cannot be told apart."""
    found = attribution(
        _record(lambda k, r: _noise(k, r) * (4 if r < 4 else 1), moved=lambda r: (4 if r < 4 else r // 4) << 30),
        Phase.SAVE,
    )
    assert {cause.kind: cause.same_as for cause in found.causes} == {"role": "node", "node": "role"}
    assert found.culprits


def test_ranks_with_nothing_to_move_are_left_out():
    """A layout in which some ranks write nothing: the others are still told apart."""
    record = _record(_slow_node, _target)
    for index, phase in enumerate(record.phases):
        rows = phase.rows.copy()
        rows["durable_ns"][[1, 6, 15]] = -1
        record = synthetic.with_phase(record, index, rows=rows)
    assert [cause.name for cause in attribution(record, Phase.SAVE).culprits] == ["gpu002"]
    assert attribution(record, Phase.CLEAN_UP) is None


def test_an_even_storm_has_no_culprit_and_damage_is_no_placement():
    """No tail: nothing is looked for. A record whose placement is nonsense is one without placement."""
    assert attribution(_record(_noise, _target), Phase.SAVE) is None
    assert attribution(synthetic.record(Make(ranks=1)), Phase.SAVE) is None
    record = _record(_slow_node, _target)
    for told in (
        {},
        {"names": 3, "rounds": {}},
        {"names": ["a"], "rounds": {"1": [99] * RANKS}},
        {"names": ["a"], "rounds": 7},
    ):
        hostile = replace(record, environment=record.environment | {"placement_by_round": told})
        assert [cause.kind for cause in attribution(hostile, Phase.SAVE).causes] == ["node"]
