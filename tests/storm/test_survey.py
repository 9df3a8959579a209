"""`ckptstorm check` looks from every node: what one node finds, what many find together, and nothing is left behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import pytest

from ckptstorm.filesystems.mount import mount_of
from ckptstorm.storm.findings import Finding, of_all_nodes
from ckptstorm.storm.probes import Question, look
from tests.conftest import TINY, clean_environment
from tests.services.loop import loop
from tests.services.nodes import mpiexec_arguments


def _question(directory, **changes):
    asked = {"memory_bytes": 1 << 20, "file_bytes": 1 << 30, "is_direct": False} | changes
    return Question(str(directory), mount_of(str(directory)), **asked)


def _found(directory, **changes):
    return {one.subject: one for one in look(_question(directory, **changes))}


def test_a_good_place_is_fine_and_left_as_it_was(tmp_path):
    """Every probe is fine, O_DIRECT and locks by trying them, and the probe's file is gone."""
    found = _found(tmp_path, is_direct=True)
    assert {one.state for one in found.values()} == {"fine"}
    assert found["O_DIRECT"].sentence == "an aligned write of 4096 bytes, and its read of 4096, were done"
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_made_stops(tmp_path):
    """/proc takes no file, whoever asks; what was not tried is said to be so."""
    found = _found("/proc")
    assert found["permission"].state == "stops"
    assert "no file can be made in /proc" in found["permission"].sentence
    assert {found[subject].state for subject in ("O_DIRECT", "locks", "clock")} == {"warning"}


def test_too_little_memory_and_too_large_files_stop(tmp_path):
    """More than any machine has; a file above this process's own limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 24, hard))
    try:
        found = _found(tmp_path, memory_bytes=1 << 55)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert found["memory of nodes"].state == "stops"
    assert found["file size"].state == "stops"
    assert "1.00 GiB, and this process may write 16.0 MiB" in found["file size"].sentence


def test_the_odd_node_is_named():
    """Of three nodes the one that is worse; several with how many; all alike as one."""
    fine, bad = Finding("locks", "fine", "given"), Finding("locks", "warning", "refused", "do this")
    hosts = ["a", "b", "c"]
    assert of_all_nodes(hosts, [[fine]] * 3) == (Finding("locks", "fine", "given, alike on 3 nodes"),)
    (one,) = of_all_nodes(hosts, [[fine], [bad], [fine]])
    assert (one.state, one.hint) == ("warning", "do this")
    assert one.sentence == "b: refused (the other 2 nodes are not)"
    (two,) = of_all_nodes(hosts, [[fine], [bad], [bad]])
    assert two.sentence == "b: refused (2 of 3 nodes)"
    other = Finding("locks", "fine", "given by another")
    assert "and fine on all 3 nodes" in of_all_nodes(hosts, [[fine], [other], [fine]])[0].sentence


@pytest.mark.io
def test_a_quota_that_does_not_suffice_stops(ckptstorm, place):
    """A btrfs subvolume of which 20 MiB may be filled, and a checkpoint that is larger."""
    (place / "job.toml").write_text(TINY)
    with loop("btrfs") as disk:
        subprocess.run(["btrfs", "quota", "enable", disk.mount], check=True, capture_output=True)
        subprocess.run(["btrfs", "qgroup", "limit", "20M", disk.mount], check=True, capture_output=True)
        ended = ckptstorm("check", "job.toml", "--dir", str(disk.mount / "data"), "--json")
    assert ended.code == 2
    (quota,) = [one for one in ended.data["findings"] if one["subject"] == "quota"]
    assert quota["state"] == "stops"
    assert "left of 20.0 MiB" in quota["sentence"]


@pytest.mark.mpi
def test_every_node_of_the_cluster_is_asked(mpiexec, place):
    """Under a launcher the odd node's mount stops it, by name; where all are alike it would start."""
    if os.geteuid() != 0:
        pytest.skip("a second node needs root")
    (place / "job.toml").write_text(TINY)
    command = [sys.executable, "-P", "-m", "mpi4py", "-m", "ckptstorm", "check", "job.toml", "--json"]
    shared = place / "shared"
    other = place / "other"
    other.mkdir()
    for clients, code in (((None, None), 0), ((None, other), 2)):
        if code:
            subprocess.run(["mount", "-t", "tmpfs", "odd", other], check=True)
        try:
            nodes = mpiexec_arguments(place, clients, shared, 1)
            ended = subprocess.run(
                [mpiexec, *nodes, *command, "--dir", str(shared)],
                capture_output=True,
                text=True,
                timeout=90,
                env=clean_environment(),
                cwd=place,
                check=False,
            )
        finally:
            if code:
                subprocess.run(["umount", other], check=True)
        assert ended.returncode == code, ended.stderr
        found = {one["subject"]: one for one in json.loads(ended.stdout)["findings"]}
        assert found["mount"]["state"] == ("stops" if code else "fine")
        assert ("127.0.0.3: tmpfs from odd is mounted there" in found["mount"]["sentence"]) == bool(code)
        assert list(shared.iterdir()) == []
