"""Where every process begins: as a rank when a launcher started it, else as the command line.

Ranks other than 0 import neither the command line nor the report: a thousand ranks importing a
large package from a shared file system are a metadata storm of their own.
"""

from __future__ import annotations

import os
import sys

from ckptstorm.cluster.launched import check_world, launched_rank, launched_size
from ckptstorm.errors import EXIT_LOST_RANK, LaunchError, StormError

TYPE_CHECKING = False  # the name that type checkers know, without importing typing
if TYPE_CHECKING:
    from typing import NoReturn

    from mpi4py.MPI import Intracomm

    from ckptstorm.cluster.comm import Cluster


def main() -> NoReturn:
    """The entry of `ckptstorm` and of `python -m ckptstorm`."""
    if launched_rank(os.environ) is not None:
        sys.exit(_as_rank(sys.argv[1:]))
    from ckptstorm import cli

    sys.exit(cli.main(sys.argv[1:]))


def _as_rank(arguments: list[str]) -> int:
    """One rank's whole life; a rank that raises ends the storm for all, by name."""
    from mpi4py import MPI  # MPI first: the other ranks wait for this one as soon as they are up

    from ckptstorm.cluster.comm import Cluster

    world = MPI.COMM_WORLD
    try:
        check_world(world.size, launched_size(os.environ), os.environ)
        cluster = Cluster(world)
        exit_code = _conduct(cluster, arguments) if cluster.rank == 0 else _serve(cluster)
    except LaunchError as error:  # a world of singletons: only the first one speaks
        if launched_rank(os.environ) == 0:
            sys.stderr.write("".join(f"ckptstorm: {line}\n" for line in error.lines()))
        exit_code = error.exit_code
    except StormError as error:  # the ranks cannot meet any more
        sys.stderr.write("".join(f"ckptstorm: {line}\n" for line in error.lines()))
        _abort(world, error.exit_code)
    except BaseException:  # noqa: BLE001 - the one place that ends the storm for a bug in the tool itself
        import traceback

        sys.stderr.write(
            f"ckptstorm: rank {world.rank} on {MPI.Get_processor_name()} raised:\n{traceback.format_exc()}"
        )
        _abort(world, EXIT_LOST_RANK)
    # Finalised here, so that `python -m mpi4py` does not take an exit code for a failure and abort.
    sys.stdout.flush()
    MPI.Finalize()
    return exit_code


def _abort(world: Intracomm, exit_code: int) -> None:
    """End all ranks; a launcher may drop what it has not passed on yet, so it gets a moment."""
    import time

    sys.stderr.flush()
    time.sleep(0.3)
    world.Abort(exit_code)


#: What every rank needs: read from disk by rank 0 alone.
_NEEDED = (
    "numpy.ma",  # numpy.unique looks at it, in some version of NumPy or other
    "ckptstorm.storm.session",
)


def _conduct(cluster: Cluster, arguments: list[str]) -> int:
    from ckptstorm.cluster.imports import share

    share(cluster, _NEEDED)
    from ckptstorm import cli
    from ckptstorm.storm.session import end

    exit_code = cli.main(arguments, cluster)
    end(cluster, exit_code)
    return exit_code


def _serve(cluster: Cluster) -> int:
    from ckptstorm.cluster.imports import share

    share(cluster, _NEEDED)
    from ckptstorm.storm.session import serve

    return serve(cluster)


if __name__ == "__main__":
    main()
