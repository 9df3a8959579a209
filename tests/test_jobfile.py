"""Job files: what is right decodes, what is wrong ends in one sentence with key, value, what is allowed."""

from __future__ import annotations

import os
import random
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckptstorm.errors import JobError
from ckptstorm.job import Job, to_builtins
from ckptstorm.jobfile import SIZE_CAP_BYTES, decode, from_builtins, read_job, shipped_jobs

JOBS = Path(__file__).parents[1] / "jobs"


def _refused(text, *overrides):
    with pytest.raises(JobError) as caught:
        decode(text, "x.toml", overrides)
    return "\n".join(caught.value.lines())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[storm]\nrouds = 3", '[storm] rouds: unknown key; did you mean "rounds"?'),
        ("rounds = 3", '"rounds"; it belongs into [storm]'),
        ("[strom]", 'unknown table or key "strom"; did you mean "storm"?'),
        ("[storm]\nrounds = 0", "[storm] rounds = 0: expected a number of rounds"),
        ("[storm]\nrounds = true", "[storm] rounds = True: expected a number of rounds"),
        ("[storm]\ntimeout = 30", '"30s"'),
        ('[storm]\non_error = "retry"', 'allowed: "stop", "continue"'),
        ('[storm]\nallow = ["tmpf"]', '[storm] allow [0] = "tmpf"'),
        ("storm = 3", "[storm] = 3: expected a table"),
        ("[[storm]]", "[storm] = [{}]: expected a table"),
        ("[storm", "not TOML"),
        ("[storm]\nrounds = \nwarmup = 1", "line 2, column"),
        ('[io]\nblock_size = "4XiB"', 'allowed: "auto" or a size such as "16MiB"'),
        ("[restore]\nverify = nan", "from 0 to 1"),
        ("[restore]\nverify = 1.5", "from 0 to 1"),
        ('[restore]\nfrom_ = "own"', 'did you mean "from"?'),
        ("[slo]\nsave_seconds = inf", "[slo] save_seconds = inf"),
        ("[[fault]]\nranks = [1]", "phase"),
        ('[[fault]]\nranks=[1]\nphase="save"\nop="fsnc"\ndelay="1s"', 'did you mean "fsync"?'),
        ('[[fault]]\nranks=[1]\nphase="save"\nop="fsync"', "this one has none of them"),
        ('[[fault]]\nranks=[1]\nphase="save"\nop="fsync"\nerrno="EIOO"', 'did you mean "EIO"?'),
        ('[[fault]]\nranks=[1]\nphase="save"\nop="fsync"\nerrno="EIO"\nround=9', "only 3 measured rounds"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("[model]\nlayers = 99999999999999999999999999", "[model] layers"),
    ],
)
def test_what_is_wrong_is_said(text, says):
    """Each mistake names its file, its key, what was found and what is allowed."""
    told = _refused(text)
    assert told.startswith("x.toml: ")
    assert says in told


@pytest.mark.parametrize("override", ["", "storm", "storm.rounds", "a.b.c=1", ".x=1", "storm.=2"])
def test_what_is_no_override_is_refused(override):
    """--set wants table.key=value."""
    assert "--set" in _refused("", override)


def test_overrides_change_the_job():
    """A value is read as TOML; a bare word is a string; the last one wins."""
    job = decode(
        "[storm]\nrounds = 1", "x", ["storm.rounds=7", "model.name=gpt2-124m", 'storm.interval="2s"', "storm.rounds=8"]
    )
    assert (job.storm.rounds, job.model.name, job.storm.interval) == (8, "gpt2-124m", 2 * 10**9)


def test_an_override_cannot_smuggle_in_a_second_key():
    """A newline in a value stays part of the value."""
    assert "[storm] rounds" in _refused("", "storm.rounds=1\nwarmup = 3")


def test_layout_options_are_kept_for_the_layout():
    """Keys of [layout] that are not ours belong to the layout."""
    job = decode('[layout]\nname = "dcp"\nthreads = 2\noverwrite = true', "x")
    assert (job.layout.options, job.layout.overwrite) == ({"threads": 2}, True)


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_jobs_decode_and_survive_the_round_trip(path):
    """Each job that ships opens with its question, is short, and its resolved form decodes to itself."""
    job, text = read_job(str(path))
    assert text.startswith("# ")
    assert len(text.splitlines()) <= 30
    assert job == from_builtins(to_builtins(job), "resolved")


def test_a_key_of_a_load_can_be_overridden():
    """By the name of the load; without one where there is only one; which one is asked when that is not clear."""
    one = '[[load]]\nkind = "random"\nwarm = true\n'
    two = one + '[[load]]\nkind = "metadata"\nname = "tree"\nphases = ["stat"]\n'
    assert decode(one, "x", ["load.duration=2s"]).load[0].duration == 2 * 10**9
    assert decode(two, "x", ["load.tree.items=7", "load.random.threads=3"]).load[1].items == 7
    assert "which load?" in _refused(two, "load.items=7")
    assert 'did you mean "tree"' in _refused(two, "load.tre.items=7")
    assert 'did you mean "items"' in _refused(two, "load.tree.item=7")


def test_a_shipped_job_is_found_by_its_name():
    """`run laptop` needs no path."""
    assert "laptop" in [path.stem for path in shipped_jobs()]
    assert read_job("laptop")[0].model.name == "gpt2-124m"


def test_files_that_are_no_jobs(tmp_path):
    """A missing file, a directory, a device, a huge file and bad UTF-8: one sentence each."""
    (tmp_path / "big.toml").write_bytes(b"#" * (SIZE_CAP_BYTES + 1))
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    (tmp_path / "nul.toml").write_bytes(b"a\0b")
    for name, says in (
        ("laptp", 'did you mean "laptop"'),
        (str(tmp_path), "a directory"),
        ("/dev/zero", "not a regular file"),
        (str(tmp_path / "big.toml"), "larger than 1 MiB"),
        (str(tmp_path / "latin.toml"), "not UTF-8"),
        (str(tmp_path / "nul.toml"), "not TOML"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(JobError) as caught:
            read_job(name)
        assert says in "\n".join(caught.value.lines())


def _mutate(text, chance):
    """A few random edits: characters, lines, numbers, whole values."""
    for _ in range(chance.randint(1, 4)):
        at, way = chance.randrange(len(text) + 1), chance.randrange(6)
        if way == 0:
            text = text[:at] + chance.choice(string.printable + "é\0\x7f[]{}=\"'") + text[at:]
        elif way == 1:
            text = text[:at] + text[at + chance.randint(1, 9) :]
        elif way == 2:
            lines = text.splitlines(keepends=True)
            chance.shuffle(lines)
            text = "".join(lines)
        elif way == 3:
            text = text.replace(
                chance.choice(["3", '"', "true", "fsdp2", "=", "name"]),
                chance.choice(["-1", "1e999", "{}", "[]", "nan"]),
                1,
            )
        elif way == 4:
            text += chance.choice(
                ["\n[io]\n", "\n[[fault]]\n", "\nstorm.rounds = 2\n", "\n[model]\nlayers = 2\n", "\nx = 1979-05-27\n"]
            )
        else:
            text = text[:at] + text[:at] + text[at:]
    return text


def test_ten_thousand_mutated_jobs_are_jobs_or_sentences():
    """No mutation of a shipped job ends in anything but a job or a JobError."""
    texts = [path.read_text() for path in sorted(JOBS.glob("*.toml"))]
    chance = random.Random(20261201)
    jobs = 0
    for _ in range(10_000):
        try:
            job = decode(_mutate(chance.choice(texts), chance), "mutant.toml")
        except JobError as error:
            assert all(line and "\n" not in line for line in error.lines())
        else:
            assert isinstance(job, Job)
            jobs += 1
    assert 100 < jobs < 9_900


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_TABLE_NAMES = st.sampled_from(["storm", "model", "parallel", "layout", "io", "restore", "slo", "fault"])
_KEYS = st.sampled_from(
    ["rounds", "name", "engine", "from", "verify", "timeout", "layers", "ranks", "op", "allow", "x"]
)


@given(st.dictionaries(_TABLE_NAMES, _VALUES | st.dictionaries(_KEYS, _VALUES, max_size=4), max_size=4))
@settings(max_examples=300, deadline=None)
def test_any_values_are_a_job_or_a_sentence(data):
    """Whatever a parser may hand over, the decoder answers with a job or a JobError."""
    try:
        job = from_builtins(data, "any")
    except JobError:
        return
    assert job == from_builtins(to_builtins(job), "again")


def test_a_fifo_is_read_like_a_file(tmp_path):
    """A job may come from a process substitution."""
    fifo = tmp_path / "job"
    os.mkfifo(fifo)
    if os.fork() == 0:
        fifo.write_text("[storm]\nrounds = 5\n")
        os._exit(0)
    assert read_job(str(fifo))[0].storm.rounds == 5
    os.wait()
