"""[slo] when a job is decoded: what keys mean, and that one which says nothing about the job is refused by name."""

from __future__ import annotations

import pytest

from ckptstorm.errors import JobError
from ckptstorm.job import to_builtins
from ckptstorm.jobfile import decode, from_builtins
from ckptstorm.slo import QUANTILES, keys, understand


def _decode(limit, rest=""):
    return decode(f'[model]\nname = "gpt2-124m"\n{rest}\n[slo]\n{limit}\n', "test")


@pytest.mark.parametrize(
    ("key", "whose", "number", "op", "quantile", "during"),
    [
        ("save_seconds", "save", "seconds", "", "", ""),
        ("save_seconds_median", "save", "seconds", "", "", ""),
        ("iops_per_node", "", "iops_per_node", "", "", ""),
        ("commit_seconds", "", "commit_seconds", "", "", ""),
        ("restore_stall_gpu_seconds", "restore", "stall_gpu_seconds", "", "", ""),
        ("write_p99", "", "", "write", "p99", ""),
        ("save_write_p999", "save", "", "write", "p999", ""),
        ("mmap_read_max", "", "", "mmap_read", "max", ""),
        ("stat_p99_during_save", "", "", "stat", "p99", "save"),
        ("hot-stats_stat_p99_during_restore", "hot-stats", "", "stat", "p99", "restore"),
        ("hot-stats_ops_per_s_during_save", "hot-stats", "ops_per_s", "", "", "save"),
        ("metadata_ops_per_s_per_node", "", "metadata_ops_per_s_per_node", "", "", ""),
        ("delete_p99", "", "", "delete", "p99", ""),
    ],
)
def test_what_a_key_means(key, whose, number, op, quantile, during):
    """Of whom, which number or which op's latency, and when."""
    meant = understand(key, ["hot-stats"])
    assert (meant.whose, meant.number, meant.op, meant.quantile, meant.during) == (whose, number, op, quantile, during)
    assert meant.is_median == key.endswith("_median")


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("save_second = 3", 'unknown key; did you mean "save_seconds"?'),
        ('wite_p99 = "1ms"', 'there is no op "wite"; did you mean "write_p99"?'),
        ('write_p98 = "1ms"', 'did you mean "write_p99"?'),
        ('write_p99_median = "1ms"', "unknown key"),
        ("write_p99 = 5", "expected a time"),
        ('save_iops = "many"', "expected a rate"),
        ("save_seconds = 0", "expected a limit above 0"),
        ("save_seconds = true", "expected a number"),
        ("save_seconds = 1979-05-27", "expected a number"),
        ('save_bytes_per_s = "5 apples"', "expected a size"),
        ('stat_p99_during_save = "5ms"', 'no load runs beside the save: [[load]] when = "beside"'),
        ("metadata_ops_per_s_per_node = 1000", 'only a load has it: [[load]] kind = "metadata"'),
        ("ops_per_s = 10", "this job has no [[load]]"),
        ("blocked_seconds = 1", "only asynchronous saves have it"),
        ("restore_commit_seconds = 1", "only a save has it"),
        ('hot-stats_stat_p99 = "1ms"', 'there is no load "hot-stats" (loads of this job: none)'),
        ('lookup_stat_p99 = "1ms"', 'there is no op "lookup_stat" and no load "lookup" (loads of this job: none)'),
        ('list_p99 = "1ms"', "nothing in this job makes that op: list"),
    ],
)
def test_what_says_nothing_is_refused_by_name(limit, says):
    """One sentence that begins with the key."""
    with pytest.raises(JobError) as raised:
        _decode(limit)
    text = str(raised.value)
    assert text.startswith(f"test: [slo] {limit.partition(' ')[0]}")
    assert says in text


@pytest.mark.parametrize(
    "limit",
    ["save_seconds = 30", 'save_seconds = "30s"', 'save_bytes_per_s = "5GB"', 'save_bytes_per_s = "5GB/s"',
     "iops = 1e5", 'iops = "1000/s"', 'open_p99 = "5ms"', "straggler_ratio = 1.5", "round_spread = 0.1",
     "delete_seconds = 2"],
)  # fmt: skip
def test_limits_survive_the_way_through_a_record(limit):
    """What was written comes back as it was written."""
    job = _decode(limit)
    assert from_builtins(to_builtins(job), "again").slo == job.slo != {}


def test_a_staged_job_may_limit_what_staging_has():
    """The same keys, once there is something to limit."""
    assert _decode("blocked_seconds = 1\ndrain_seconds = 60", '[storm]\nstaging = "1GiB"').slo["blocked_seconds"] == 1


def test_every_key_that_is_suggested_is_one():
    """A did-you-mean may not lead into the next refusal."""
    assert all(understand(key, []) is not None for key in keys([]))
    assert len(QUANTILES) == 5


def test_limits_on_loads_are_held_against_what_they_do():
    """Its name, its ops, and whether it runs beside the save; another's op is refused, and a load that is alone."""
    job = '[[load]]\nkind = "metadata"\nname = "lookups"\nwhen = "{when}"\n{rate}mix = {{ stat = 1 }}\n'
    beside = job.format(when="beside", rate='rate = "10/s"\n')
    alone = job.format(when="alone", rate='duration = "1s"\n')
    for limit in ("lookups_stat_p99_during_save", "stat_p999_during_restore", "lookups_stat_p50"):
        assert _decode(f'{limit} = "5ms"', beside).slo
    assert _decode("metadata_ops_per_s_per_node = 1000", alone).slo
    for text, limit, says in (
        (beside, 'lookups_list_p99_during_save = "5ms"', "no load beside the save makes that op: list"),
        (alone, 'lookups_stat_p99_during_save = "5ms"', 'load "lookups" does not run beside the save'),
        (beside, 'lookups_unlink_p99 = "5ms"', "nothing in this job makes that op: unlink"),
        (beside, "lookups_commit_seconds = 5", "only a save has it"),
        (beside, "lookup_iops = 5", 'did you mean "lookups_iops"?'),
    ):
        with pytest.raises(JobError) as raised:
            _decode(limit, text)
        assert says in str(raised.value)
