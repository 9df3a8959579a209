"""Several nodes on one machine for mpiexec: each with its own host name, each seeing its own client at one path."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

_LAUNCHER = """#!/bin/bash
# Called by Hydra as: launcher HOST COMMAND...  Ranks of HOST get its name, and its own client at the common path.
host=$1; shift
case $host in
{cases}
esac
exec unshare --uts --mount bash -c 'hostname "$0"; [ -z "$1" ] || mount --bind "$1" "$2"; exec bash -c "$3"' \\
  "$host" "$client" {at} "$*"
"""


def mpiexec_arguments(place: Path, clients: Sequence[Path | None], at: Path, ranks_per_node: int) -> list[str]:
    """What mpiexec needs to start ranks on one node a client.

    Args:
        place: a folder for the launcher script.
        clients: each node's own mount of the file system; None: what `at` is anyway.
        at: an existing directory, where every node sees its own client.
        ranks_per_node: as it says.

    Returns:
        Arguments, up to and with "-n N". Hosts are named 127.0.0.2 and up: loopback, and no local host to Hydra.
    """
    hosts = [f"127.0.0.{number + 2}" for number in range(len(clients))]
    cases = "\n".join(
        f"  {host}) client={shlex.quote(str(c or ''))} ;;" for host, c in zip(hosts, clients, strict=True)
    )
    script = place / "on_node"
    script.write_text(_LAUNCHER.format(cases=cases, at=shlex.quote(str(at))))
    script.chmod(0o755)
    at.mkdir(exist_ok=True)
    listed = ",".join(f"{host}:{ranks_per_node}" for host in hosts)
    launcher = ["-launcher", "rsh", "-launcher-exec", str(script)]
    return ["-hosts", listed, *launcher, "-n", str(ranks_per_node * len(clients))]
