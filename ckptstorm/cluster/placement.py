"""Where a rank runs, in its launcher's own words: node and local rank from Slurm, binding from the kernel.

A host name is a guess: containers change it, and a cloud may give it twice. Where Slurm tells, it is
asked. What a rank is bound to is read back from the kernel, never from what was asked for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

#: What tells an MPI library which network device to use: read back, so that the record shows what took effect.
RAIL_VARIABLES = (
    "UCX_NET_DEVICES", "FI_PROVIDER", "FI_VERBS_IFACE", "FI_CXI_DEVICE_NAME", "FI_OPX_HFI_SELECT", "PSM2_MULTIRAIL",
    "MPICH_OFI_NIC_POLICY", "MPICH_OFI_NIC_MAPPING", "NCCL_IB_HCA",
)  # fmt: skip
_INFINIBAND = "/sys/class/infiniband"


@dataclass(frozen=True, slots=True)
class Told:
    """What Slurm says of a rank.

    Attributes:
        host: the node's name in the cluster's configuration.
        node_id: of the node in the step.
        local_id: of the rank on its node; -1 where an MPI's own launcher started it.
    """

    host: str
    node_id: int
    local_id: int


def told_by_slurm(environment: Mapping[str, str], rank: int, rank_count: int) -> Told | None:
    """Slurm's word, when it is of this rank; None when it is of another process, or there is none.

    An MPI's own launcher starts one proxy a node by srun: what its ranks inherit is then the proxy's,
    right about the node and wrong about the rank.
    """
    host, node = environment.get("SLURMD_NODENAME", ""), environment.get("SLURM_NODEID", "")
    if not host or not node.isdigit() or not environment.get("SLURM_STEP_ID", "").isdigit():
        return None
    is_task = environment.get("SLURM_PROCID") == str(rank)
    is_task &= environment.get("SLURM_STEP_NUM_TASKS") == str(rank_count)
    local = environment.get("SLURM_LOCALID", "")
    if is_task and local.isdigit() and "SLURM_EXTERNAL_LAUNCHER" not in environment:
        return Told(host, int(node), int(local))
    return Told(host, int(node), -1) if "SLURM_EXTERNAL_LAUNCHER" in environment else None


@dataclass(frozen=True, slots=True)
class Station:
    """Where a rank runs and what it is bound to.

    Attributes:
        host: its node's name.
        local_index: of the rank on its node.
        cpus, memory_nodes: lists that the kernel lets it use ("0-3,8").
        rail: the network device for this rank, by its MPI's own variable or by the device nearest to its CPUs.
        network: variables of `RAIL_VARIABLES` that are set, as "NAME=value".
        machine: tells one page cache from another.
    """

    host: str
    local_index: int
    cpus: str
    memory_nodes: str
    rail: str
    network: tuple[str, ...]
    machine: str

    def to_message(self) -> dict[str, object]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: dict[str, object]) -> Station:
        """What `to_message` made, from another rank."""
        return cls(**{**message, "network": tuple(message["network"])})  # type: ignore[arg-type]


def boot_id() -> str:
    """Of the kernel that this process runs on: two containers with names of their own share one, and its page cache."""
    return _read("/proc/sys/kernel/random/boot_id").strip()


def _read(path: str) -> str:
    # Not by pathlib: this module is read from disk by every rank, and pathlib brings ten more with it.
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def station(host: str, local_index: int, machine: str) -> Station:
    """This process's."""
    status = dict(line.split(":", 1) for line in _read("/proc/self/status").splitlines())
    network = tuple(f"{name}={os.environ[name]}" for name in RAIL_VARIABLES if name in os.environ)
    return Station(
        host,
        local_index,
        status.get("Cpus_allowed_list", "").strip(),
        status.get("Mems_allowed_list", "").strip(),
        _rail(local_index, network),
        network,
        machine,
    )


def _rail(local_index: int, network: tuple[str, ...]) -> str:
    """The device that this rank talks over: named by a variable, else the nearest, dealt by local rank; "" unknown."""
    named = [one.partition("=")[2] for one in network if one.startswith(("UCX_NET_DEVICES=", "FI_VERBS_IFACE="))]
    if named:
        return named[0]
    devices = sorted(os.listdir(_INFINIBAND)) if os.path.isdir(_INFINIBAND) else []
    here = os.sched_getaffinity(0)
    near = [name for name in devices if _cpus_of(name) & here] or devices
    return near[local_index % len(near)] if near else ""


def _cpus_of(device: str) -> set[int]:
    """The CPUs on the NUMA node of a network device."""
    path = f"{_INFINIBAND}/{device}/device/local_cpulist"
    return cpu_numbers(_read(path)) if os.path.isfile(path) else set()


def cpu_numbers(text: str) -> set[int]:
    """ "0-2,8" to {0, 1, 2, 8}."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            numbers |= set(range(int(first), int(last or first) + 1))
    return numbers
