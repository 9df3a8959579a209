"""Traffic that is not a checkpoint: one file a kind of load, one line here. Pure: from a table to op tables."""

from __future__ import annotations

from ckptstorm.errors import JobError
from ckptstorm.load_tables import LoadTable, RandomLoad, kind_of, name_of
from ckptstorm.loads.contract import Load
from ckptstorm.loads.schedule import check_beside, endless
from ckptstorm.model.parallel import World
from ckptstorm.registry import Entry, find

LOADS: dict[str, Entry] = {
    "random": Entry(
        "ckptstorm.loads.random_io:RandomIo",
        "reads and writes of pieces of files: by permutation, by lot, zipf, with gaps",
        "fio(1): its access patterns",
    ),
    "metadata": Entry(
        "ckptstorm.loads.metadata:Metadata",
        "files made, looked at, listed, renamed, locked, removed: in phases, as a mix, as a flow",
        "mdtest's phases, filebench's flows, POSIX.1-2017 for each action",
    ),
}


def load_of(table: LoadTable, world: World) -> Load:
    """A load of a job on this world, checked.

    Raises:
        JobError: names the load, the key and what to do.
    """
    kind = find("load", LOADS, kind_of(table))
    _check_common(table, world)
    if table.when == "beside":
        check_beside(table, world)
        table = endless(table)
    load: Load = kind(table, world)
    load.check()
    return load


def check_loads(tables: tuple[LoadTable, ...], world: World) -> None:
    """Refuse what no load can be, alone or together with the others.

    Raises:
        JobError: as `load_of`; or two loads have one name.
    """
    names = [name_of(table) for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise JobError(
                f'[[load]] there are two of the name "{name}"', 'give each its own: name = "reads", name = "listing" …'
            )
    for table in tables:
        load_of(table, world)


def _check_common(table: LoadTable, world: World) -> None:
    where = f"[[load]] {name_of(table)}"
    if table.rate is not None and not isinstance(table, RandomLoad) and table.rate.unit == "bytes":
        raise JobError(f"{where} rate: a metadata load counts actions, not bytes", 'write it as rate = "1000/s"')
    for rank in table.ranks if table.ranks != "all" else ():
        if rank >= world.rank_count:
            raise JobError(f"{where} ranks: there is no rank {rank}: ranks are 0 to {world.rank_count - 1}")
    if table.ranks == ():
        raise JobError(f"{where} ranks = []: nobody runs it", 'allowed: "all", or a list of ranks')
    if table.ramp and table.duration is None:
        raise JobError(f"{where} ramp: means something beside `duration` only", "leave it out")
    if table.duration is not None and table.duration == 0:
        raise JobError(f"{where} duration: no time at all", 'allowed: "1s" and longer')
