"""What a storm that lost a rank has left: its mark, its job, its journal. Needs no MPI: the parent asks too."""

from __future__ import annotations

from pathlib import Path

from ckptstorm.errors import PlaceError
from ckptstorm.job import Job
from ckptstorm.jobfile import from_builtins
from ckptstorm.record import files
from ckptstorm.record.record import StormRecord
from ckptstorm.storm import ground
from ckptstorm.storm.manifest import MANIFEST, Manifest


def has_planted_end(job: Job) -> bool:
    """Whether the job itself takes a rank away: then a new world is to recover."""
    return any(fault.kill or fault.stop for fault in job.fault)


def what_is_left(directory: str) -> tuple[Manifest, Job, StormRecord]:
    """The mark of a lost storm, its job, and its record as far as it goes.

    Raises:
        PlaceError: nothing of the kind is left there, or the journal is gone.
    """
    manifest = ground.read_manifest(directory)
    job = from_builtins(manifest.job, f"{directory}/{MANIFEST}")
    if not manifest.partial or not Path(manifest.partial).is_dir():
        raise PlaceError(
            f"{directory}: storm {manifest.storm_id} has no journal left ({manifest.partial or 'none was written'})",
            f"its files can only be removed: ckptstorm clean {directory}",
        )
    return manifest, job, files.load(manifest.partial)
