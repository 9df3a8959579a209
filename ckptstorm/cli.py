"""The command line: it finds the verb, calls it, and knows every exit code. The verbs are in `verbs`, one file each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

import ckptstorm
from ckptstorm.errors import EXIT_INTERRUPTED, EXIT_LOST_RANK, EXIT_MET, EXIT_REFUSED, StormError
from ckptstorm.registry import Entry
from ckptstorm.verbs.group import TableGroup
from ckptstorm.verbs.printing import drop_output

if TYPE_CHECKING:
    from ckptstorm.cluster.comm import Cluster

#: What can be asked, in the order of a storm's life. A verb is imported when it is called.
VERBS = {
    "run": Entry("ckptstorm.verbs.run:run", "Run a storm: a job file, or the name of one of `list jobs`."),
    "plan": Entry("ckptstorm.verbs.plan:plan", "What a storm would write and read, without a disk."),
    "check": Entry("ckptstorm.verbs.check:check", "Would this storm run here, on every node?"),
    "sbatch": Entry("ckptstorm.verbs.sbatch:sbatch", "A batch script for a job on a site; submit it, wait for it."),
    "pack": Entry("ckptstorm.verbs.pack:pack", "This environment as one archive, for compute nodes."),
    "sweep": Entry("ckptstorm.verbs.sweep:sweep", "The same storm at several sizes, inside one allocation."),
    "report": Entry("ckptstorm.verbs.report:report", "Show a result folder."),
    "compare": Entry("ckptstorm.verbs.compare:compare", "Is it better or worse than before, or can it not be told?"),
    "size": Entry("ckptstorm.verbs.size:size", "How often to save, what it costs, and what bandwidth would do."),
    "export": Entry("ckptstorm.verbs.export:export", "In another form: tables, traces, metrics, a copy for strangers."),
    "import": Entry("ckptstorm.verbs.importing:import_", "What other tools wrote, as ours."),
    "recover": Entry("ckptstorm.verbs.recover:recover", "After a lost rank: what could training go on from?"),
    "clean": Entry("ckptstorm.verbs.clean:clean", "Remove exactly the files that a storm left."),
    "list": Entry("ckptstorm.verbs.list:list_", "What there is: engines, layouts, loads, models, jobs …"),
}


def main(arguments: Sequence[str], cluster: Cluster | None = None) -> int:
    """Run one command line; returns the exit code (README). `cluster` is given on rank 0 of a started world."""
    try:
        # Not by `commands.main`: that takes a reader of our output who went away for a failure.
        with commands.make_context("ckptstorm", list(arguments), obj=cluster) as context:
            return int(commands.invoke(context) or EXIT_MET)
    except click.exceptions.Exit as asked:  # --help, --version
        return asked.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_REFUSED
    except (click.exceptions.Abort, KeyboardInterrupt, EOFError):
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away: no failure of the storm
        drop_output()
        return EXIT_MET
    except StormError as error:
        if cluster is not None and error.exit_code == EXIT_LOST_RANK:
            raise
        for line in error.lines():
            click.echo(f"ckptstorm: {line}", err=True)
        return error.exit_code


@click.group(
    cls=TableGroup, table=VERBS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(ckptstorm.__version__, prog_name="ckptstorm")
def commands() -> None:
    """Every GPU of a cluster saves its checkpoint at once; then all restore. What happens?

    \b
    ckptstorm run laptop --ranks 4          a storm on this machine
    srun -n 512 ckptstorm run JOB           under a launcher, it joins
    ckptstorm plan JOB --ranks 16384        what would be written, without writing

    Exit codes: 0 met and valid; 1 a limit missed or the record invalid; 2 the job, the command
    line or the place is wrong; 3 the storage failed; 4 a rank was lost; 130 interrupted.
    """
