"""The allocation that a storm ran in: what Slurm says of the job and its nodes, and what each rank is bound to."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ckptstorm.cluster.placement import Station

#: Facts of the environment, by the name that the record gives them.
_FROM_ENVIRONMENT = {
    "job_id": "SLURM_JOB_ID", "array_job_id": "SLURM_ARRAY_JOB_ID", "array_task_id": "SLURM_ARRAY_TASK_ID",
    "step_id": "SLURM_STEP_ID", "job_name": "SLURM_JOB_NAME", "partition": "SLURM_JOB_PARTITION",
    "account": "SLURM_JOB_ACCOUNT", "qos": "SLURM_JOB_QOS", "reservation": "SLURM_JOB_RESERVATION",
    "node_list": "SLURM_JOB_NODELIST", "step_node_list": "SLURM_STEP_NODELIST",
    "tasks_per_node": "SLURM_STEP_TASKS_PER_NODE", "cpus_per_node": "SLURM_JOB_CPUS_PER_NODE",
    "cpu_bind": "SLURM_CPU_BIND_TYPE", "memory_bind": "SLURM_MEM_BIND_TYPE", "distribution": "SLURM_DISTRIBUTION",
    "gpus_per_node": "SLURM_GPUS_ON_NODE", "topology_address": "SLURM_TOPOLOGY_ADDR", "mpi": "SLURM_MPI_TYPE",
    "cluster": "SLURM_CLUSTER_NAME",
}  # fmt: skip
#: Of `scontrol show job`: what was granted (who asked for it stays out of a record that is passed on).
_OF_JOB = (
    "TimeLimit", "NumNodes", "NumCPUs", "NumTasks", "CPUs/Task", "TRES", "ReqTRES", "AllocTRES", "OverSubscribe",
    "Features", "Network", "Licenses", "Power", "Requeue", "Restarts", "StartTime", "EndTime", "ExcNodeList",
)  # fmt: skip
#: Of `scontrol show node`: hardware, and energy where it is measured.
_OF_NODE = (
    "Arch", "CPUTot", "Sockets", "CoresPerSocket", "ThreadsPerCore", "RealMemory", "Gres", "ActiveFeatures",
    "CurrentWatts", "AveWatts", "ExtSensorsJoules",
)  # fmt: skip
_NOTHING = ("", "(null)", "N/A", "n/a", "n/s", "0")
_PATIENCE_S = 10


def allocation(environment: Mapping[str, str], stations: Sequence[Station]) -> dict[str, Any]:
    """All that is known of it, plain values; bindings alone where no batch system granted anything."""
    facts: dict[str, Any] = {
        name: environment[variable] for name, variable in _FROM_ENVIRONMENT.items() if environment.get(variable)
    }
    if "job_id" in facts:
        facts["scheduler"] = "slurm"
        facts["job"] = first(_scontrol("job", facts["job_id"]), _OF_JOB)
        facts["nodes"] = alike(_scontrol("node", facts.get("step_node_list", facts.get("node_list", ""))))
        facts["topology"] = _scontrol_text("topology")
    facts["ranks_per_node"] = per_node([one.host for one in stations])
    facts["bindings"] = bindings(stations)
    return {name: value for name, value in facts.items() if value}


def bindings(stations: Sequence[Station]) -> list[dict[str, Any]]:
    """What ranks are bound to: one entry for all ranks that are bound alike."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for rank, one in enumerate(stations):
        groups.setdefault((one.cpus, one.memory_nodes, one.rail, one.network), []).append(rank)
    return [
        {
            "ranks": ranges(ranks),
            "cpus": cpus,
            "memory_nodes": memory_nodes,
            **({"rail": rail} if rail else {}),
            **({"network": list(network)} if network else {}),
        }
        for (cpus, memory_nodes, rail, network), ranks in groups.items()
    ]


def per_node(hosts: Iterable[str]) -> str:
    """Ranks of each node, in the order of the nodes, as Slurm writes it: "8(x3),4"."""
    counts = list(Counter(hosts).values())
    runs = [(count, len(list(group))) for count, group in itertools.groupby(counts)]
    return ",".join(f"{count}(x{times})" if times > 1 else str(count) for count, times in runs)


def ranges(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 5] as "0-2,5"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def first(rows: list[dict[str, str]], names: Sequence[str]) -> dict[str, str]:
    """These facts of the first row, without those that say nothing."""
    row = rows[0] if rows else {}
    return {name: row[name] for name in names if row.get(name, "") not in _NOTHING}


def alike(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Nodes of the same make as one entry, which counts them (watts are of the first of them)."""
    groups: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], int]] = {}
    for row in rows:
        facts = first([row], _OF_NODE)
        make = tuple((name, value) for name, value in facts.items() if "atts" not in name and "oules" not in name)
        kept, count = groups.get(make, (facts, 0))
        groups[make] = (kept, count + 1)
    return [{"node_count": str(count), **facts} for facts, count in groups.values()]


def pairs(text: str) -> list[dict[str, str]]:
    """`scontrol --oneliner`: a line an entry, of Name=value pairs; values may hold spaces and further equal signs."""
    return [dict(re.findall(r"(\S+?)=(.*?)(?=\s+[A-Za-z/:]+=|\s*$)", line)) for line in text.splitlines() if line]


def _scontrol(what: str, name: str) -> list[dict[str, str]]:
    return pairs(_scontrol_text(what, name)) if name else []


def _scontrol_text(*words: str) -> str:
    """What scontrol prints; "" when there is none here (a container), or when it will not say."""
    program = shutil.which("scontrol")
    if program is None:
        return ""
    try:
        ended = subprocess.run(
            [program, "--oneliner", "show", *words], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout.strip() if ended.returncode == 0 else ""
