"""What a check found: fine, warning, stops; of one node, and of many nodes taken together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_SEVERITY = ("fine", "warning", "stops")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at.

    Attributes:
        subject: what ("space").
        state: how it is.
        sentence: the figures.
        hint: what to do when it is not fine.
    """

    subject: str
    state: Literal["fine", "warning", "stops"]
    sentence: str
    hint: str = ""


def of_all_nodes(hosts: Sequence[str], found: Sequence[Sequence[Finding]]) -> tuple[Finding, ...]:
    """One finding a subject: the worst of all nodes, with the node named that is not as the others are.

    Args:
        hosts: a node each.
        found: each node's findings, of the same subjects in the same order.
    """
    return tuple(_together(hosts, list(of_nodes)) for of_nodes in zip(*found, strict=True))


def _together(hosts: Sequence[str], found: list[Finding]) -> Finding:
    worst = max(found, key=lambda one: _SEVERITY.index(one.state))
    if len(found) == 1:
        return worst
    if worst.state == "fine":
        return Finding(worst.subject, "fine", _alike(found))
    odd = [host for host, one in zip(hosts, found, strict=True) if one.state == worst.state]
    first = hosts[found.index(worst)]
    others = f" ({len(odd)} of {len(found)} nodes)" if len(odd) > 1 else f" (the other {len(found) - 1} nodes are not)"
    return Finding(worst.subject, worst.state, f"{first}: {worst.sentence}{others}", worst.hint)


def _alike(found: list[Finding]) -> str:
    distinct = {one.sentence for one in found}
    which = "alike on" if len(distinct) == 1 else "on rank 0's node, and fine on all"
    return f"{found[0].sentence}, {which} {len(found)} nodes"
