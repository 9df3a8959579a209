"""`ckptstorm clean`: remove what a storm left, by the names that its manifest's plan must have made."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any

from ckptstorm.errors import PlaceError
from ckptstorm.jobfile import from_builtins
from ckptstorm.load_tables import LoadTable, directory_of
from ckptstorm.loads import load_of
from ckptstorm.model.parallel import World
from ckptstorm.plan import created_files, scene_of
from ckptstorm.storm import ground, removal
from ckptstorm.storm.manifest import MANIFEST, SAVED


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a clean-up did.

    Attributes:
        directory, storm_id: where, and whose files.
        removed_count: files removed.
        left: what is still there and not ours: it was left alone.
    """

    directory: str
    storm_id: str
    removed_count: int
    left: tuple[str, ...]

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "directory": self.directory,
            "storm_id": self.storm_id,
            "removed_count": self.removed_count,
            "left": list(self.left),
        }

    def sentence(self) -> str:
        """For people."""
        left = f"; left alone, not ours: {', '.join(self.left)}" if self.left else ""
        files = "1 file" if self.removed_count == 1 else f"{self.removed_count} files"
        return f"removed {files} of storm {self.storm_id} from {self.directory}{left}"


def clean(directory: str) -> Cleaned:
    """Remove a storm's files, its step directories, its mark, and the directory if the storm made it.

    Raises:
        PlaceError: not marked, still in use, or a file cannot be removed.
    """
    manifest = ground.read_manifest(directory)
    try:
        runner = ground.running_storm(directory)
    except OSError as error:
        raise PlaceError(f"{directory}: its mark cannot be opened: {error.strerror}") from None
    if runner:
        raise PlaceError(f"{directory}: storm {manifest.storm_id} is running in it ({runner})", "stop it first")
    job = from_builtins(manifest.job, f"{directory}/{MANIFEST}")
    world = World(manifest.rank_count, manifest.rank_count)
    if job.saves:
        scene_of(job, world)  # a damaged mark's job is refused before anything is removed
    root_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    removed = 0
    try:
        for load in job.load:
            # Which node a rank was on changes no name of a load.
            removed += _clean_load(root_fd, load, World(manifest.rank_count))
        for step in manifest.steps:
            if step.startswith("step-") and removal.is_real_directory(root_fd, step):
                for rank in range(manifest.rank_count):
                    removed += removal.remove_files(root_fd, step, created_files(job, world, rank))
                for rank in range(manifest.rank_count):
                    removal.remove_directories(root_fd, step, created_files(job, world, rank))
                removal.remove_step(root_fd, step)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SAVED, dir_fd=root_fd)
        os.unlink(MANIFEST, dir_fd=root_fd)
        left = tuple(sorted(os.listdir(root_fd)))
    except OSError as error:
        raise PlaceError(f"{directory}: cannot be cleaned: {error.strerror}: {error.filename}") from None
    finally:
        os.close(root_fd)
    if not left:
        removal.remove_made(directory, manifest.made_count)
    return Cleaned(directory, manifest.storm_id, removed, left)


def _clean_load(root_fd: int, entry: LoadTable, world: World) -> int:
    """Remove what a load may have made; how many files were there."""
    home, load, removed = directory_of(entry), load_of(entry, world), 0
    if not removal.is_real_directory(root_fd, home):
        return 0
    made = [load.created(rank) for rank in range(world.rank_count)]
    for created in made:
        removed += removal.remove_files(root_fd, home, created.files)
    for created in made:
        removal.remove_named_directories(root_fd, home, created.directories)
    removal.remove_step(root_fd, home)
    return removed
