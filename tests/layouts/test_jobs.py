"""The jobs that come with the package: one for each layout and engine, each possible as it stands."""

import re

import pytest

from ckptstorm.engines import ENGINES
from ckptstorm.job import ModelTable
from ckptstorm.jobfile import read_job, shipped_jobs
from ckptstorm.layouts import LAYOUTS
from ckptstorm.plan import World, check_plan, plan

JOBS = {path.stem: path for path in shipped_jobs()}
#: It measures the instrument, with any job.
NO_JOB = {"null", "posix"}


def test_a_job_for_each_layout_and_engine():
    """`ckptstorm list jobs` has an example of everything."""
    jobs = [read_job(str(path))[0] for path in JOBS.values()]
    assert {job.layout.name for job in jobs} >= set(LAYOUTS)
    assert {job.io.engine for job in jobs} >= set(ENGINES) - NO_JOB


@pytest.mark.parametrize("name", JOBS)
def test_a_job_is_possible_as_it_says(name):
    """On the number of ranks that its comment names, the job is planned; it opens with its question."""
    job, text = read_job(str(JOBS[name]))
    assert text.startswith("# ")
    if job.model == ModelTable():
        return  # a load and no checkpoint: there is nothing to plan here
    assert len(text.splitlines()) <= 30
    told = re.search(r"(?:--ranks|-n) (\d+)", text)
    world = World(int(told[1]) if told else 8, 8)
    check_plan(job, world)
    assert plan(job, world, 0).save


def test_the_soak_has_loads_going_on():
    """Saves of a working day come beside users, not on an idle storage."""
    job, text = read_job(str(JOBS["soak"]))
    assert [load.when for load in job.load] == ["beside"]
    assert len(text.splitlines()) <= 25
