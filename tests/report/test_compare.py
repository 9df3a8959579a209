"""Two storms: unlike ones are refused by name, planted changes are found, and nothing is claimed of too few rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.measure.rows import Phase
from ckptstorm.record.record import StormRecord
from ckptstorm.report import compared, resampling, terminal
from ckptstorm.report.compare import FALSE_ALARM, Comparison, _bar, _word, compare
from ckptstorm.report.drift import series
from ckptstorm.report.likeness import differences
from tests.record import synthetic
from tests.record.synthetic import Make, with_job


def _storm(save_s: float = 2.0, rounds: int = 6, name: str = "x", noise: int = 0, **make) -> StormRecord:
    """A storm whose rounds scatter by 1 %, in an order that `noise` chooses."""
    made = synthetic.record(Make(rounds=rounds, save_s=save_s, **make), storm_id=name)
    made = with_job(made, "storm", rounds=rounds)
    random = np.random.default_rng(noise)
    phases = []
    for phase in made.phases:
        rows, factor = phase.rows.copy(), random.normal(1.0, 0.01)
        for column in ("durable_ns", "committed_ns", "done_ns"):
            rows[column] = (rows[column] * factor).astype(np.int64)
        phases.append(replace(phase, rows=rows, barrier_to_barrier_ns=int(rows["done_ns"].max()) + 3 * synthetic.MS))
    return replace(made, phases=tuple(phases))


def _words(found: Comparison) -> dict[str, str]:
    return {f"{each.phase} {each.name}": each.word for each in found.changes}


def test_a_regression_is_called_worse():
    """A tenth more in the save: that, and not the restore, is worse; the rates of the save as well."""
    found = compare(_storm(2.0, noise=1), _storm(2.2, noise=2))
    assert found.word == "worse"
    words = _words(found)
    assert words["save seconds"] == words["save bytes_per_s"] == words["save iops"] == "worse"
    assert words["restore seconds"] in ("same", "cannot tell")
    assert found.worst(0.05) and not found.worst(0.2)
    assert compare(_storm(2.2, noise=2), _storm(2.0, noise=1)).word == "better"


@pytest.mark.parametrize("noise", range(5))
def test_a_repetition_is_no_change(noise):
    """The same storm again is the same, or cannot be told."""
    found = compare(_storm(noise=10 + noise), _storm(noise=20 + noise))
    assert found.word in ("same", "cannot tell")
    assert not found.worst(0.0)


@pytest.mark.parametrize("rounds", [(1, 1), (3, 3), (1, 9), (4, 4)])
def test_too_few_rounds_claim_nothing(rounds):
    """However large the change: chance alone could part so few rounds, and the sentence says so."""
    found = compare(_storm(2.0, rounds[0]), _storm(8.0, rounds[1]))
    headline = found.headline[0]
    assert headline.word == found.word == "cannot tell"
    assert headline.interval is None
    assert headline.because == f"{rounds[0]} and {rounds[1]} rounds are too few: chance alone could part them"
    text = terminal.render_sections(compared.sections(found, 0.05))
    assert "nothing can be told of the save" in " ".join(text.split())


def test_rounds_that_scatter_widely_cannot_be_told():
    """A median that moved by a tenth among rounds that scatter by half."""
    made = _storm()
    rows = [phase.rows.copy() for phase in made.phases]
    for index, each in enumerate(rows):
        each["durable_ns"] = (each["durable_ns"] * (0.6 + 0.3 * (index // 2 % 4))).astype(np.int64)
        each["committed_ns"] = each["durable_ns"]
    scattered = replace(
        made, phases=tuple(replace(p, rows=r, barrier_to_barrier_ns=0) for p, r in zip(made.phases, rows, strict=True))
    )
    found = compare(made, scattered)
    assert found.word == "cannot tell"
    assert found.headline[0].because == "the rounds of the two overlap too much"


def _called(rounds: int, scatter: float, factor: float, pairs: int) -> Counter[str]:
    """What pairs of storms with such rounds are called."""
    random, words = np.random.default_rng(1), []
    for _ in range(pairs):
        sides = (random.lognormal(0, scatter, rounds), factor * random.lognormal(0, scatter, rounds))
        interval = resampling.change_interval(*sides, 1 - FALSE_ALARM / 2)
        words.append(_word((interval.low, interval.high), resampling.chance(*sides), _bar(0.05, "headline")))
    return Counter(words)


def test_false_alarms_are_rare_and_regressions_found():
    """Simulated pairs of six rounds: as often as the documentation says, with room for luck."""
    repeated = _called(6, 0.03, 1.0, 150)
    assert repeated["worse"] + repeated["better"] <= 6
    assert _called(6, 0.03, 1.1, 50)["worse"] >= 42
    noisy = _called(6, 0.2, 1.0, 150)
    assert noisy["worse"] + noisy["better"] <= 6


UNLIKE = {
    "layout.name: dcp before, deepspeed after": lambda: with_job(_storm(), "layout", name="deepspeed"),
    "model.name: llama3-8b before, llama3-70b after": lambda: with_job(_storm(), "model", name="llama3-70b"),
    "world: 4 ranks on 1 nodes": lambda: _storm(nodes=2),
    "bytes of a save: 4,294,967,296 before, 8,589,934,592 after": lambda: _storm(bytes_per_rank=1 << 31),
    "io.engine in effect: posix before, native after": lambda: replace(
        _storm(), asked={"io.engine": ("auto", "native"), "restore.from": ("auto", "own")}
    ),
}


@pytest.mark.parametrize("sentence", UNLIKE)
def test_unlike_storms_are_refused_by_name(sentence):
    """And with leave to, they are compared in what is alike, the difference on the page."""
    other = UNLIKE[sentence]()
    with pytest.raises(PlaceError, match="are unlike: ") as refused:
        compare(_storm(), other)
    assert sentence in str(refused.value)
    assert "--anyway" in refused.value.hint
    found = compare(_storm(), other, unlike="allow")
    text = " ".join(terminal.render_sections(compared.sections(found)).split())
    assert f"unlike {sentence}" in text


def test_other_bytes_leave_rates_to_compare():
    """Twice the bytes take longer: that says nothing, and the rate says what can be said."""
    found = compare(_storm(), _storm(bytes_per_rank=1 << 31), unlike="allow")
    assert "save seconds" in found.left_out
    assert {each.name for each in found.headline} == {"bytes_per_s"}


def test_a_load_is_compared_by_its_rate_and_latencies():
    """Whoever shares the storage: its stage stands by its name, and decides nothing by itself."""

    def with_load(made: StormRecord, factor: int) -> StormRecord:
        loads = [
            replace(each, phase=Phase.LOAD, name="lookups during the save", barrier_to_barrier_ns=0,
                    latency=replace(each.latency, max_ns=each.latency.max_ns * factor))
            for each in made.phases
            if each.phase == Phase.RESTORE
        ]  # fmt: skip
        return replace(made, phases=(*made.phases, *loads))

    found = compare(with_load(_storm(noise=1), 1), with_load(_storm(noise=2), 3))
    words = _words(found)
    assert words["lookups during the save read max"] == "worse"
    assert words["lookups during the save ops_per_s"] in ("same", "cannot tell")
    assert {each.phase for each in found.headline} == {"save", "restore"}
    assert found.word != "worse"
    assert "\nLookups during the save\n" in terminal.render_sections(compared.sections(found))


def test_rounds_and_patience_are_no_difference():
    """Nor are limits; planted faults, hosts and mounts are told and refuse nothing."""
    other = with_job(with_job(_storm(), "storm", rounds=9, timeout="1h"), "slo", save_seconds=9)
    assert differences(_storm(), other) == ()
    planted = replace(_storm(), job=_storm().job | {"fault": [{"ranks": [0], "op": "fsync", "delay": "1s"}]})
    moved = replace(planted, environment=planted.environment | {"mount": {"type": "gpfs"}})
    found = differences(_storm(), moved)
    assert {each.weight for each in found} == {"noted"}
    assert {"fault[1].delay", "file system", "mounted from"} <= {each.what for each in found}


def test_records_without_a_common_number_are_refused():
    """An interrupted storm has nothing to set against another."""
    empty = replace(_storm(), phases=())
    with pytest.raises(PlaceError, match="no number in common"):
        compare(_storm(), empty)


def test_an_invalid_record_fails_the_gate():
    """Whatever its numbers: they may not be believed."""
    invalid = _storm(generate_share=0.5)
    found = compare(_storm(), invalid)
    text = " ".join(terminal.render_sections(compared.sections(found, 0.05)).split())
    assert "the record after is INVALID" in text
    assert "FAILED (--fail-above 5 %): an invalid record proves nothing" in text


def test_a_creep_is_an_alarm():
    """Each night 1.5 % slower: no night is worse than the one before, and the sum is told."""
    nights = tuple(compare(_storm(), _storm(2.0 * 1.015**n, noise=n, name=f"night-{n}")) for n in range(1, 9))
    found = series(nights)
    save = next(each for each in found.drifts if each.phase == "save")
    assert save.word == "worse"
    assert save.worse_by == pytest.approx(0.12, abs=0.04)
    assert "ALARM, worse" in terminal.render_sections(compared.series_sections(found))
    assert found.word == "worse"


def test_nights_alike_and_nights_too_few():
    """No alarm among repetitions; none can be raised from three storms."""
    alike = series(tuple(compare(_storm(), _storm(noise=n)) for n in range(8)))
    assert {each.word for each in alike.drifts} <= {"same", "cannot tell"}
    few = series(tuple(compare(_storm(), _storm(2 + n, noise=n)) for n in range(1, 3)))
    assert {each.word for each in few.drifts} == {"cannot tell"}
    assert "3 storms are too few" in few.drifts[0].because


@pytest.mark.parametrize("other", [*UNLIKE.values(), _storm, lambda: _storm(9.0)])
def test_no_line_is_longer_than_80_characters(other):
    """Of any comparison."""
    found = compare(_storm(name="n" * 70), other(), unlike="allow")
    pages = (compared.sections(found, 0.05), compared.series_sections(series((found,) * 3), 0.05))
    for page in pages:
        for line in terminal.render_sections(page).splitlines():
            assert len(line) <= terminal.WIDTH, line
