"""The schedule of loads beside a save: the declared rate, dealt evenly, and what cannot keep one refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from ckptstorm.errors import JobError
from ckptstorm.jobfile import decode
from ckptstorm.loads import load_of
from ckptstorm.loads.schedule import actions_per_s, beats, endless
from ckptstorm.model.parallel import World

S = 1_000_000_000


def _table(keys, kind="metadata"):
    return decode(f'[model]\nname = "gpt2-124m"\n[[load]]\nkind = "{kind}"\nwhen = "beside"\n{keys}\n', "test").load[0]


@pytest.mark.parametrize(
    ("keys", "kind", "per_s"),
    [
        ('rate = "1000/s"\nmix = { stat = 1 }', "metadata", 250.0),
        ('rate = "1000/s"\nrate_per = "rank"\nmix = { stat = 1 }', "metadata", 1000.0),
        ('rate = "1000/s"\nranks = [1]\nmix = { stat = 1 }', "metadata", 1000.0),
        ('rate = "1000/s"\nranks = [1]\nthreads = 5\nmix = { stat = 1 }', "metadata", 200.0),
        ('rate = "100MiB/s"\nblock = "1MiB"\nspan = "16MiB"', "random", 25.0),
    ],
)
def test_a_rate_is_dealt_to_threads(keys, kind, per_s):
    """Of the cluster or of each rank, in actions or in bytes."""
    assert actions_per_s(_table(keys, kind), World(4, 4)) == pytest.approx(per_s)


def test_beats_of_all_threads_interleave_and_laps_join():
    """4 ranks with 2 threads at 1,000/s together: an action each millisecond, and the next lap keeps the beat."""
    table, world = _table('rate = "1000/s"\nthreads = 2\nitems = 40\nmix = { stat = 3, "open+read" = 1 }'), World(4, 4)
    begun = []
    for rank in range(4):
        stage = load_of(table, world).stage(rank, 0)
        for beat in beats(table, world, rank, stage):
            ring = slice(beat.thread.first, beat.thread.stop)
            due = beat.thread.program.due_ns
            assert len(due) == len(beat.thread.program.ops)
            firsts = due[ring][beat.begins]
            assert np.diff(firsts) == pytest.approx(np.full(len(firsts) - 1, 8 * S / 1000), abs=1)
            assert beat.lap_ns == pytest.approx(len(firsts) * 8 * S / 1000, abs=1)
            follows = np.maximum.accumulate(np.where(beat.begins, due[ring], 0))
            assert (due[ring] == follows).all()
            begun += firsts[:20].tolist()
    assert np.diff(sorted(begun)) == pytest.approx(np.full(len(begun) - 1, S / 1000), abs=2)


def test_an_endless_load_has_one_stage_without_an_amount():
    """It goes on until it is told to stop, whatever its table says of amounts."""
    table = _table('rate = "10/s"\nblock = "4KiB"\nspan = "1MiB"\naccess = "write"', "random")
    load = load_of(table, World(2, 2))
    assert load.stage_count() == 1
    assert load.stage(0, 0).planned_bytes == 0
    assert endless(table).duration > 3600 * S


@pytest.mark.parametrize(
    ("keys", "kind", "says"),
    [
        ("mix = { stat = 1 }", "metadata", "needs a steady rate"),
        ('rate = "10MiB/s"\nmix = { stat = 1 }', "metadata", "counts actions, not bytes"),
        ('rate = "10/s"\nphases = ["create"]', "metadata", "it has no phases"),
        ('rate = "10/s"\nduration = "5s"\nmix = { stat = 1 }', "metadata", "for as long as the save"),
        ('rate = "10/s"\namount = "1MiB"', "random", "for as long as the save"),
        ('rate = "10/s"\naccess = "write"\nverify = true', "random", "no second reading"),
        ('rate = "1/s"\nthreads = 100\nmix = { stat = 1 }', "metadata", "less than one action in ten seconds"),
    ],
)
def test_what_cannot_go_on_beside_a_save_is_refused(keys, kind, says):
    """By name of load and key, and with what to do."""
    with pytest.raises(JobError, match=r"\[\[load\]\]") as raised:
        load_of(_table(keys, kind), World(2, 2))
    assert says in "\n".join(raised.value.lines())
