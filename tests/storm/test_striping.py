"""`[layout] stripe`: refused by name where it cannot be had, before anything is made."""

from __future__ import annotations

import pytest

from ckptstorm.errors import JobError, PlaceError
from ckptstorm.filesystems import adapter_of
from ckptstorm.filesystems.mount import Mount
from ckptstorm.job import to_builtins
from ckptstorm.jobfile import decode
from ckptstorm.storm.striping import check_stripe, set_stripe


def _adapter(kind, source):
    return adapter_of(Mount(kind, source, "rw", "/mnt", 4096, 0, 0, 0, 0, 255))


def _job(stripe):
    return decode(f'[layout]\nname = "dcp"\nstripe = {stripe}\n', "job.toml")


@pytest.mark.parametrize(
    ("kind", "source", "stripe", "kind_of_error", "says"),
    [
        (
            "xfs",
            "/dev/sda",
            "{ count = 2 }",
            JobError,
            "[layout] stripe: a local file system (/dev/sda at /mnt) has no striping",
        ),
        (
            "lustre",
            "mgs:/fs",
            "{ counts = 2 }",
            JobError,
            'counts: Lustre (mgs:/fs at /mnt) has no such option; did you mean "count"?',
        ),
        ("lustre", "mgs:/fs", '{ count = "two" }', JobError, "[layout] stripe count: not what Lustre takes"),
        ("lustre", "mgs:/fs", "{ count = 2 }", PlaceError, "stripe cannot be set on Lustre: lfs is not on PATH"),
        (
            "gpfs",
            "/dev/gpfs0",
            "{ access_range = true }",
            JobError,
            "access_range: Storage Scale (GPFS) (/dev/gpfs0 at /mnt): ckptstorm gives no access range hint",
        ),
        ("fuse", "mfs#m:9421", "{ count = 2 }", JobError, "count: MooseFS (mfs#m:9421 at /mnt) has no such option"),
    ],
)
def test_what_cannot_be_had_is_refused(monkeypatch, kind, source, stripe, kind_of_error, says):
    """Another file system's keys, misspelt ones, wrong values, and a missing program."""
    monkeypatch.setenv("PATH", "/nowhere")
    for ask in (check_stripe, lambda job, adapter: set_stripe(job, adapter, "/mnt")):
        with pytest.raises(kind_of_error) as caught:
            ask(_job(stripe), _adapter(kind, source))
        assert says in str(caught.value)


def test_a_job_without_it_asks_for_nothing():
    """Nothing is set, and the resolved job has no such key."""
    job = decode('[layout]\nname = "dcp"\n', "job.toml")
    assert set_stripe(job, _adapter("xfs", "/dev/sda"), "/mnt") == {}
    assert "stripe" not in to_builtins(job)["layout"]


def test_the_resolved_job_keeps_it():
    """Components and all, as a job writes them."""
    stripe = {"components": [{"end": "64MiB", "count": 1}, {"end": "eof", "count": -1}]}
    job = decode(
        '[layout]\nname = "dcp"\n[[layout.stripe.components]]\nend = "64MiB"\ncount = 1\n'
        '[[layout.stripe.components]]\nend = "eof"\ncount = -1\n',
        "job.toml",
    )
    assert to_builtins(job)["layout"]["stripe"] == stripe
