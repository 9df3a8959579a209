"""A real Slurm on this machine: munge, slurmctld, and some slurmd as emulated nodes, all below one directory.

Every node lives in a UTS and a mount namespace of its own: it has its own host name, and its own
/etc/hosts, so that any MPI's launcher finds the others. Ports are free ones, names carry the process
id, and `stop` ends what was started, by its pid files: several test runs may do this at once.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.require import missing

#: Debian's slurmctld, slurmd, slurm-client and munge have these.
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "unshare")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
#: Far above what a start takes (half a second).
_PATIENCE_S = 30.0


@dataclass
class Slurm:
    """A running cluster.

    Attributes:
        home: everything of it is below; removed at the end.
        node_names: the emulated nodes, which are their host names too.
        environment: what its commands need.
    """

    home: Path
    node_names: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, *words: str, check: bool = True, **more: str) -> str:
        """Run a client command (`sbatch`, `squeue` …); returns what it printed, without the last line end."""
        ended = subprocess.run(
            words, env=self.environment | more, capture_output=True, text=True, timeout=_PATIENCE_S * 3, check=False
        )
        if check and ended.returncode:
            raise AssertionError(f"{shlex.join(words)} ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
        return ended.stdout.rstrip("\n")

    def is_queued(self, job: str) -> bool:
        """Whether the job waits or runs (a finished one leaves the queue at once)."""
        return bool(self.command("squeue", "-h", "-j", job, "-o", "%T", check=False).strip())

    def wait(self, job: str, patience_s: float = 90.0) -> str:
        """Until the job has left the queue; returns its last state ("COMPLETED")."""
        limit = time.monotonic() + patience_s
        while self.is_queued(job):
            assert time.monotonic() < limit, self.command("scontrol", "show", "job", job, check=False)
            time.sleep(0.1)
        return self.state(job)

    def state(self, job: str) -> str:
        """JobState of a job that Slurm still remembers (five minutes here)."""
        return self.facts(job).get("JobState", "UNKNOWN")

    def resume(self, node: str) -> None:
        """Bring a node that was taken out back, and wait until it can work again."""
        limit = time.monotonic() + _PATIENCE_S
        while self.command("sinfo", "-h", "-n", node, "-o", "%t", check=False) not in ("idle", "alloc", "mix"):
            assert time.monotonic() < limit, self.command("scontrol", "show", "node", node, check=False)
            self.command("scontrol", "update", f"nodename={node}", "state=resume", check=False)
            time.sleep(0.1)

    def task_pids(self, job: str) -> list[int]:
        """The ranks of a job: processes that srun started as a task (not the batch script, nor their children)."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                words = dict(word.split(b"=", 1) for word in path.read_bytes().split(b"\0") if b"=" in word)
                is_ours = words.get(b"SLURM_CONF") == self.environment["SLURM_CONF"].encode()
                is_task = words.get(b"SLURM_TASK_PID") == path.parent.name.encode() and b"PMI_RANK" in words
                if is_ours and is_task and words.get(b"SLURM_JOB_ID") == job.encode():
                    found.append(int(path.parent.name))
        return found

    def facts(self, job: str) -> dict[str, str]:
        """`scontrol show job` as pairs."""
        words = self.command("scontrol", "show", "job", "-o", job, check=False).split()
        return dict(word.split("=", 1) for word in words if "=" in word)


@contextlib.contextmanager
def slurm(
    node_count: int = 4, cpus: int = 4, node_setups: Mapping[str, str] | None = None, settings: str = ""
) -> Iterator[Slurm]:
    """A cluster of emulated nodes, up for the time of the `with`.

    Args:
        node_count: nodes n1, n2 …
        cpus: that each one claims to have.
        node_setups: shell lines that run in a node's namespaces before its slurmd ("n1": "mount --bind …").
        settings: more lines of slurm.conf.
    """
    _require()
    home = Path(tempfile.mkdtemp(prefix="ckptstorm-slurm-", dir="/tmp"))
    names = tuple(f"n{index}" for index in range(1, node_count + 1))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PMI"))}
    environment |= {"SLURM_CONF": str(home / "slurm.conf"), "PATH": _PATH}
    cluster = Slurm(home, names, environment)
    try:
        _start(cluster, cpus, node_setups or {}, settings)
        yield cluster
    finally:
        _stop(home)
        shutil.rmtree(home, ignore_errors=True)


def _require() -> None:
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        missing("slurm", f"no {', '.join(absent)}: apt-get install slurmctld slurmd slurm-client munge")
    if os.geteuid() != 0:
        missing("slurm", "emulated nodes need root, for namespaces")
    if subprocess.run(["unshare", "-u", "-m", "true"], capture_output=True, check=False).returncode:
        missing("slurm", "this machine lets nobody make namespaces")


def _start(cluster: Slurm, cpus: int, node_setups: Mapping[str, str], settings: str) -> None:
    home = cluster.home
    for name in ("state", "log", "munge"):
        (home / name).mkdir()
    home.chmod(0o755)
    (home / "munge").chmod(0o700)
    (home / "munge/key").write_bytes(os.urandom(1024))
    (home / "munge/key").chmod(0o400)
    (home / "slurm.conf").write_text(_configuration(cluster, cpus) + settings)
    host = socket.gethostname()
    (home / "hosts").write_text(f"127.0.0.1 localhost {host} {' '.join(cluster.node_names)}\n")
    munge = home / "munge"
    _run(
        cluster,
        f"munged --force --key-file={munge}/key --socket={munge}/sock --pid-file={munge}/munged.pid"
        f" --log-file={munge}/log --seed-file={munge}/seed",
    )
    _run(cluster, f"slurmctld -f {home}/slurm.conf -c")
    for name in cluster.node_names:
        (home / f"spool-{name}").mkdir()
        (home / f"tmp-{name}").mkdir()
        lines = [f"hostname {name}", f"mount --bind {home}/hosts /etc/hosts", node_setups.get(name, "")]
        lines.append(f"exec slurmd -f {home}/slurm.conf -N {name}")
        _run(cluster, f"unshare -u -m bash -ec {shlex.quote(chr(10).join(lines))}")
    limit = time.monotonic() + _PATIENCE_S
    while cluster.command("sinfo", "-h", "-t", "idle", "-o", "%D", check=False) != str(len(cluster.node_names)):
        assert time.monotonic() < limit, cluster.command("sinfo", "-N", "-l", check=False)
        time.sleep(0.05)


def _run(cluster: Slurm, line: str) -> None:
    ended = subprocess.run(
        ["bash", "-c", f"exec {line}"],
        env=cluster.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_PATIENCE_S,
        check=False,
    )
    logs = "".join(path.read_text(errors="replace")[-2000:] for path in (cluster.home / "log").glob("*"))
    assert ended.returncode == 0, f"{line} ended with {ended.returncode}\n{logs}"


def _configuration(cluster: Slurm, cpus: int) -> str:
    home, host = cluster.home, socket.gethostname().split(".")[0]
    control, *daemons = _free_ports(1 + len(cluster.node_names))
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
        for name, port in zip(cluster.node_names, daemons, strict=True)
    )
    return f"""ClusterName=ckptstorm
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
AuthType=auth/munge
AuthInfo=socket={home}/munge/sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
TmpFS={home}/tmp-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/log/slurmctld.log
SlurmdLogFile={home}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,defer
MpiDefault=pmi2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=300
SlurmctldTimeout=60
SlurmdTimeout=60
NodeName=DEFAULT CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=4000
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now (all held at once, so that they differ)."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _stop(home: Path) -> None:
    """End what was started, steps of jobs first, in the reverse order of the start."""
    ours = [*sorted(home.glob("slurmd-*.pid")), home / "slurmctld.pid", home / "munge/munged.pid"]
    pids = [int(text) for path in ours if path.exists() and (text := path.read_text().strip()).isdigit()]
    for pid in [*_steps(home), *pids]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    limit = time.monotonic() + 10
    while any(_lives(pid) for pid in pids) and time.monotonic() < limit:
        time.sleep(0.05)
    for pid in [*_steps(home), *pids]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _steps(home: Path) -> list[int]:
    """Processes of jobs of this cluster that are still there: they know its configuration."""
    wanted, found = f"SLURM_CONF={home}/slurm.conf".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0") and path.parent.name != str(os.getpid()):
                found.append(int(path.parent.name))
    return found
