"""Mixes and flows: actions drawn by weight, or repeated in order, as one lap of a ring that ends as it began.

The files at hand change while a thread makes and removes some, so a lap is played through once in memory: which
file each action takes, under which name, how large it is by then. At its end the lap undoes what is left of it
(what it made is removed, what it removed is made), so that the next one finds the files as the first one did.
These undoings are counted as an action of their own, `reset`, and no other one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ckptstorm.load_tables import MetadataLoad, name_of
from ckptstorm.loads import actions
from ckptstorm.loads.actions import Action, Targets
from ckptstorm.loads.contract import HOMELESS, Thread
from ckptstorm.loads.places import Places
from ckptstorm.loads.sizing import draw_sizes
from ckptstorm.program import OP_DTYPE, STEP, Int64s, Ops, Path, Program

#: The word of what a lap undoes.
RESET = "reset"
#: Actions of a lap: a second's work of a fast client.
LAP_ACTIONS = 16384
LOCK_NAME = "locks"
_CREATE_FULL = Action("create+write", "create", ("write",))
_CUT = Action("open+cut", "open", ("cut",))
_DELETE, _RENAME, _RMDIR = (Action(word, word) for word in ("delete", "rename", "rmdir"))
_FORMS = ("file", "renamed", "link", "directory", "absent")


@dataclass(frozen=True, slots=True)
class _Step:
    """One action on one name: what `Targets` needs of it."""

    action: Action
    counted_as: int
    file: int
    other: int
    directory: int
    size: int
    append: int


@dataclass(slots=True)
class _Pool:
    """Numbers that can be drawn, added and removed at no cost."""

    members: list[int]
    place: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.place = {member: at for at, member in enumerate(self.members)}

    def add(self, member: int) -> None:
        self.place[member] = len(self.members)
        self.members.append(member)

    def remove(self, member: int) -> None:
        at, last = self.place.pop(member), self.members.pop()
        if last != member:
            self.members[at], self.place[last] = last, at


class _Play:
    """One lap of one thread, played through: files are numbered from 0, the first half of them there at the start."""

    def __init__(self, load: MetadataLoad, acts: tuple[Action, ...], sizes: Int64s, start_count: int) -> None:
        self.steps: list[_Step] = []
        words = actions.counted_words(acts)
        self._load, self._actions, self._reset = load, acts, len(words)
        self._counted_as = [words.index(action.word) for action in acts]
        self._sizes, self._start_count, self._count = sizes.tolist(), start_count, len(sizes)
        self._length = list(self._sizes)
        self._is_renamed, self._is_linked = [False] * self._count, [False] * self._count
        self._present, self._absent = _Pool(list(range(start_count))), _Pool(list(range(start_count, self._count)))
        self._made, self._unmade = _Pool([]), _Pool(list(range(self._count)))
        self._lots: list[float] = []

    def lap(self, rng: np.random.Generator, count: int) -> None:
        """So many actions, then what undoes them."""
        self._lots = rng.random(3 * count + 64).tolist()
        appends = draw_sizes(self._load.append, count, rng).tolist()
        for number in self._order(rng, count):
            self._act(self._actions[number], self._counted_as[number], appends.pop())
        self._undo()

    def _order(self, rng: np.random.Generator, count: int) -> list[int]:
        if self._load.flow:
            return (list(range(len(self._actions))) * (count // len(self._actions) + 1))[:count]
        weights = np.array([self._load.mix[word] for word in self._load.mix])
        return [int(number) for number in rng.choice(len(weights), count, p=weights / weights.sum())]

    def _draw(self, pool: _Pool) -> int:
        lot = self._lots.pop() if self._lots else 0.5
        return pool.members[int(lot * len(pool.members))]

    def _act(self, action: Action, number: int, append: int) -> None:
        special: dict[str, Callable[[Action, int, int], None]] = {
            "create": self._create,
            "delete": self._delete,
            "rename": self._rename,
            "link": self._link,
            "mkdir": self._mkdir,
            "rmdir": self._rmdir,
        }
        if action.lead in special:
            special[action.lead](action, number, append)
            return
        if not self._present.members:
            self._create(_CREATE_FULL, self._reset, 0)
        item = self._draw(self._present)
        self._step(action, number, item, self._index(item, "absent") if action.lead == "miss" else 0, append)
        self._grow(item, action, append)

    def _grow(self, item: int, action: Action, append: int) -> None:
        if "write" in action.parts:
            self._length[item] = max(self._length[item], self._sizes[item])
        if "append" in action.parts:
            self._length[item] += append

    def _create(self, action: Action, number: int, append: int) -> None:
        if not self._absent.members:
            self._delete(_DELETE, self._reset, 0)
        item = self._draw(self._absent)
        self._absent.remove(item)
        self._present.add(item)
        self._is_renamed[item], self._length[item] = False, 0
        self._step(action, number, item, 0, append, self._sizes[item])
        self._grow(item, action, append)

    def _delete(self, action: Action, number: int, append: int) -> None:
        if not self._present.members:
            self._create(_CREATE_FULL, self._reset, 0)
        self._remove(self._draw(self._present), action, number)

    def _remove(self, item: int, action: Action, number: int) -> None:
        self._step(action, number, item)
        self._present.remove(item)
        self._absent.add(item)

    def _rename(self, action: Action, number: int, append: int) -> None:
        if not self._present.members:
            self._create(_CREATE_FULL, self._reset, 0)
        self._turn(self._draw(self._present), action, number)

    def _turn(self, item: int, action: Action, number: int) -> None:
        self._step(action, number, item, self._index(item, "file" if self._is_renamed[item] else "renamed"))
        self._is_renamed[item] = not self._is_renamed[item]

    def _link(self, action: Action, number: int, append: int) -> None:
        if not self._present.members:
            self._create(_CREATE_FULL, self._reset, 0)
        item = self._draw(self._present)
        if self._is_linked[item]:
            self._unlink(item)
        self._step(action, number, item, self._index(item, "link"))
        self._is_linked[item] = True

    def _unlink(self, item: int) -> None:
        self._add(_DELETE, self._reset, self._index(item, "link"), item)
        self._is_linked[item] = False

    def _mkdir(self, action: Action, number: int, append: int) -> None:
        if not self._unmade.members:
            self._rmdir(_RMDIR, self._reset, 0)
        item = self._draw(self._unmade)
        self._unmade.remove(item)
        self._made.add(item)
        self._add(action, number, self._index(item, "directory"), item)

    def _rmdir(self, action: Action, number: int, append: int) -> None:
        if not self._made.members:
            self._mkdir(Action("mkdir", "mkdir"), self._reset, 0)
        item = self._draw(self._made)
        self._made.remove(item)
        self._unmade.add(item)
        self._add(action, number, self._index(item, "directory"), item)

    def _undo(self) -> None:
        """The files as they were before the lap."""
        for item in [item for item in self._present.members if item >= self._start_count]:
            self._remove(item, _DELETE, self._reset)
        for item in range(self._start_count):
            if item in self._present.place and self._length[item] < self._sizes[item]:
                self._remove(item, _DELETE, self._reset)
            if item in self._absent.place:
                self._absent.remove(item)
                self._present.add(item)
                self._is_renamed[item], self._length[item] = False, self._sizes[item]
                self._step(_CREATE_FULL, self._reset, item)
            if self._length[item] > self._sizes[item]:
                self._step(_CUT, self._reset, item, 0, 0, self._sizes[item])
                self._length[item] = self._sizes[item]
            if self._is_renamed[item]:
                self._turn(item, _RENAME, self._reset)
        for item in [item for item in range(self._count) if self._is_linked[item]]:
            self._unlink(item)
        for item in list(self._made.members):
            self._rmdir_one(item)

    def _rmdir_one(self, item: int) -> None:
        self._made.remove(item)
        self._unmade.add(item)
        self._add(_RMDIR, self._reset, self._index(item, "directory"), item)

    def _step(
        self, action: Action, number: int, item: int, other: int = 0, append: int = 0, size: int | None = None
    ) -> None:
        """An action on a file under the name that it has now."""
        file = self._index(item, "renamed" if self._is_renamed[item] else "file")
        self._add(action, number, file, item, (other, self._length[item] if size is None else size, append))

    def _add(self, action: Action, number: int, file: int, item: int, rest: tuple[int, int, int] = (0, 0, 0)) -> None:
        other, size, append = rest
        self.steps.append(_Step(action, number, file, other, item, size, append))

    def _index(self, item: int, form: str) -> int:
        """The path of a file's name: forms follow one another."""
        return _FORMS.index(form) * self._count + item


def thread(load: MetadataLoad, acts: tuple[Action, ...], places: Places, sizes: Int64s, items: Int64s) -> Thread:
    """One thread's lap, as a ring.

    Args:
        load: with a mix or a flow.
        acts: its actions.
        places, sizes: of the rank's names.
        items: of them, the files that this thread has at the start.
    """
    more = items + load.items if len(sizes) > load.items else items[:0]
    own = np.concatenate([items, more])
    unit = len(acts) if load.flow else 1
    wanted = unit * (load.count or LAP_ACTIONS)
    count = min(wanted, max(LAP_ACTIONS // unit, 1) * unit)
    play = _Play(load, acts, sizes[own], len(items))
    seed = f"{name_of(load)}/{load.seed}/{places.rank}/{int(items[0])}".encode()
    play.lap(np.random.default_rng(int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "little")), count)
    program, action_of, leads = _lowered(play.steps, load, places, own, sizes)
    limit = None if load.duration else _op_limit(wanted, count, action_of, leads, len(actions.counted_words(acts)))
    return Thread(program, 0, len(program.ops), action_of, leads, limit)


def _op_limit(
    wanted: int,
    count: int,
    action_of: np.ndarray[tuple[int], np.dtype[np.uint8]],
    leads: np.ndarray[tuple[int], np.dtype[np.bool_]],
    reset: int,
) -> int:
    """Ops until so many actions are over: whole laps, and of the last one no undoing."""
    laps, rest = divmod(wanted - 1, count)
    begins = np.flatnonzero(leads)
    counted = np.flatnonzero(action_of[begins] != reset)[rest]
    end = int(begins[counted + 1]) if counted + 1 < len(begins) else len(leads)
    return laps * len(leads) + end


def _lowered(
    steps: list[_Step], load: MetadataLoad, places: Places, own: Int64s, sizes: Int64s
) -> tuple[Program, np.ndarray[tuple[int], np.dtype[np.uint8]], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Steps as ops, in their order: those of one action are made at once, then put into their places."""
    paths = [places.path(int(item), form, int(sizes[item])) for form in _FORMS for item in own]
    tree = len(paths)
    paths += [Path(STEP, name) for name in places.directories]
    lock_file = len(paths) if load.contended else -1
    paths += [Path(STEP, LOCK_NAME)] if load.contended else []
    log_file = len(paths)
    paths += [places.log]
    groups: dict[Action, list[int]] = {}
    for at, step in enumerate(steps):
        groups.setdefault(step.action, []).append(at)
    made: dict[Action, Ops] = {}
    lengths = np.zeros(len(steps), dtype=np.int64)
    for action, where in groups.items():
        values = np.array([[s.file, s.other, s.directory, s.size, s.append] for s in map(steps.__getitem__, where)])
        directory = tree + own[values[:, 2]] % len(places.directories)
        made[action] = actions.rows(
            action,
            Targets(
                values[:, 0], values[:, 1], directory, values[:, 3], values[:, 4], lock_file, places.rank, log_file
            ),
        )
        lengths[where] = made[action].shape[1]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    ops: Ops = np.zeros(int(starts[-1]), dtype=OP_DTYPE)
    for action, where in groups.items():
        ops[starts[where][:, None] + np.arange(made[action].shape[1])] = made[action]
    leads = np.zeros(len(ops), dtype=np.bool_)
    leads[starts[:-1]] = True
    counted = np.repeat(np.array([step.counted_as for step in steps], dtype=np.uint8), lengths)
    return Program(ops, tuple(paths), HOMELESS), counted, leads
