"""Receipts, limits, verdict and exit code: each way in which a storm can end, and what must be said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ckptstorm.measure.rows import STATE_SYNC_DUE, STATE_SYNCED, Phase
from ckptstorm.record.receipts import RECEIPTS, SELF_WAIT_SHARE, invalidates, receipts
from ckptstorm.record.record import Failure, MismatchSeen
from ckptstorm.record.verdict import limits, verdict
from ckptstorm.slo import NUMBERS, PHASES, QUANTILES
from tests.record import synthetic
from tests.record.synthetic import MS, Make, S, with_column, with_job, with_phase

GOOD = synthetic.record()
RESTORES, SAVES = (1, 3, 5), (0, 2, 4)


def _on(made, **mount):
    return replace(made, environment=made.environment | {"mount": mount})


def _every(made, indices, column, value):
    for index in indices:
        made = with_column(made, index, column, value)
    return made


def _changed(made, indices, **changes):
    for index in indices:
        made = with_phase(made, index, **changes)
    return made


def _reasons(made):
    return " ".join(verdict(made).reasons)


def test_a_good_storm_is_valid_and_met():
    """Nothing to say against it: exit 0 and no reason."""
    judged = verdict(GOOD)
    assert (judged.valid, judged.met, judged.reasons, judged.exit_code) == (True, True, (), 0)
    assert [each.state for each in receipts(GOOD).values()] == [
        "yes",
        "cold",
        "all",
        "not_asked",
        "ok",
        "none",
        "ok",
        "ok",
    ]


def test_a_missed_limit_is_exit_1_and_the_record_stays_valid():
    """The reason names key, limit, finding and by how much."""
    judged = verdict(with_job(GOOD, "slo", save_seconds=1.0, restore_seconds=100.0))
    assert (judged.valid, judged.met, judged.exit_code) == (True, False, 1)
    (reason,) = judged.reasons
    assert "save_seconds" in reason and "1.00 s was asked" in reason and "106.5 % beyond" in reason


def test_a_limit_holds_for_the_worst_round_and_median_for_the_median():
    """2.025, 2.045 and 2.066 s: 2.05 s is missed by the worst, and met by the median round."""
    made = with_job(GOOD, "slo", save_seconds=2.05, save_seconds_median=2.05)
    assert [limit.is_met for limit in limits(made)] == [False, True]


def test_every_key_of_slo_is_judged():
    """Each limit that a job can set finds its number; wide ones are met, impossible ones are not."""
    owners = {"phase": PHASES[:2], "any": ("", *PHASES[:2]), "save": ("",)}
    numbers = [(name, owner) for name, number in NUMBERS.items() for owner in owners.get(number.owner, ())]
    keys = [f"{owner}_{name}" if owner else name for name, owner in numbers] + [f"fsync_{each}" for each in QUANTILES]
    keys += ["write_p99", "read_p50", "open_max", "save_open_p999", "save_seconds_median", "restore_iops_median"]
    for wide, narrow in ((1e15, 1e-9),):
        for key in keys:
            is_rate = key.removesuffix("_median").endswith(("bytes_per_s", "iops", "iops_over_4k", "per_node"))
            made = with_job(GOOD, "slo", **{key: narrow if is_rate else wide})
            assert verdict(made).met, key
            made = with_job(GOOD, "slo", **{key: wide if is_rate else narrow})
            assert not verdict(made).met, key
            assert limits(made)[0].found is not None, key


def test_a_limit_that_no_round_could_tell_is_missed():
    """A limit on the restore of a storm without one must not pass in silence."""
    saves = replace(GOOD, phases=tuple(GOOD.phases[index] for index in SAVES))
    made = with_job(saves, "slo", restore_seconds=10.0)
    assert "no measured round could tell" in _reasons(made)
    assert verdict(made).exit_code == 1


def test_margins_are_shares_of_the_limit():
    """Room of an upper limit is what is left below it; of a lower one what is above."""
    made = with_job(GOOD, "slo", fsync_p99=400 * MS, save_iops=1000)
    fsync, iops = sorted(limits(made), key=lambda limit: limit.key)
    assert fsync.margin == pytest.approx(0.5, abs=0.01)
    assert iops.margin == pytest.approx(iops.found / 1000 - 1)


def test_the_null_engine_is_an_instrument():
    """Never valid, exit 0, and no limit is judged on it."""
    made = replace(GOOD, environment=GOOD.environment | {"engine": {"name": "null", "moves_data": False}})
    judged = verdict(with_job(made, "slo", save_seconds=0.001))
    assert (judged.valid, judged.exit_code) == (False, 0)
    assert judged.reasons[0].startswith("INSTRUMENT") and len(judged.reasons) == 1
    assert limits(made) == ()


FAILURE = Failure("ENOSPC", "write", 3, "gpu000", "step-1/__3_0.distcp", 4096, 2)


def test_an_error_of_the_storage_is_exit_3():
    """In a measured round or in a warm-up: named with phase, errno, op, rank, host and file."""
    for round_number, words in ((1, "round 1"), (0, "the warm-up")):
        made = with_phase(GOOD, 0, failures=(FAILURE,), round=round_number)
        judged = verdict(with_column(made, 0, "error_count", [0, 0, 0, 2]))
        assert (judged.valid, judged.exit_code) == (False, 3)
        text = judged.reasons[0]
        for word in (words, "ENOSPC", "write", "rank 3", "gpu000", "__3_0.distcp", "2 times"):
            assert word in text


def test_wrong_bytes_are_exit_3():
    """A storage that returns other bytes than were written has failed."""
    made = with_phase(GOOD, 1, mismatches=(MismatchSeen(1, "gpu000", "x at offset 9"),))
    judged = verdict(with_column(made, 1, "mismatch_count", [0, 1, 0, 0]))
    assert (judged.valid, judged.exit_code) == (False, 3)
    assert "WRONG BYTES" in judged.reasons[0] and "x at offset 9" in judged.reasons[0]


def test_a_phase_that_moved_less_than_planned_has_failed():
    """Without any error: exit 3, with both numbers of bytes."""
    judged = verdict(_every(GOOD, (2,), "bytes", 2**30 - 1))
    assert judged.exit_code == 3
    assert "SHORT" in judged.reasons[0] and "4,294,967,292 bytes moved of 4,294,967,296" in judged.reasons[0]


@pytest.mark.parametrize(("ended", "code"), [("lost_rank", 4), ("interrupted", 130), ("storage_failed", 3)])
def test_an_early_end_has_its_own_exit_code(ended, code):
    """Whatever else is wrong; the sentence of the storm room is among the reasons."""
    made = replace(GOOD, ended=ended, ended_because="rank 3 on gpu000 hangs")
    judged = verdict(with_column(made, 0, "error_count", [0, 0, 0, 2]))
    assert (judged.valid, judged.exit_code) == (False, code)
    assert "rank 3 on gpu000 hangs" in judged.reasons[0]


def test_a_simulated_record_is_never_valid_but_judged_by_its_limits():
    """A forecast says so; exit 0 when it meets the limits, else 1."""
    made = replace(GOOD, simulated=True)
    assert (verdict(made).valid, verdict(made).exit_code) == (False, 0)
    assert verdict(with_job(made, "slo", save_seconds=1.0)).exit_code == 1


def test_tmpfs_is_invalid_unless_declared():
    """Memory is no storage; who allows tmpfs knows that nothing there is cold."""
    made = _on(GOOD, type="tmpfs")
    assert verdict(made).exit_code == 1 and "TMPFS" in _reasons(made) and "COLD" in _reasons(made)
    assert verdict(with_job(made, "storm", allow=["tmpfs"])).valid
    assert receipts(made)["cold"].state == "warm"


def test_fewer_rounds_than_asked_make_the_record_invalid():
    """Two of three rounds are not what the job asks for."""
    judged = verdict(replace(GOOD, phases=GOOD.phases[:4]))
    assert (judged.valid, judged.exit_code) == (False, 1)
    assert "2 of 3 measured rounds have a save" in judged.reasons[0]


def test_ranks_that_did_not_report_make_the_record_invalid():
    """Their number is told."""
    made = with_phase(GOOD, 0, rows=GOOD.phases[0].rows[:3], planned_bytes=0)
    assert "1 of 4 ranks did not report" in _reasons(made)


def test_a_clock_that_disagrees_makes_the_record_invalid():
    """T longer than barrier-to-barrier, or much shorter."""
    for barrier_ns in (S, 100 * S):
        made = with_phase(GOOD, 0, barrier_to_barrier_ns=barrier_ns)
        assert "CLOCK: save of round 1" in _reasons(made)
        assert receipts(made)["clock"].state == "no"
        assert verdict(made).exit_code == 1


def _durable(made):
    return receipts(made)["durable"]


def test_durable_needs_every_planned_sync():
    """One sync of twelve missing: no, and the record is invalid."""
    made = with_column(GOOD, 2, "sync_count", [1, 1, 0, 1])
    assert _durable(made).state == "no" and "11 of 12" in _durable(made).evidence
    assert "DURABLE: no" in _reasons(made) and verdict(made).exit_code == 1


def test_durable_needs_a_sync_after_the_last_write_of_each_file():
    """All counts are right, but rank 1 synced another file."""
    made = with_column(GOOD, 0, "state", [STATE_SYNCED | STATE_SYNC_DUE, STATE_SYNC_DUE] + [STATE_SYNCED] * 2)
    assert _durable(made).state == "no" and "rank 1 left" in _durable(made).evidence


def test_a_layout_that_syncs_nothing_is_acknowledged_not_durable():
    """Valid, and said; with the drain when it was measured."""
    made = _every(_every(GOOD, SAVES, "state", 0), SAVES, "sync_count", 0)
    made = _changed(made, SAVES, planned_sync_count=0)
    assert _durable(made).state == "not_asked" and "acknowledged, not durable" in _durable(made).evidence
    assert verdict(made).valid
    settle = replace(GOOD.phases[0], phase=Phase.SETTLE, drain_ns=7 * S)
    assert "7.00 s more" in _durable(replace(made, phases=(*made.phases, settle))).evidence
    of_rows = replace(settle, drain_ns=-1)
    assert "2.02 s more" in _durable(replace(made, phases=(*made.phases, of_rows))).evidence


def test_a_layout_that_syncs_some_files_is_not_wholly_durable():
    """Every planned sync was done, but one rank writes a file that the layout never syncs."""
    made = _every(GOOD, SAVES, "state", [0] + [STATE_SYNCED] * 3)
    assert _durable(made).state == "not_asked" and "not wholly durable" in _durable(made).evidence
    assert "3 of 12 rank saves" in _durable(made).evidence


@pytest.mark.parametrize(
    ("share", "nodes", "state"),
    [(0.0, 1, "cold"), (0.01, 1, "cold"), (0.02, 2, "warm"), (-1.0, 2, "cold"), (-1.0, 1, "unknown")],
)
def test_cold_by_residency_or_by_reading_elsewhere(share, nodes, state):
    """Residency decides where it is known; a node shift where it is not; else nobody knows."""
    made = synthetic.record(Make(nodes=nodes, resident_share=share))
    assert receipts(made)["cold"].state == state
    assert verdict(made).valid is (state != "warm")
    assert verdict(with_job(made, "storm", allow=["warm"])).valid


def test_verified_tells_all_a_share_or_no():
    """All bytes compared, some as asked, fewer than asked, or none because none was asked for."""
    half = _every(GOOD, RESTORES, "verified_bytes", 2**29)
    none = _every(GOOD, RESTORES, "verified_bytes", 0)
    assert receipts(GOOD)["verified"].state == "all"
    assert receipts(with_job(half, "restore", verify=0.5))["verified"].state == "share"
    assert receipts(half)["verified"].state == "no" and not verdict(half).valid
    assert not verdict(none).valid
    assert receipts(with_job(none, "restore", verify=0.0))["verified"].state == "not_asked"
    assert verdict(with_job(none, "restore", verify=0.0)).valid


def test_direct_needs_flag_write_and_empty_cache():
    """Asked and proven, asked and contradicted, asked and not shown."""
    asked = with_job(GOOD, "io", direct=True)
    proof = {"flag_set": True, "aligned_write_count": 9, "resident_share": 0.0}
    for facts, state in ((proof, "yes"), (proof | {"resident_share": 0.5}, "no"), ({}, "no")):
        made = replace(asked, environment=asked.environment | {"direct": facts})
        assert receipts(made)["direct"].state == state
        assert verdict(made).valid is (state == "yes")


def test_a_client_that_waits_for_its_own_bytes_is_the_bottleneck():
    """31 % of the save making bytes: a lower bound for the storage, said with the figure, invalid."""
    made = synthetic.record(Make(generate_share=0.31))
    receipt = receipts(made)["self"]
    assert receipt.state == "client_bound"
    assert "lower bound" in receipt.evidence and "31 %" in receipt.evidence and "posix" in receipt.evidence
    assert verdict(made).exit_code == 1
    assert receipts(synthetic.record(Make(generate_share=SELF_WAIT_SHARE)))["self"].state == "ok"


def test_a_setting_that_took_no_effect_is_shown():
    """Asked io_uring, took effect sync: no silent fallback; "auto" is no fallback."""
    made = replace(GOOD, asked={"io.mode": ("io_uring", "sync"), "io.engine": ("auto", "posix")})
    receipt = receipts(made)["effective"]
    assert receipt.state == "no" and receipt.evidence == "asked for io.mode = io_uring, took effect: sync"


def test_receipts_of_a_storm_that_never_began_say_none():
    """No phase at all: each receipt has a state and a sentence."""
    for made in (replace(GOOD, phases=()), replace(GOOD, phases=(), nodes=(), node_of_rank=())):
        found = receipts(made)
        assert list(found) == list(RECEIPTS)
        assert all(receipt.evidence for receipt in found.values())


@pytest.mark.parametrize("name", ["effective", "clock"])
def test_shown_receipts_never_invalidate_by_themselves(name):
    """They are there to be read; the clock has its own rule in the verdict."""
    assert not invalidates(name, replace(receipts(GOOD)["clock"], state="no"), frozenset())


def test_a_job_and_environment_of_strange_types_are_read_as_defaults():
    """A stranger's record may hold anything there: judged without a traceback."""
    for value in (
        None,
        7,
        "x",
        [],
        {"allow": {}, "rounds": -1, "engine": [], "type": 5, "verify": "none"},
        float("nan"),
    ):
        job = dict.fromkeys(GOOD.job, value)
        made = replace(GOOD, job=job, environment={"engine": value, "mount": value, "direct": value})
        assert verdict(made).exit_code in (0, 1)


def test_many_classes_of_errors_are_told_in_a_few_lines():
    """The first four, and how many more there are."""
    many = tuple(replace(FAILURE, errno=f"E{number}") for number in range(9))
    reasons = verdict(with_phase(GOOD, 0, failures=many)).reasons
    assert len([reason for reason in reasons if reason.startswith("ERROR")]) == 5
    assert "5 more classes" in " ".join(reasons)


def test_the_reduction_of_a_storm_of_a_thousand_ranks_is_judged_quickly():
    """Sums over 1024 ranks stay exact: 1 TiB a save."""
    made = synthetic.record(Make(ranks=1024, nodes=128))
    assert verdict(made).valid
    assert int(made.phases[0].rows["bytes"].sum(dtype=np.int64)) == 1 << 40
