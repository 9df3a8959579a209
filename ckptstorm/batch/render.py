"""From a script to its text: jinja2 over the plain files in `slurm/`, which print nothing that is not quoted."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jinja2

import ckptstorm
from ckptstorm.batch import quoting
from ckptstorm.batch.script import Script
from ckptstorm.batch.sitefile import launcher_of, slurm_folder
from ckptstorm.clock import NS_PER_S
from ckptstorm.errors import JobError
from ckptstorm.units import MIB

#: The template of each batch system, and how a value is quoted in its directives.
TEMPLATES = {
    "slurm": ("slurm.sh.j2", quoting.slurm_directive),
    "pbs": ("pbs.sh.j2", quoting.pbs_directive),
    "flux": ("flux.sh.j2", quoting.flux_directive),
}


def render(script: Script) -> str:
    """The batch script.

    Raises:
        JobError: a value that a directive of this batch system cannot carry, or a shape that it has no template for.
    """
    site = script.site
    if script.asked.shape != "storm" and site.scheduler != "slurm":
        raise JobError(
            f"the template for {site.scheduler} runs one storm: it knows neither --sweep nor --split",
            "render one script for each storm",
        )
    name, directive = TEMPLATES[site.scheduler]
    environment = _environment(directive)
    template = environment.get_template(name)
    lead_s = site.allocation.signal_before // NS_PER_S
    if lead_s >= script.limit.minutes * 60:
        raise JobError(
            f"[allocation] signal_before = {lead_s} s: the time limit is {script.limit.minutes} min",
            "the storm is told before its limit: a shorter signal_before, or more time",
        )
    return template.render(
        script=script,
        site=site,
        allocation=site.allocation,
        launch=site.launch,
        launcher=launcher_of(site),
        software=site.software,
        container=site.container,
        memory_mib=-(-int(site.allocation.memory or 0) // MIB),
        signal_seconds=int(lead_s),
        run_seconds=max(script.limit.minutes * 60 - int(lead_s), 60),
        walltime=quoting.pbs_directive(f"{script.limit.minutes // 60:02d}:{script.limit.minutes % 60:02d}:00"),
        version=quoting.comment(ckptstorm.__version__),
    )


@lru_cache(maxsize=4)
def _environment(directive: Any) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(slurm_folder())),
        undefined=jinja2.StrictUndefined,
        comment_start_string="{%#",  # bash has ${#array[@]}
        comment_end_string="#%}",
        finalize=_only_quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # shell, not HTML: `finalize` refuses what no filter has quoted
    )
    environment.filters |= {"word": quoting.shell, "directive": directive, "comment": quoting.comment}
    return environment


def _only_quoted(value: object) -> object:
    """What a template prints: numbers and quoted text; anything else is a mistake of the template."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number or isinstance(value, quoting.Quoted):
        return value
    raise TypeError(f"a template prints {value!r} without a filter that quotes it")
