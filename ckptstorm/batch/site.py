"""The site: the cluster that a job is asked on, as one frozen value (slurm/sites/example.toml is its page).

Tables refuse unknown keys, and a key that the site's batch system cannot honour is refused by name.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ckptstorm.clock import NS_PER_S
from ckptstorm.units import Bytes, Duration

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Natural = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Factor = Annotated[float, msgspec.Meta(ge=1, le=1000)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Word = Annotated[str, msgspec.Meta(min_length=1)]


class DurationOrAuto(Duration):
    """A time, or "auto" (held as 0)."""

    word = "auto"


class AllocationTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[allocation]: what is asked of the batch system."""

    ranks_per_node: Count = 8  # one rank stands for one GPU
    account: Word | None = None
    partition: Word | None = None  # PBS and Flux: the queue
    qos: Word | None = None
    constraint: Word | None = None
    reservation: Word | None = None
    exclusive: bool = True
    memory: Bytes | None = None  # a node; all of it when left out and exclusive
    gpus_per_node: Natural = 0  # none: a rank needs no GPU to write what it would write
    cpus_per_rank: Natural = 0  # left to the batch system when 0
    time_limit: DurationOrAuto = DurationOrAuto(0)  # or "auto": estimated from the plan
    margin: Factor = 2.0  # the estimate times this
    signal_before: Duration = Duration(120 * NS_PER_S)  # the storm is told that long before its limit


class LaunchTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[launch]: what starts the ranks, and where on a node they run."""

    launcher: Literal["srun", "mpirun", "flux"] | None = None  # left out: srun, PBS: mpirun, Flux: flux
    mpi: Literal["pmi2", "pmix", "cray_shasta"] = "pmi2"  # srun's: pmi2 for MPICH and Intel MPI, pmix for Open MPI
    command: Word | None = None  # the launcher's own path
    arguments: tuple[str, ...] = ()  # more of them
    cpu_bind: Word = "cores"  # srun's: "cores", "none", "map_cpu:0,8,16"
    memory_bind: Word | None = None  # srun's: "local"
    distribution: Word | None = None  # "block:cyclic"
    rails: tuple[Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]+$")], ...] = ()  # a device for each local rank
    rail_variable: Name = "UCX_NET_DEVICES"  # what tells the MPI library


class SoftwareTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[software]: what a rank needs to run."""

    modules: tuple[Word, ...] = ()
    environment: dict[Name, str] = {}
    command: Word = "ckptstorm"
    archive: Word | None = None  # a packed environment (tar), staged to each node before the ranks start
    stage_to: Word = "/tmp"  # node-local storage


class ContainerTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[container]: the image that holds ckptstorm, when it is not installed."""

    runtime: Literal["apptainer", "pyxis"]
    image: Word
    mounts: tuple[Annotated[str, msgspec.Meta(pattern=r"^[^,:]+$")], ...] = ()  # the directory and the results are


class StorageTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[storage]: where it is, and how fast it is thought to be."""

    directory: Word = "./ckptstorm-data"  # each storm gets a directory of its own below
    results: Word = "./results"
    save_bytes_per_s: Bytes | None = None  # for the time limit only; 200 MB/s a node when left out
    restore_bytes_per_s: Bytes | None = None


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole site file, with every default filled in."""

    scheduler: Literal["slurm", "pbs", "flux"] = "slurm"
    allocation: AllocationTable = AllocationTable()
    launch: LaunchTable = LaunchTable()
    software: SoftwareTable = SoftwareTable()
    container: ContainerTable | None = None
    storage: StorageTable = StorageTable()


#: What starts ranks where; the first is the default.
LAUNCHERS = {"slurm": ("srun", "mpirun"), "pbs": ("mpirun",), "flux": ("flux", "mpirun")}
#: What only srun understands.
OF_SRUN = ("mpi", "cpu_bind", "memory_bind", "distribution")
#: Keys that a batch system has nothing for: refused by name, never dropped.
UNKNOWN_TO: dict[str, tuple[str, ...]] = {
    "slurm": (),
    "pbs": ("allocation.qos", "allocation.constraint", "allocation.reservation", "software.archive"),
    "flux": (
        "allocation.qos", "allocation.constraint", "allocation.reservation", "allocation.memory", "software.archive",
    ),
}  # fmt: skip
