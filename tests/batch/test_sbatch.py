"""`ckptstorm sbatch` on a real Slurm: from a job file to a batch job and back to the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import TINY, Ended
from tests.services.slurm import Slurm

pytestmark = [pytest.mark.mpi, pytest.mark.io]
CKPTSTORM = (sys.executable, "-P", "-m", "ckptstorm")
SITE = f"""
[allocation]
ranks_per_node = 2
exclusive = false
signal_before = "{{signal}}"
[software]
command = "{Path(sys.executable).parent}/ckptstorm"
"""


def sbatch(cluster: Slurm, place: Path, *arguments: str, job: str = TINY, site: str = SITE) -> Ended:
    """Run `ckptstorm sbatch job.toml --site site.toml ARGUMENTS` on a node of the cluster that may submit."""
    (place / "job.toml").write_text(job)
    (place / "site.toml").write_text(site.replace("{signal}", "2min"))
    command = [*CKPTSTORM, "sbatch", "job.toml", "--site", "site.toml", *arguments]
    ended = subprocess.run(
        command, cwd=place, env=cluster.environment, capture_output=True, text=True, timeout=100, check=False
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def told(folder: Path) -> dict:
    """The summary in a result folder."""
    return json.loads((folder / "storm.json").read_text())


def results_below(folder: Path) -> list[Path]:
    """Finished result folders."""
    return sorted(path.parent for path in folder.glob("*/storm.json") if not path.parent.name.endswith(".partial"))


def test_from_a_job_file_to_the_report(cluster, place):
    """One command: the job runs on two nodes, bound as the site says; its report is shown, its directory is gone."""
    rails = '[launch]\nrails = ["r0", "r1"]\nrail_variable = "FI_VERBS_IFACE"\n'
    ended = sbatch(cluster, place, "--ranks", "4", "--wait", site=SITE + rails)
    assert ended.code in (0, 1), ended.said  # 1: this machine's client may be the limit
    job, _, report = ended.out.partition("\n")
    assert "Allocation" in report
    assert f"slurm {job} in ckptstorm, all" in report
    (folder,) = results_below(place / "results")
    record = told(folder)
    assert record["ended"] == "complete"
    assert record["world"] == {"ranks": 4, "nodes": 2}
    bound = record["environment"]["allocation"]["bindings"]
    assert all(one["cpus"].isdigit() for one in bound)  # --cpu-bind=cores: one core a rank
    rail_of = {one["ranks"]: (one["rail"], one["network"]) for one in bound}
    assert rail_of == {"0,2": ("r0", ["FI_VERBS_IFACE=r0"]), "1,3": ("r1", ["FI_VERBS_IFACE=r1"])}
    assert not (place / "ckptstorm-data").exists()


def test_submit_prints_the_job_id_and_hostile_folders_are_only_folders(cluster, place):
    """`--submit` returns at once. Spaces, quotes, a command and sbatch's own patterns in the paths: the job runs there,
    and nothing else does. What sbatch refuses comes in its own words."""
    results = place / 're\'sults %j $(touch pwned); "x"'
    ended = sbatch(cluster, place, "--ranks", "2", "--submit", "--results", str(results), "--dir", str(place / "a b;c"))
    assert ended.code == 0, ended.said
    assert cluster.wait(ended.out.strip()) in ("COMPLETED", "FAILED")
    assert len(results_below(results)) == 1
    assert [path.name for path in results.glob("*.log")] == [f"storm-job-{ended.out.strip()}.log"]
    assert not list(place.rglob("pwned"))
    wrong = sbatch(cluster, place, "--ranks", "2", "--submit", site=SITE.replace("[soft", "partition='no'\n[soft"))
    assert wrong.code == 2
    assert "sbatch refused: " in wrong.err and "nvalid partition" in wrong.err


def test_a_job_that_leaves_no_result_is_told_with_its_log(cluster, place):
    """The command is not there on the node: exit code 2, and the log's last words."""
    ended = sbatch(cluster, place, "--ranks", "2", "--wait", site=SITE.replace("/ckptstorm", "/no-such-ckptstorm"))
    assert ended.code == 2
    assert "left no result: see " in ended.err
    assert "no-such-ckptstorm" in ended.err


def test_a_sweep_of_four_and_what_is_there_is_not_run_again(cluster, place):
    """A job array of four storms on one and on two nodes; the table; a stopped array goes on where it stopped."""
    sweep = ("--sweep", "ranks=2,4", "--sweep", "io.durability=layout,none")
    ended = sbatch(cluster, place, *sweep, "--wait")
    assert "4 storms; they differ in ranks, io.durability" in ended.out, ended.said
    folders = sorted(path for path in (place / "results").iterdir() if path.is_dir())
    assert [folder.name for folder in folders] == [
        f"ranks={ranks}+io.durability={how}" for ranks in (2, 4) for how in ("layout", "none")
    ]
    finished = {folder.name: [path.name for path in results_below(folder)] for folder in folders}
    assert all(len(names) == 1 for names in finished.values())
    assert told(results_below(folders[2])[0])["world"] == {"ranks": 4, "nodes": 2}
    # One of them was cut off: only that one is run again.
    (cut,) = results_below(folders[1])
    text = (cut / "storm.json").read_text()
    (cut / "storm.json").write_text(text.replace('"ended": "complete"', '"ended": "interrupted"'))
    again = sbatch(cluster, place, *sweep, "--submit")
    assert len(again.out.split()) == 1
    cluster.wait(again.out.strip())
    assert [len(results_below(folder)) for folder in folders] == [1, 2, 1, 1]
    assert sbatch(cluster, place, *sweep, "--submit").out == ""
    table = subprocess.run([*CKPTSTORM, "report", "results", "--json"], cwd=place, capture_output=True, check=False)
    assert {row["varied"]["io.durability"] for row in json.loads(table.stdout)["storms"]} == {"layout", "none"}


LONG = TINY.replace("rounds = 1", 'rounds = 4096\ninterval = "50ms"')


def _log(place: Path, job: str) -> str:
    return (place / f"results/storm-job-{job}.log").read_text()


def _underway(place: Path, job: str) -> None:
    """Until the storm has finished a round."""
    end = time.monotonic() + 60
    while not list((place / "results").glob("*.partial/phase-00003")):
        assert time.monotonic() < end, _log(place, job)
        time.sleep(0.1)


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_scancel_ends_a_storm_in_order(cluster, place, launcher):
    """The storm is told, keeps its finished rounds, and leaves no file."""
    mpiexec = Path(sys.executable).parent / "mpiexec"
    mpirun = f'[launch]\nlauncher = "mpirun"\ncommand = "{mpiexec}"\narguments = ["-iface", "lo"]\n'
    job = sbatch(
        cluster, place, "--ranks", "4", "--submit", job=LONG, site=SITE + mpirun * (launcher == "mpirun")
    ).out.strip()
    _underway(place, job)
    cluster.command("scancel", job)
    cluster.wait(job)
    (folder,) = results_below(place / "results")
    assert told(folder)["ended"] == "interrupted", _log(place, job)
    assert not (place / "ckptstorm-data").exists()


def test_a_split_storm_restores_on_other_nodes(cluster, place):
    """Save on two nodes; the job that it submits restores on the two others; one record tells of both."""
    ended = sbatch(cluster, place, "--ranks", "4", "--split", "--wait")
    save, restore, _ = ended.out.split("\n", 2)
    assert "had been written on the node that read them" in ended.out.replace("\n             ", " "), ended.said
    records = {record["storm_id"]: record for record in map(told, results_below(place / "results"))}
    assert len(records) == 2
    joined = next(record for record in records.values() if record["environment"]["halves"]["run"] == "restore")
    halves = joined["environment"]["halves"]
    assert set(halves["save"]["nodes"]).isdisjoint(halves["restore"]["nodes"])
    assert halves["save"]["allocation"]["job_id"] == save
    assert joined["environment"]["allocation"]["job_id"] == restore
    assert joined["environment"]["own_written_share"] == 0.0
    assert joined["receipts"]["cold"]["state"] == "cold"
    assert {phase["phase"] for phase in joined["phases"]} >= {"save", "restore"}
    assert [node["host"] for node in joined["nodes"]] == [*halves["restore"]["nodes"], *halves["save"]["nodes"]]
    assert not (place / "ckptstorm-data").exists()


def test_a_time_limit_that_strikes_keeps_what_was_measured(cluster, place):
    """Slurm sends SIGUSR1 before the limit: the storm ends in order, long before it would be killed."""
    site = SITE.replace("{signal}", "58s")
    job = sbatch(cluster, place, "--ranks", "2", "--time", "1min", "--submit", job=LONG, site=site).out.strip()
    _underway(place, job)
    cluster.wait(job)
    (folder,) = results_below(place / "results")
    record = told(folder)
    assert (record["ended"], record["verdict"]["exit_code"]) == ("interrupted", 130)
    assert record["rounds"]["save"]["round_count"] >= 1
    assert record["environment"]["allocation"]["job"]["TimeLimit"] == "00:01:00"
    assert "a time limit near" in " ".join(_log(place, job).split())
    assert not (place / "ckptstorm-data").exists()


def _shared_memory(pids: list[int]) -> set[Path]:
    """Files in /dev/shm that these processes have mapped."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return {Path(line.split(maxsplit=5)[5]) for line in lines if "/dev/shm/" in line and "(deleted)" not in line}


def test_a_killed_job_leaves_a_marked_directory_that_clean_removes(cluster, place):
    """SIGKILL, as after KillWait or when a node fails: what was journalled can be read, nothing is left for good."""
    job = sbatch(cluster, place, "--ranks", "2", "--submit", job=LONG).out.strip()
    _underway(place, job)
    ranks = cluster.task_pids(job)
    assert len(ranks) == 2
    segments = _shared_memory(ranks)
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
    cluster.wait(job)
    for path in segments:  # of the MPI library: with all ranks gone there is nobody left to remove them
        path.unlink(missing_ok=True)
    (partial,) = (place / "results").glob("*.partial")
    shown = subprocess.run([*CKPTSTORM, "report", str(partial)], cwd=place, capture_output=True, text=True, check=False)
    assert shown.returncode == 4, shown.stdout + shown.stderr
    (directory,) = (place / "ckptstorm-data").iterdir()
    assert (directory / ".ckptstorm").exists()
    cleaned = subprocess.run(
        [*CKPTSTORM, "clean", str(directory)], cwd=place, capture_output=True, text=True, check=False
    )
    assert cleaned.returncode == 0, cleaned.stderr
    assert not (place / "ckptstorm-data").exists()


def test_a_node_that_fails_ends_the_storm_in_order(cluster, place):
    """Slurm takes a node out in the middle: what was measured is kept, nothing is left, nothing starts again."""
    job = sbatch(cluster, place, "--ranks", "4", "--submit", job=LONG).out.strip()
    _underway(place, job)
    facts = cluster.facts(job)
    nodes = cluster.command("scontrol", "show", "hostnames", facts["NodeList"]).split()
    failed = next(node for node in nodes if node != facts["BatchHost"])
    cluster.command("scontrol", "update", f"nodename={failed}", "state=down", "reason=test")
    try:
        assert cluster.wait(job) == "NODE_FAIL"
        end = time.monotonic() + 30
        while not results_below(place / "results"):
            assert time.monotonic() < end, _log(place, job)
            time.sleep(0.1)
        (folder,) = results_below(place / "results")
        assert told(folder)["ended"] == "interrupted"
        assert not (place / "ckptstorm-data").exists()
    finally:
        cluster.resume(failed)
