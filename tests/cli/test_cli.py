"""The command line as a user meets it: what it refuses, what it prints, what it leaves alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import zstandard

from ckptstorm.cli import VERBS
from tests.conftest import TINY, clean_environment
from tests.require import missing


def _refused(ended, *says):
    assert ended.code == 2, ended.said
    assert "Traceback" not in ended.said
    for text in says:
        assert text in ended.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "laptop"), "how many ranks?"),
        (("run", "laptp", "--ranks", "2"), 'did you mean "laptop"'),
        (("run", "laptop", "--ranks", "0"), "--ranks"),
        (("run", "laptop", "--ranks", "2", "--set", "storm.rouds=1"), 'did you mean "rounds"'),
        (("run", "laptop", "--ranks", "3", "--set", "parallel.tensor=2"), "does not divide the 3 ranks"),
        (("run", "laptop", "--ranks", "2", "--set", "io.engine=posx"), 'did you mean "posix"'),
        (
            ("run", "laptop", "--ranks", "2", "--set", "io.engine=posix", "--set", "io.queue_depth=4"),
            "cannot honour it",
        ),
        (("run", "laptop", "--ranks", "2", "--set", "layout.name=dpc"), 'did you mean "dcp"'),
        (("run", "laptop", "--ranks", "2", "--set", "layout.nam=dcp"), "layout"),
        (("run", "laptop", "--ranks", "2", "--set", "restore.from=other-node"), "node"),
        (("run", "laptop", "--ranks", "2", "--results", "ckptstorm-data/results"), "lies inside --dir"),
        (("plan", "laptop", "--ranks", "4", "--rank", "4"), "there are ranks 0 to 3"),
        (("plan", "laptop", "--block-size", "x"), "--block-size x"),
        (("report", "nowhere"), "nowhere"),
        (("clean", "nowhere"), "no such directory"),
        (("list", "engine"), "engine"),
        (("rum",), 'did you mean "run"'),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_created(ckptstorm, place, arguments, says):
    """One sentence, exit code 2, an empty directory as before."""
    _refused(ckptstorm(*arguments), says)
    assert os.listdir(place) == []


def test_the_help_names_every_verb(ckptstorm):
    """`ckptstorm --help` shows the table of verbs with their purposes, and `-h` of each is its own."""
    shown = ckptstorm("--help").out
    for verb, entry in VERBS.items():
        assert f"  {verb} " in shown
        assert entry.purpose.split()[0] in shown
        assert f"Usage: ckptstorm {verb}" in ckptstorm(verb, "-h").out


def test_a_foreign_directory_is_left_alone(ckptstorm, place):
    """Not empty and not ours; a link; a file: refused, and untouched."""
    (place / "mine").mkdir()
    (place / "mine" / "thesis.txt").write_text("years of work")
    (place / "link").symlink_to(place / "mine")
    (place / "file").write_text("x")
    for name, says in (("mine", "not empty"), ("link", "symbolic link"), ("file", "not a directory")):
        _refused(ckptstorm("run", "laptop", "--ranks", "2", "--dir", name), says)
    for name in ("mine", "link", "file"):
        _refused(ckptstorm("clean", name))
    assert (place / "mine" / "thesis.txt").read_text() == "years of work"
    assert sorted(os.listdir(place)) == ["file", "link", "mine"]


def test_a_forged_mark_leads_nowhere(ckptstorm, place):
    """A manifest with another's names or links in the way removes nothing outside."""
    (place / "victim").mkdir()
    (place / "victim" / "__0_0.distcp").write_text("precious")
    ended = ckptstorm("plan", "laptop", "--json")
    assert ended.code == 0
    forged = place / "forged"
    forged.mkdir()
    mark = (
        '{"storm_id": "x", "job": {"model": {"name": "gpt2-124m"}}, "rank_count": 2, '
        '"steps": [%s], "host": "h", "pid": 1, "made_count": 1}'
    )
    (forged / ".ckptstorm").write_text(mark % '"../victim"')
    _refused(ckptstorm("clean", "forged"), "damaged")
    (forged / "step-0").symlink_to(place / "victim")
    (forged / ".ckptstorm").write_text(mark % '"step-0"')
    ckptstorm("clean", "forged")
    assert (place / "victim" / "__0_0.distcp").read_text() == "precious"


@pytest.mark.io
def test_a_full_file_system_stops_before_the_first_byte(ckptstorm, place):
    """Space and inodes are compared with what is needed, and the figures are told."""
    if os.geteuid() != 0:
        missing("root", "mounting a small file system needs root")
    for options, says in (("size=4m", "not enough space"), ("size=900m,nr_inodes=3", "not enough inodes")):
        small = place / "small"
        small.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", str(small)], check=True)
        try:
            (place / "job.toml").write_text(TINY)
            ended = ckptstorm("run", "job.toml", "--ranks", "2", "--dir", "small/data")
            _refused(ended, says, "needed", "free on")
            assert os.listdir(small) == []
        finally:
            subprocess.run(["umount", str(small)], check=True)


@pytest.mark.io
@pytest.mark.mpi
def test_a_disk_that_fills_up_is_a_result(ckptstorm, place):
    """ENOSPC in the middle of a save: exit code 3, named, everything cleaned up."""
    if os.geteuid() != 0:
        missing("root", "mounting a small file system needs root")
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120m", "small", str(small)], check=True)
    try:
        (place / "job.toml").write_text(TINY)
        (small / "hog").write_bytes(b"x" * (4 << 20))
        script = place / "hog.py"
        script.write_text(_FILL.format(hog=small / "hog"))
        mpiexec = Path(sys.executable).parent / "mpiexec"
        command = [mpiexec, "-n", "2", sys.executable, "-P", "-m", "mpi4py", script, "run", "job.toml"]
        ended = subprocess.run(
            [*command, "--dir", "small/data"],
            capture_output=True,
            text=True,
            timeout=60,
            env=clean_environment(),
            cwd=place,
            check=False,
        )
        assert ended.returncode == 3, ended.stderr
        assert "ENOSPC" in ended.stdout
        assert os.listdir(small) == ["hog"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


_FILL = """
import os
from ckptstorm import __main__
from ckptstorm.storm import phase
waited = phase.wait_until
def fill(instant):
    waited(instant)
    fd = os.open("{hog}", os.O_WRONLY)
    os.pwrite(fd, b"x" * (40 << 20), 0)
    os.close(fd)
phase.wait_until = fill
__main__.main()
"""


@pytest.mark.mpi
def test_two_storms_in_one_directory_are_refused(ckptstorm, place):
    """While one runs, the other is told whose it is, and clean refuses too."""
    job = TINY + '[[fault]]\nranks = [0]\nphase = "save"\nop = "fsync"\ndelay = "6s"\n'
    (place / "job.toml").write_text(job)
    command = [sys.executable, "-P", "-m", "ckptstorm", "run", "job.toml", "--ranks", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=clean_environment(), cwd=place) as first:
        while not (place / "ckptstorm-data" / "step-0").exists():
            assert first.poll() is None
        _refused(ckptstorm("run", "job.toml", "--ranks", "2"), "is running in it")
        _refused(ckptstorm("clean", "ckptstorm-data"), "is running in it")
        assert first.wait(timeout=60) in (0, 1)
    assert not (place / "ckptstorm-data").exists()


def test_what_is_printed_fits_80_columns(ckptstorm):
    """plan, check and list: no line is longer than a terminal."""
    for arguments in (
        ("plan", "laptop"),
        ("plan", "llama3-70b-fsdp2", "--ranks", "256"),
        ("plan", "laptop", "--rank", "1"),
        ("list",),
    ):
        ended = ckptstorm(*arguments)
        assert ended.code == 0, ended.said
        assert all(len(line) <= 80 for line in ended.out.splitlines()), arguments


def test_check_looks_and_writes_nothing(ckptstorm, place):
    """A table of findings; exit code 2 when one stops."""
    fine = ckptstorm("check", "laptop")
    assert fine.code == 0, fine.said
    assert "This storm would start." in fine.out
    huge = ckptstorm("check", "llama3-405b-fsdp2", "--ranks", "64", "--json")
    assert huge.code == 2
    states = {finding["subject"]: finding["state"] for finding in huge.data["findings"]}
    assert states["space"] == "stops"
    assert os.listdir(place) == []


def test_lists_are_data_too(ckptstorm):
    """list --json holds what list prints."""
    data = ckptstorm("list", "--json").data
    assert {"engines", "layouts", "loads", "models", "filesystems", "jobs"} == set(data)
    assert {"posix", "null"} <= {row["name"] for row in data["engines"]}
    assert all(row["purpose"] for rows in data.values() for row in rows)
    assert all(row["source"] for what in data.keys() - {"filesystems"} for row in data[what])
    sources = {row["name"]: row["source"] for row in data["jobs"]}
    assert sources["mdtest-hard"] == "IO500's mdtest-hard"
    assert sources["laptop"] == "this project's own; dcp: PyTorch 2.13, traced"
    assert sources["heartbeats"] == "this project's own"


@pytest.mark.mpi
def test_a_save_is_incompressible_as_a_whole(storm, place):
    """zstd -3 with a long window over all files of a save: 2 % at most."""
    assert storm("--keep-files").code in (0, 1)
    content = b"".join(path.read_bytes() for path in sorted((place / "ckptstorm-data" / "step-0").iterdir()))
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=31, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compress(content)
    assert len(content) / len(packed) <= 1.02


@pytest.mark.mpi
def test_the_installed_package_runs_from_the_source_tree(mpiexec):
    """Ranks started in the repository's root import what was installed and compiled, not the tree they stand in."""
    root = Path(__file__).parents[2]
    code = (
        "import importlib, ckptstorm; from ckptstorm.engines import choose; print(ckptstorm.__file__); "
        "print(importlib.import_module(f'ckptstorm.engines.{choose()}').__file__)"
    )
    ended = subprocess.run(
        [mpiexec, "-n", "2", sys.executable, "-P", "-m", "mpi4py", "-c", code],
        capture_output=True,
        text=True,
        env=clean_environment(),
        cwd=root,
        timeout=60,
        check=True,
    )
    assert ended.stdout
    assert all(not line.startswith(f"{root}/ckptstorm/") for line in ended.stdout.splitlines())


@pytest.mark.mpi
def test_a_rank_starts_with_few_file_system_calls(mpiexec, place):
    """Fewer than 300 calls of strace's %file on a rank other than 0, beyond those of numpy and mpi4py."""
    if subprocess.run(["which", "strace"], capture_output=True, check=False).returncode:
        missing("strace", "counts the calls")
    (place / "job.toml").write_text(TINY)
    rank = [sys.executable, "-P", "-m", "mpi4py"]
    storm_rank = [*rank, "-m", "ckptstorm", "run", "job.toml", "--set", "io.engine=null"]
    bare_rank = [*rank, "-c", "import numpy; from mpi4py import MPI"]
    counts = []
    for arguments in (storm_rank, bare_rank, storm_rank, bare_rank):  # the first two warm the bytecode
        trace = place / "trace"
        strace = ["strace", "-f", "-o", str(trace), "-e", "trace=%file"]
        command = [mpiexec, "-n", "1", *arguments, ":", "-n", "1", *strace, *arguments]
        subprocess.run(command, capture_output=True, env=clean_environment(), cwd=place, timeout=60, check=True)
        counts.append(len(re.findall(r"^\d+ +\w+\(", trace.read_text(), flags=re.M)))
    assert counts[2] - counts[3] < 300


@pytest.mark.mpi
def test_64_ranks(storm):
    """Sixty-four ranks on whatever cores there are: the null engine, every row, a record."""
    ended = storm("--set", "io.engine=null", ranks=64)
    assert ended.code == 0, ended.said
    assert ended.data["world"]["ranks"] == 64


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ('ranks = [2]\nphase = "save"\nop = "fsync"\ndelay = "1s"', "there is no rank 2"),
        ('ranks = [1]\nphase = "save"\nop = "fsync"\nnth = 2\ndelay = "1s"', "nth = 2 never comes"),
        ('ranks = [1]\nphase = "save"\nop = "write"\nfile = "*.pt"\ndelay = "1s"', "makes 0 write of *.pt"),
    ],
)
def test_a_fault_that_never_falls_is_refused(ckptstorm, place, fault, says):
    """A planted fault must fall, or the record would speak of a faulty storm that was none."""
    (place / "job.toml").write_text(f"{TINY}[[fault]]\n{fault}\n")
    _refused(ckptstorm("run", "job.toml", "--ranks", "2"), says)


def test_what_the_kernel_does_not_allow_is_refused_before_anything(ckptstorm, place):
    """A mode that this engine or machine has not is named by `check`, with what to use instead."""
    for arguments, says in (
        (("--set", "io.engine=native", "--set", "io.mode=mmap", "--set", "io.direct=true"), "page cache"),
        (("--set", "io.engine=native", "--set", "io.queue_depth=8"), "one op in flight"),
        (("--set", "io.engine=posix", "--set", "io.mode=io_uring"), "the posix engine cannot honour it"),
    ):
        _refused(ckptstorm("check", "laptop", *arguments), says)
    assert os.listdir(place) == []


def test_a_damaged_mark_is_a_sentence(ckptstorm, place):
    """Numbers out of range, a FIFO, no JSON: refused by clean and by check, and nothing hangs."""
    home = place / "home"
    home.mkdir()
    mark = home / ".ckptstorm"
    sound = '{"storm_id": "x", "job": {}, "rank_count": %s, "steps": [], "host": "h", "pid": 1, "made_count": 0}'
    for text in (sound % -5, sound % 10**9, "{", "[]", sound % '"many"'):
        mark.write_text(text)
        _refused(ckptstorm("clean", "home"), "damaged")
        assert ckptstorm("check", "laptop", "--dir", "home").code == 2
    mark.unlink()
    os.mkfifo(mark)
    _refused(ckptstorm("clean", "home"), "not a regular file")
    assert ckptstorm("check", "laptop", "--dir", "home").code == 2


@pytest.mark.mpi
def test_directories_are_left_as_they_were_found(storm, ckptstorm, place):
    """Parents that the storm made go with it; `clean .` works from inside."""
    assert storm("--dir", "a/b/c").code in (0, 1)
    assert {"job.toml", "results"} == set(os.listdir(place))
    assert storm("--dir", "d", "--keep-files").code in (0, 1)
    os.chdir(place / "d")
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "ckptstorm", "clean", "."],
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    os.chdir(place)
    assert {"job.toml", "results"} == set(os.listdir(place))


@pytest.mark.mpi
@pytest.mark.io
def test_results_that_cannot_be_written_do_not_hang_the_storm(storm, place):
    """A full results disk: the storm ends in order and cleans up, the record is printed, exit code 2 says why."""
    if os.geteuid() != 0:
        missing("root", "mounting a small file system needs root")
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "small", str(small)], check=True)
    try:
        ended = storm("--results", "small/results")
        assert ended.code == 2
        assert "cannot be written" in ended.err
        assert "verified" in ended.out
        assert {"job.toml", "small"} == set(os.listdir(place))
    finally:
        subprocess.run(["umount", str(small)], check=True)
    (place / "file").write_text("x")
    _refused(storm("--results", "file/sub"), "is in the way")


@pytest.mark.mpi
@pytest.mark.parametrize("after_s", [0.2, 0.5, 0.8])
def test_a_signal_during_the_start_is_an_interruption(place, after_s):
    """Before the ranks are up there is nobody to answer a signal: 130 all the same, and nothing left."""
    (place / "job.toml").write_text(TINY)
    command = [sys.executable, "-P", "-m", "ckptstorm", "run", "job.toml", "--ranks", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(), cwd=place
    ) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode in (130, -signal.SIGTERM), err
    assert "rank was lost" not in err
    assert not (place / "ckptstorm-data").exists()


@pytest.mark.mpi
def test_a_storm_ends_with_its_parent(place):
    """A parent that is killed takes the storm along: ranks end, and the directory is cleaned."""
    fault = '[[fault]]\nranks = [0]\nphase = "save"\nop = "fsync"\ndelay = "60s"\n'
    (place / "job.toml").write_text(TINY + fault)
    command = [sys.executable, "-P", "-m", "ckptstorm", "run", "job.toml", "--ranks", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=clean_environment(), cwd=place) as process:
        deadline = time.monotonic() + 30
        while not (place / "ckptstorm-data" / "step-0").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    while (place / "ckptstorm-data").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not (place / "ckptstorm-data").exists()
