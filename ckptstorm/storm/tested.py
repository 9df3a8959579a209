"""Several directories under test in one storm: which ranks write into which, and where each file then is.

A rank writes what is its own into its own directory. Whoever reads a file goes to the directory of the rank
that wrote it, which every path of a program tells.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ckptstorm.errors import JobError, PlaceError
from ckptstorm.filesystems.mount import Mount, mount_of
from ckptstorm.job import Job
from ckptstorm.model.parallel import World
from ckptstorm.plan import Totals, created_files
from ckptstorm.program import STEP, Kind, Path, Program
from ckptstorm.storm import ground
from ckptstorm.storm.lowered import Lowered, LoweredRun
from ckptstorm.units import bytes_text

#: How ranks are dealt to directories: one by one, or all of a node together.
Spread = Literal["rank", "node"]
#: Layouts treat ranks alike, or in classes; of the first so many of a directory's ranks one must make a file.
_RANKS_LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class Tested:
    """A directory under test, and rank 0's mount of it."""

    directory: str
    mount: Mount


def index_of(rank: int, node: int, count: int, spread: Spread) -> int:
    """Which of `count` directories a rank writes into."""
    return (rank if spread == "rank" else node) % count


def located(
    stages: tuple[Lowered, ...], directories: tuple[str, ...], own: int, of_rank: Callable[[int], int], plain: int
) -> tuple[Lowered, ...]:
    """Programs whose paths lead into the directory of the rank that writes the file.

    Args:
        stages: of one rank.
        directories: all that are under test.
        own: the index of the rank's own: paths into it stay relative.
        of_rank: from a writer to the index of its directory.
        plain: where directories, and files that are only looked for, are.
    """
    if len(directories) == 1:
        return stages
    return tuple(
        replace(stage, programs=tuple(_located(one, directories, own, of_rank, plain) for one in stage.programs))
        if isinstance(stage, LoweredRun)
        else stage
        for stage in stages
    )


def _located(
    program: Program, directories: tuple[str, ...], own: int, of_rank: Callable[[int], int], plain: int
) -> Program:
    def moved(path: Path) -> Path:
        index = of_rank(path.rank) if path.size_bytes else plain
        is_elsewhere = path.directory_index == STEP and index != own
        return replace(path, directory_index=STEP + 1 + index) if is_elsewhere else path

    paths = tuple(moved(path) for path in program.paths)
    steps = tuple(f"{directory}/{program.directories[STEP]}" for directory in directories)
    return replace(program, paths=paths, directories=(*program.directories[: STEP + 1], *steps), roots=directories)


def _index(world: World, rank: int, count: int, spread: Spread) -> int:
    nodes = world.node_index
    node = rank // nodes if isinstance(nodes, int) else nodes[rank]
    return index_of(rank, node, count, spread)


def made_directories(stages: tuple[Lowered, ...]) -> frozenset[str]:
    """Directories below the step that the rank's own programs make ("" is the step itself)."""
    programs = [one for stage in stages if isinstance(stage, LoweredRun) for one in stage.programs]
    rows = [(one, int(file)) for one in programs for file in one.ops["file"][one.ops["kind"] == Kind.MKDIR]]
    return frozenset(one.paths[file].name for one, file in rows)


def check_more(
    job: Job, world: World, sums: Totals, directories: tuple[str, ...], spread: Spread
) -> tuple[Tested, ...]:
    """The directories after the first, looked at; creates nothing.

    Raises:
        JobError: the layout writes no file from the ranks of one of them.
        PlaceError: one that no storm may touch, that is named twice, or has too little space for its ranks.
    """
    directories, count = tuple(os.path.abspath(one) for one in directories), len(directories)
    if count == 1:
        return ()
    if job.load:
        raise JobError(f"{count} directories under test: loads run in one", "leave out [[load]], or name one --dir")
    if any(fault.kill or fault.stop for fault in job.fault):
        raise JobError(
            f"{count} directories under test: a recovery is of one", "leave out [[fault]], or name one --dir"
        )
    units = world.rank_count if spread == "rank" else world.node_count
    if count > units:
        raise PlaceError(
            f"{count} directories under test, and {units} {spread}{'s' if units != 1 else ''} to spread over them",
            "name fewer with --dir, or start more",
        )
    for index, directory in enumerate(directories):
        ranks = [rank for rank in range(world.rank_count) if _index(world, rank, count, spread) == index]
        if not any(created_files(job, world, rank) for rank in ranks[:_RANKS_LOOKED_AT]):
            raise JobError(
                f'--dir {directory} would get no file: layout "{job.layout.name}" makes none from its ranks'
                f" ({', '.join(str(rank) for rank in ranks[:4])}{' …' if len(ranks) > 4 else ''})",
                "name one --dir, or take a layout in which every rank writes a file",
            )
    most = sums.bytes_per_rank_most * -(-world.rank_count // count)
    found = []
    for number, directory in enumerate(directories):
        inside = [other for other in directories[:number] if f"{directory}/".startswith(f"{other}/")]
        inside += [other for other in directories[:number] if f"{other}/".startswith(f"{directory}/")]
        if inside:
            raise PlaceError(f"--dir {directory} and --dir {inside[0]} lie in one another", "name separate directories")
        if number:
            ground.inspect(directory)
        mount = mount_of(ground.nearest_directory(directory))
        if most > mount.free_bytes:
            needed = f"{bytes_text(most)} needed for its ranks, {bytes_text(mount.free_bytes)} free"
            raise PlaceError(f"--dir {directory}: not enough space: {needed}", "free some, or name another")
        found.append(Tested(directory, mount))
    return tuple(found[1:])
