"""Whose fault a tail is: the node's, the rank's role (its shard is bigger), the storage target's, or chance.

Times differ by factors, so their logarithms are looked at, less each round's median: a round in which everybody was
slow is nobody's fault. Three things may explain what is left:

    role    how much the rank has to move: its planned bytes, the same in every round
    node    where it runs, the same in every round
    target  which server holds its main file: another one in each round, where the file system places anew

The fit is additive and alternating (Friedman and Stuetzle's backfitting, J. Am. Stat. Assoc. 76, 1981): each cause is
the mean of what the others leave, over the ranks that share it. Its share is the variance that it explains. How sure
that is comes from dealing its labels out anew among the ranks of each round, 999 times: the part of deals that explain
as much by chance (Good, "Permutation Tests"). Two causes that always go together cannot be told apart: both are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ckptstorm.measure.rows import Phase
from ckptstorm.record import settings
from ckptstorm.record.record import PhaseRecord, StormRecord
from ckptstorm.record.stragglers import STRAGGLER_EXCESS_NS, host_of
from ckptstorm.units import bytes_text

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

#: A tail shorter than this is not worth a culprit: the slowest rank ÷ the median one, of the median round.
TAIL_LEAST = 1.2
#: A cause is named when it explains as much, and chance does so in at most this part of the deals.
_SHARE_LEAST = 0.25
_CHANCE_MOST = 0.05
_DEALS = 999
_SEED = 20_261_203
_SWEEPS = 12
#: Ranks whose planned bytes differ by less than this share have one role.
_ROLE_STEP = 0.05
#: Beyond this many rows (ranks times rounds) the slowest and a sample of the others stand for all.
_ROWS_MOST = 200_000


@dataclass(frozen=True, slots=True)
class Cause:
    """What one thing has to do with the tail.

    Attributes:
        kind: "role", "node" or "target".
        share: of the variance of the ranks' times, 0 to 1.
        chance: how often labels dealt out at random explain as much; 1 when it cannot be said.
        name: the worst of them: a host, a target, "shards of 2.00 GiB".
        times: how many times the others' time those ranks take, by the fit.
        same_as: another cause that goes together with it in every round; "" when it can be told apart.
    """

    kind: str
    share: float
    chance: float
    name: str
    times: float
    same_as: str = ""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where a phase's tail comes from.

    Attributes:
        phase: of which.
        tail: slowest ÷ median rank, of the median round.
        round_count: measured rounds that were looked at.
        causes: by share, largest first; only those that there could be.
        chance_share: what none of them explains.
    """

    phase: Phase
    tail: float
    round_count: int
    causes: tuple[Cause, ...]
    chance_share: float

    @property
    def culprits(self) -> tuple[Cause, ...]:
        """The causes that explain the tail and can hardly be chance."""
        return tuple(each for each in self.causes if each.share >= _SHARE_LEAST and each.chance <= _CHANCE_MOST)


def attribution(record: StormRecord, phase: Phase) -> Attribution | None:
    """Look for the culprit; None when there is no tail, or nothing that could be told apart."""
    rounds = _comparable([each for each in record.phases if each.phase == phase and each.round >= 1])
    if not rounds:
        return None
    times = np.stack([_times(each) for each in rounds])
    tails = times.max(axis=1) / np.median(times, axis=1)
    excess_ns = np.median(times.max(axis=1) - np.median(times, axis=1))
    tail = float(np.median(tails))
    if tail < TAIL_LEAST or excess_ns < STRAGGLER_EXCESS_NS:
        return None
    labels, names = _labels(record, rounds)
    if not labels:
        return None
    logs = np.log(times)
    logs -= np.median(logs, axis=1, keepdims=True)
    logs, labels = _bounded(logs, labels)
    return _found(phase, tail, logs, labels, names)


def _found(
    phase: Phase, tail: float, logs: Floats, labels: Mapping[str, Labels], names: Mapping[str, Mapping[int, str]]
) -> Attribution:
    effects = _fit(logs, labels)
    whole = float(((logs - logs.mean()) ** 2).sum()) or 1.0
    causes = []
    for kind, label in labels.items():
        rest = logs - sum((effects[other] for other in labels if other != kind), np.zeros_like(logs))
        share = float(((effects[kind] - effects[kind].mean()) ** 2).sum()) / whole
        worst = int(label.reshape(-1)[int(effects[kind].argmax())])
        others = effects[kind][label != worst]
        times = float(np.exp(effects[kind].max() - (np.median(others) if others.size else 0.0)))
        name = names[kind].get(worst, "")
        causes.append(Cause(kind, min(share, 1.0), _chance(rest, label), name, times, _same_as(kind, labels)))
    causes.sort(key=lambda cause: -cause.share)
    left = logs - sum(effects.values(), np.zeros_like(logs))
    unexplained = float(((left - left.mean()) ** 2).sum()) / whole
    return Attribution(phase, tail, len(logs), tuple(causes), unexplained)


def _comparable(phases: list[PhaseRecord]) -> list[PhaseRecord]:
    """The rounds of the same ranks, with those ranks' rows that had something to move; none below two such ranks."""
    phases = [each for each in phases if np.array_equal(each.rows["rank"], phases[0].rows["rank"])]
    if not phases:
        return []
    moved = np.all([each.rows["durable_ns"] > 0 for each in phases], axis=0)
    return [replace(each, rows=each.rows[moved]) for each in phases] if np.count_nonzero(moved) > 1 else []


def _times(phase: PhaseRecord) -> Floats:
    """Each rank's own time, from its own start until it was durable; at least a microsecond."""
    times: Floats = np.maximum((phase.rows["durable_ns"] - phase.rows["release_ns"]).astype(np.float64), 1e3)
    return times


def _labels(record: StormRecord, rounds: list[PhaseRecord]) -> tuple[dict[str, Labels], dict[str, dict[int, str]]]:
    """Per cause the group of each rank in each round, shape (rounds, ranks), and the groups' names."""
    rows = rounds[0].rows
    shape = (len(rounds), len(rows))
    labels: dict[str, Labels] = {}
    names: dict[str, dict[int, str]] = {}
    role = np.round(np.log(np.maximum(rows["bytes"].astype(np.float64), 1.0)) / _ROLE_STEP).astype(np.int64)
    node = rows["node"].astype(np.int64)
    for kind, each in (("role", role), ("node", node)):
        if len(np.unique(each)) > 1:
            labels[kind] = np.broadcast_to(each, shape).copy()
    names["role"] = {int(group): _role_name(rows, role, int(group)) for group in np.unique(role)}
    names["node"] = {int(group): host_of(record, int(group)) for group in np.unique(node)}
    told = settings.table(record.environment, "placement_by_round")
    target = _targets(told, rounds) if rounds[0].phase == Phase.SAVE else None
    if target is not None and len(np.unique(target)) > 1:
        labels["target"] = target
        names["target"] = {number: str(name) for number, name in enumerate(told["names"])}
    return labels, names


def _role_name(rows: NDArray[np.void], role: Labels, group: int) -> str:
    return f"shards of {bytes_text(int(np.median(rows['bytes'][role == group])))}"


def _targets(told: dict[str, Any], rounds: list[PhaseRecord]) -> Labels | None:
    """The target of each rank's main file in each round; None unless every round knows every rank's."""
    by_round, names = settings.table(told, "rounds"), told.get("names")
    ranks = rounds[0].rows["rank"].astype(np.int64)
    found = []
    for each in rounds:
        row = by_round.get(str(each.round))
        if not isinstance(row, list) or not isinstance(names, list) or len(row) <= int(ranks.max()):
            return None
        if not all(isinstance(number, int) and 0 <= number < len(names) for number in row):
            return None
        found.append(np.array(row, dtype=np.int64)[ranks])
    return np.stack(found)


def _bounded(logs: Floats, labels: dict[str, Labels]) -> tuple[Floats, dict[str, Labels]]:
    """At most `_ROWS_MOST` values: the ranks with the largest times, and every so manyth of the others."""
    most = max(2, _ROWS_MOST // len(logs))
    if logs.shape[1] <= most:
        return logs, labels
    slowest = np.argsort(-logs.max(axis=0))[: most // 2]
    kept = np.union1d(slowest, np.arange(0, logs.shape[1], -(-logs.shape[1] // (most // 2))))
    return logs[:, kept], {kind: label[:, kept] for kind, label in labels.items()}


def _fit(logs: Floats, labels: Mapping[str, Labels]) -> dict[str, Floats]:
    """The effect of each cause on each value; of causes that go together the first one gets all."""
    effects = {kind: np.zeros_like(logs) for kind in labels}
    for _ in range(_SWEEPS):
        for kind, label in labels.items():
            rest = logs - sum((effects[other] for other in labels if other != kind), np.zeros_like(logs))
            effects[kind] = _means(rest, label)
    return effects


def _groups(label: Labels) -> Labels:
    """The groups numbered from 0, in the shape of the labels."""
    groups: Labels = np.unique(label.reshape(-1), return_inverse=True)[1].reshape(label.shape)
    return groups


def _means(values: Floats, label: Labels) -> Floats:
    """Each value replaced by the mean of its group."""
    index = _groups(label).reshape(-1)
    sums = np.bincount(index, weights=values.reshape(-1))
    means: Floats = (sums / np.bincount(index))[index].reshape(values.shape)
    return means


def _explained(values: Floats, groups: Labels, sizes: Labels) -> float:
    """The sum of squares between groups of values whose mean is 0."""
    sums = np.bincount(groups.reshape(-1), weights=values.reshape(-1))
    return float((sums**2 / sizes).sum())


def _chance(values: Floats, label: Labels) -> float:
    """How often labels dealt out anew within each round explain at least as much of these values."""
    random, groups, values = np.random.default_rng(_SEED), _groups(label), values - values.mean()
    sizes = np.bincount(groups.reshape(-1))
    seen = _explained(values, groups, sizes) * (1 - 1e-9)
    # A thousand deals of a large world cost minutes and change no verdict: fewer show the same.
    deals = int(np.clip(20_000_000 // max(values.size, 1), 99, _DEALS))
    hits = sum(_explained(values, random.permuted(groups, axis=1), sizes) >= seen for _ in range(deals))
    return (1 + hits) / (1 + deals)


def _same_as(kind: str, labels: Mapping[str, Labels]) -> str:
    """Another cause with which this one always goes together: each group of one is a group of the other."""
    mine = labels[kind].reshape(-1)
    for other, label in labels.items():
        pairs = np.unique(np.stack([mine, label.reshape(-1)]), axis=1).shape[1]
        if other != kind and pairs == len(np.unique(mine)) == len(np.unique(label)):
            return other
    return ""
