"""Who started this process: what launchers tell their ranks; imports nothing, so that a plain start stays cheap."""

from __future__ import annotations

from collections.abc import Mapping

from ckptstorm.errors import LaunchError

#: Rank and size as launchers tell them: Hydra and Slurm's pmi2, Open MPI, PMIx, Slurm.
_RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")


def launched_rank(environment: Mapping[str, str]) -> int | None:
    """This process's rank, when a launcher started it; None for a plain start.

    A batch script's own shell has SLURM_PROCID too, but no step: `sbatch` sets no SLURM_STEP_ID of a
    number below the special ones there, so the step's own launcher variables decide.
    """
    for name in _RANK_VARIABLES:
        if name == "SLURM_PROCID" and not _is_srun_step(environment):
            continue
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None


def launched_size(environment: Mapping[str, str]) -> int | None:
    """How many ranks the launcher says it started; None when it does not say."""
    for name in _SIZE_VARIABLES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None


def _is_srun_step(environment: Mapping[str, str]) -> bool:
    return environment.get("SLURM_STEP_ID", "").isdigit() and "SLURM_STEP_NUM_TASKS" in environment


def check_world(size: int, asked: int | None, environment: Mapping[str, str]) -> None:
    """Refuse a world that is not the one asked for.

    Raises:
        LaunchError: says what came up, what was asked for, and the usual cause.
    """
    expected = asked if asked is not None else launched_size(environment)
    if expected is None or size == expected:
        return
    if size == 1:
        raise LaunchError(
            f"{expected} ranks were asked for, but this process found itself alone in a world of 1",
            "the launcher and the MPI library do not belong together: use the mpiexec of this Python's own MPI, "
            "or with Slurm `srun --mpi=pmi2` (MPICH, Intel MPI) or `srun --mpi=pmix` (Open MPI), never --mpi=none",
        )
    raise LaunchError(
        f"{expected} ranks were asked for, but the launcher started {size}",
        "leave out --ranks under mpirun or srun, or give both the same number",
    )
