"""Metadata: files made, looked at, listed, renamed, locked, removed; in phases, as a mix, or as a flow.

In `phases` every action goes over all files of a rank before the next one begins, as mdtest does; `mix` and
`flow` (loads/sequence.py) draw or repeat actions, as filebench does.
"""

from __future__ import annotations

import errno
import hashlib
from dataclasses import replace

import numpy as np

from ckptstorm.errors import JobError
from ckptstorm.load_tables import MetadataLoad, name_of
from ckptstorm.loads import actions, sequence
from ckptstorm.loads.actions import Action, Targets
from ckptstorm.loads.contract import (
    HOMELESS,
    Created,
    Footprint,
    Stage,
    Thread,
    Uncounted,
    members,
    other_node,
    takes_part,
)
from ckptstorm.loads.places import Places, directory_count
from ckptstorm.loads.sizing import draw_sizes
from ckptstorm.loads.standing import Standing, names_of, walk
from ckptstorm.model.parallel import World
from ckptstorm.program import OP_DTYPE, STEP, Int64s, Kind, Ops, Path, Program, op, table
from ckptstorm.steps import Meet

#: Leads that change which names there are: always a rank's own files.
_OWN = ("create", "rename", "link", "delete", "mkdir", "rmdir")
#: A name costs this much of a rank's memory: a Python object, its text, and the engine's copy of it.
_NAME_BYTES = 300


class Metadata:
    """See the module's docstring; `contract.Load`."""

    is_kept = False

    def __init__(self, load: MetadataLoad, world: World) -> None:
        self._load, self._world = load, world
        self._members = members(load, world)
        self._where = f"[[load]] {name_of(load)}"
        words = load.phases or load.flow or tuple(load.mix)
        self._actions = tuple(actions.parse(word, self._where) for word in words)
        self._paths: dict[tuple[int, str], tuple[Path, ...]] = {}
        self._standings = walk(self._actions, self._where) if load.phases else (Standing(is_made=True),)
        self._is_prepared = self._standings[0].is_made

    def check(self) -> None:
        """See `contract.Load.check`."""
        load = self._load
        given = [key for key in ("phases", "mix", "flow") if getattr(load, key)]
        if len(given) != 1:
            raise JobError(
                f"{self._where}: exactly one of phases, mix and flow is needed, found {', '.join(given) or 'none'}",
                'phases = ["create", "stat", "delete"], or mix = { stat = 60, create = 40 }, or flow = ["open+read"]',
            )
        if load.phases and (load.duration is not None or load.count is not None):
            raise JobError(
                f"{self._where}: phases end when all files were visited: duration and count mean nothing",
                "leave both out",
            )
        if not load.phases and (load.duration is None) == (load.count is None):
            raise JobError(f"{self._where}: exactly one of duration and count is needed beside {given[0]}")
        if load.threads > load.items:
            raise JobError(f"{self._where} threads = {load.threads}: there are only {load.items} files a rank")
        if load.contended and not any(action.locks for action in self._actions):
            raise JobError(
                f"{self._where} contended = true: no action takes a lock", 'take "open+flock" or "open+lock"'
            )
        if load.of == "other-node" and self._world.node_count < 2:
            raise JobError(f'{self._where} of = "other-node" needs two nodes; there is one', 'set of = "own"')
        if load.of == "other-node" and (load.mix or load.flow):
            raise JobError(f'{self._where} of = "other-node": for phases only; a mix has files of its own')
        directory_count(load)

    # ---- names -------------------------------------------------------------------------------------------

    def _places(self, rank: int) -> Places:
        return Places(self._load, rank, self._name_count)

    @property
    def _name_count(self) -> int:
        """Names of a rank: a mix or a flow that creates needs as many again to create."""
        return self._load.items * (1 if self._load.phases or not self._makes else 2)

    @property
    def _makes(self) -> bool:
        return any(action.lead == "create" for action in self._actions)

    @property
    def _logs(self) -> bool:
        return any(action.lead == "log" for action in self._actions)

    def _forms(self) -> tuple[str, ...]:
        """The kinds of names that files may have had."""
        leads = {action.lead for action in self._actions}
        extra = {"rename": "renamed", "link": "link"}
        return ("file", *(form for lead, form in extra.items() if lead in leads))

    def created(self, rank: int) -> Created:
        """See `contract.Load.created`."""
        if not takes_part(self._load, rank):
            return Created()
        places = self._places(rank)
        is_first = rank == self._members[0]
        files = [places.name(item, form) for form in self._forms() for item in range(self._name_count)]
        if self._load.contended and is_first:
            files.append(sequence.LOCK_NAME)
        if self._logs:
            files.append(places.log.name)
        trees = places.directories if self._load.directory == "own" or is_first else ()
        own = [directory for directory in trees if directory]
        if any(action.lead == "mkdir" for action in self._actions):
            own += [places.name(item, "directory") for item in range(self._name_count)]
        return Created(tuple(files), tuple(own))

    def _sizes(self, rank: int) -> Int64s:
        """Of each name's file when it is made."""
        return draw_sizes(self._load.size, self._name_count, self._rng(rank, "sizes"))

    def _rng(self, rank: int, what: str) -> np.random.Generator:
        seed = f"{name_of(self._load)}/{self._load.seed}/{rank}/{what}".encode()
        return np.random.default_rng(int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "little"))

    # ---- before ------------------------------------------------------------------------------------------

    def prepare(self, rank: int) -> Uncounted:
        """The tree; and the files, where the first phase finds them there."""
        if not takes_part(self._load, rank):
            return Uncounted(((), Meet("barrier", "directories made"), ()))
        trees = [name for name in self._places(rank).directories if name]
        makes_tree = self._load.directory == "own" or rank == self._members[0]
        rows = [op(Kind.MKDIR, index, length_bytes=0o777, expect=errno.EEXIST) for index in range(len(trees))]
        tree = Program(table(rows), tuple(Path(STEP, name) for name in trees), HOMELESS)
        first: tuple[Program, ...] = (tree,) if makes_tree and trees else ()
        if self._load.contended and rank == self._members[0]:
            lock = actions.rows(Action("create", "create"), _targets(np.zeros(1, dtype=np.int64)))
            first += (Program(lock.reshape(-1), (Path(STEP, sequence.LOCK_NAME),), HOMELESS),)
        files: tuple[Program, ...] = ()
        if self._is_prepared:
            create = Action("create+write", "create", ("write",))
            files = tuple(
                self._phase_program(rank, create, Standing(), items)[0] for items in self._dealt() if len(items)
            )
        return Uncounted((first, Meet("barrier", "directories made"), files))

    def _dealt(self) -> list[Int64s]:
        """The files of a rank, dealt to its threads."""
        return [
            np.array(part, dtype=np.int64) for part in np.array_split(np.arange(self._load.items), self._load.threads)
        ]

    # ---- stages ------------------------------------------------------------------------------------------

    def stage_count(self) -> int:
        """One a phase; one of a mix or a flow."""
        return len(self._load.phases) or 1

    def stage(self, rank: int, index: int, done: tuple[int, ...] = ()) -> Stage:
        """See `contract.Load.stage`."""
        name = name_of(self._load)
        if not self._load.phases:
            words = (*actions.counted_words(self._actions), sequence.RESET)
            blank = Stage(name, words, duration_ns=int(self._load.duration or 0), ramp_ns=int(self._load.ramp))
            if not takes_part(self._load, rank):
                return blank
            return replace(blank, threads=tuple(self._sequence(rank, items) for items in self._dealt()))
        action, standing = self._actions[index], self._standings[index]
        stage = Stage(self._stage_name(index), (action.word,))
        if not takes_part(self._load, rank):
            return stage
        threads = tuple(self._phase(rank, action, standing, items) for items in self._dealt_to(action))
        return replace(stage, threads=threads)

    def _stage_name(self, index: int) -> str:
        """ "stat, stat" are two phases of one word: rounds of one must not be mixed with another's."""
        words = [action.word for action in self._actions[: index + 1]]
        again = words.count(words[-1])
        return f"{name_of(self._load)} {words[-1]}" + (f" {again}" if again > 1 else "")

    def _dealt_to(self, action: Action) -> list[Int64s]:
        if action.lead != "list":
            return self._dealt()
        count = directory_count(self._load)
        return [np.arange(thread, count, self._load.threads) for thread in range(self._load.threads)]

    def _phase(self, rank: int, action: Action, standing: Standing, items: Int64s) -> Thread:
        program, leads = self._phase_program(rank, action, standing, items)
        count = len(program.ops)
        return Thread(program, 0, count, np.zeros(count, dtype=np.uint8), leads, count or None)

    def _phase_program(
        self, rank: int, action: Action, standing: Standing, items: Int64s
    ) -> tuple[Program, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """The action on these files (or directories), and where each begins."""
        source = rank if action.lead in _OWN else self._source(rank)
        places = self._places(source)
        if action.lead == "list":
            return self._listing(places, action, standing, items)
        form, other = names_of(action.lead, standing)
        paths = [*self._named(source, form, items), *(self._named(source, other, items) if other else ())]
        sizes = self._sizes(source)[items]
        targets = replace(_targets(np.arange(len(items))), size_bytes=sizes, other=np.arange(len(items)) + len(items))
        if action.locks:
            targets = replace(targets, lock_offset=rank)
            if self._load.contended:
                targets = replace(targets, lock_file=len(paths), lock_offset=0)
                paths.append(Path(STEP, sequence.LOCK_NAME))
        if action.lead == "log":
            targets = replace(targets, log_file=len(paths))
            paths.append(places.log)
        if "append" in action.parts:
            targets = replace(
                targets, append_bytes=draw_sizes(self._load.append, len(items), self._rng(rank, "append"))
            )
        ops = actions.rows(action, targets)
        leads = np.zeros(ops.shape, dtype=np.bool_)
        leads[:, 0] = True
        return Program(ops.reshape(-1), tuple(paths), HOMELESS), leads.reshape(-1)

    def _named(self, rank: int, form: str, items: Int64s) -> tuple[Path, ...]:
        """The files under these names; made once for all phases."""
        key = (rank, form)
        if key not in self._paths:
            places, sizes = self._places(rank), self._sizes(rank).tolist()
            self._paths[key] = tuple(places.path(item, form, sizes[item]) for item in range(self._name_count))
        return self._paths[key][int(items[0]) : int(items[-1]) + 1] if len(items) else ()

    def _listing(
        self, places: Places, action: Action, standing: Standing, directories: Int64s
    ) -> tuple[Program, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """Each directory listed; with "+stat" each of the rank's files in it looked at, as `ls -l` does."""
        paths = [Path(STEP, places.directories[int(index)]) for index in directories]
        rows: list[Ops] = []
        for number, directory in enumerate(directories.tolist()):
            inside = range(directory, self._load.items, len(places.directories)) if action.parts else range(0)
            ops: Ops = np.zeros(1 + len(inside), dtype=OP_DTYPE)
            ops["kind"], ops["file"][1:] = Kind.STAT, len(paths) + np.arange(len(inside))
            ops[0] = op(Kind.READDIR, number)
            paths += [places.path(item, standing.form, 0) for item in inside]
            rows.append(ops)
        whole = np.concatenate(rows) if rows else np.zeros(0, dtype=OP_DTYPE)
        return Program(whole, tuple(paths), HOMELESS), whole["kind"] == Kind.READDIR

    def _source(self, rank: int) -> int:
        """Whose files are looked at: a node's ranks take turns with those of the next node."""
        if self._load.of == "own":
            return rank
        return other_node(self._world, self._members, rank)

    def _sequence(self, rank: int, items: Int64s) -> Thread:
        return sequence.thread(self._load, self._actions, self._places(rank), self._sizes(rank), items)

    # ---- counts ------------------------------------------------------------------------------------------

    def footprint(self) -> Footprint:
        """See `contract.Load.footprint`."""
        load, ranks = self._load, len(self._members)
        trees = directory_count(load) * (ranks if load.directory == "own" else 1)
        names = self._name_count * len(self._forms())
        if any(action.lead == "mkdir" for action in self._actions):
            names += self._name_count
        most = max(load.size.most_bytes, load.append.most_bytes)
        listed = directory_count(load)
        stages = [
            (self._stage_name(index), (listed if action.lead == "list" else load.items) * ranks)
            for index, action in enumerate(self._actions if load.phases else ())
        ]
        return Footprint(
            int(self._name_count * ranks * load.size.mean_bytes),
            (names + self._logs) * ranks + trees,
            4 * most * load.threads,
            names * _NAME_BYTES + 8 * load.items * OP_DTYPE.itemsize,
            tuple(stages) or ((name_of(load), (load.count or 0) * load.threads * ranks),),
        )


def _targets(file: Int64s) -> Targets:
    none = np.zeros(len(file), dtype=np.int64)
    return Targets(file, none, none, none, none)
