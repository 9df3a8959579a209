"""Where a rank runs: whose word is taken for it, and what the kernel says of its binding."""

from __future__ import annotations

import os

from ckptstorm.cluster.placement import Station, Told, cpu_numbers, station, told_by_slurm

STEP = {
    "SLURMD_NODENAME": "n2", "SLURM_NODEID": "1", "SLURM_LOCALID": "3", "SLURM_PROCID": "7",
    "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8",
}  # fmt: skip


def test_a_task_of_srun_is_told_its_node_and_local_rank():
    """All three numbers are this very rank's."""
    assert told_by_slurm(STEP, 7, 8) == Told("n2", 1, 3)


def test_the_word_for_a_proxy_is_no_word_for_its_ranks():
    """An mpiexec's proxies are Slurm's tasks: right about the node; elsewhere nothing is believed."""
    assert told_by_slurm(STEP | {"SLURM_EXTERNAL_LAUNCHER": "1"}, 5, 8) == Told("n2", 1, -1)
    assert told_by_slurm(STEP, 5, 8) is None  # another process's variables, inherited
    assert told_by_slurm(STEP, 7, 16) is None
    assert told_by_slurm({}, 0, 1) is None
    assert told_by_slurm(STEP | {"SLURM_STEP_ID": "batch"}, 7, 8) is None


def test_binding_is_read_back_from_the_kernel(monkeypatch):
    """What the record says is what the kernel allows, and a rail that the MPI library was told."""
    monkeypatch.setenv("UCX_NET_DEVICES", "mlx5_3:1")
    found = station("n1", 2, "m")
    assert cpu_numbers(found.cpus) == os.sched_getaffinity(0)
    assert (found.host, found.local_index, found.machine, found.rail) == ("n1", 2, "m", "mlx5_3:1")
    assert Station.from_message(found.to_message()) == found


def test_lists_of_cpus():
    """The kernel's notation."""
    assert cpu_numbers("0-2,8") == {0, 1, 2, 8}
    assert cpu_numbers("\n") == set()
