"""A rank's life: take orders from rank 0, take part in the storm, end with the code that rank 0 decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from ckptstorm.cluster.board import Board
from ckptstorm.cluster.comm import Cluster
from ckptstorm.cluster.imports import share
from ckptstorm.cluster.placement import Station, station
from ckptstorm.engines import ENGINES
from ckptstorm.errors import LostRankError, PlaceError
from ckptstorm.filesystems.mount import differs, mount_of
from ckptstorm.layouts import LAYOUTS
from ckptstorm.load_tables import kind_of
from ckptstorm.loads import LOADS
from ckptstorm.storm import ground, probes
from ckptstorm.storm.crew import Crew
from ckptstorm.storm.deputy import look_after_rank_0
from ckptstorm.storm.memory import available_bytes, total_bytes
from ckptstorm.storm.orders import Ending, Orders
from ckptstorm.storm.outcome import Keeper, Outcome
from ckptstorm.storm.pressure import Pressure
from ckptstorm.storm.rounds import Rounds
from ckptstorm.storm.watch import LookOut, StopSignals, Watch

#: Makes rank 0's look-out once its crew is known.
LookOutMaker = Callable[[Crew], LookOut]


def tell(cluster: Cluster, message: dict[str, Any]) -> dict[str, Any]:
    """A message of rank 0 (what the others pass is of no meaning), as all ranks get it."""
    received: dict[str, Any] = json.loads(cluster.bytes_from_rank_0(json.dumps(message).encode()))
    return received


def stations(cluster: Cluster) -> list[Station]:
    """Where each rank runs and what it is bound to, on rank 0 (an empty list elsewhere); a collective of all ranks."""
    place = cluster.place
    texts = cluster.texts_on_rank_0(json.dumps(station(place.host, place.local_index, place.machine).to_message()))
    return [Station.from_message(json.loads(text)) for text in texts]


def serve(cluster: Cluster) -> int:
    """Every rank but 0: do as ordered until the ending; returns the exit code."""
    signals = StopSignals()  # from here on: a signal before the storm must end it in order too
    while True:
        message = tell(cluster, {})
        if "exit_code" in message:
            return int(message["exit_code"])
        if "tell" in message:
            stations(cluster)
            continue
        if "survey" in message:
            probes.answer(cluster, message["survey"])
            continue
        if "part" in message:  # a smaller world: those outside wait for the next message to all
            part = cluster.part(chosen(cluster, **message["part"]))
            if part is not None:
                serve(part)
            continue
        share(cluster, message["modules"])
        take_part(cluster, Orders.from_message(message["orders"]), signals, None, None)


def chosen(cluster: Cluster, count: int, spread: bool) -> list[int]:  # noqa: FBT001 - travels as JSON
    """The ranks of a smaller world: the first ones, which fill node after node, or as many of each node.

    Args:
        cluster: the whole world.
        count: how many.
        spread: the first rank of each node, then the second ones, and so on; rank 0 is always among them.
    """
    ranks = np.arange(cluster.rank_count)
    if spread:
        nodes = cluster.node_of_rank
        order_of_node = np.argsort(nodes, kind="stable")
        firsts = np.searchsorted(nodes[order_of_node], nodes[order_of_node])
        local = np.empty_like(ranks)
        local[order_of_node] = ranks - firsts
        ranks = np.lexsort((nodes, local))
    return [int(rank) for rank in ranks[:count]]


def part_of(cluster: Cluster, count: int, *, spread: bool) -> Cluster:
    """Rank 0: a smaller world of this one, to be ended by `end` before the next message to all."""
    tell(cluster, {"part": {"count": count, "spread": spread}})
    part = cluster.part(chosen(cluster, count, spread))
    assert part is not None, "rank 0 is always chosen"
    return part


def order(cluster: Cluster, orders: Orders) -> None:
    """Rank 0: tell all what to do, with the modules of the engine and the layout, which rank 0 reads for all."""
    locations = [ENGINES[orders.engine].location, LAYOUTS[orders.job.layout.name].location]
    locations += [LOADS[kind_of(load)].location for load in orders.job.load]
    modules = [location.partition(":")[0] for location in dict.fromkeys(locations)]
    tell(cluster, {"orders": orders.to_message(), "modules": modules})
    share(cluster, modules)


def end(cluster: Cluster, exit_code: int) -> None:
    """Rank 0: tell all how it ended."""
    tell(cluster, Ending(exit_code).to_message())


def take_part(
    cluster: Cluster,
    orders: Orders,
    signals: StopSignals,
    keeper: Keeper | None,
    make_look_out: LookOutMaker | None,
) -> Outcome:
    """One storm, on every rank at the same time.

    Raises:
        PlaceError: on rank 0, when some node does not see the directory that rank 0 marked.
        LostRankError: on rank 0, or on its deputy: the ranks cannot meet any more.
    """
    try:
        root_fd = _open_everywhere(cluster, orders)
        if root_fd < 0:
            return Outcome.FAILED
        crew = Crew(cluster, orders, root_fd)
        board = Board(cluster, orders.storm_id)
        deputy = look_after_rank_0(crew) if board.is_deputy else None
        watch = Watch(board, signals, make_look_out(crew) if make_look_out else deputy)
        cluster.tick = watch.tick
        try:
            with Pressure(cluster, orders.job.io.memory_pressure) as pressure:
                _tell_pressure(cluster, pressure, keeper)
                outcome = Rounds(crew, watch, keeper).run()
        except LostRankError:
            board.give_up()
            raise
        cluster.tick = _nothing
        board.settle()
        crew.close()
        return outcome
    finally:
        cluster.tick = _nothing
        signals.give_back()


def _tell_pressure(cluster: Cluster, pressure: Pressure, keeper: Keeper | None) -> None:
    held = cluster.sum_on_rank_0(np.array([pressure.held_bytes], dtype=np.int64))
    if keeper is not None and keeper.record.job.get("io", {}).get("memory_pressure", "0%") != "0%":
        in_use = 1 - available_bytes() / total_bytes()
        keeper.take_pressure(int(held[0]), in_use)


def _nothing() -> None:
    """No tick outside a storm."""


_MOUNT_ALIKE = "mount the same file system in the same way on every node, or leave that node out"


def _odd_mount(cluster: Cluster, orders: Orders) -> str:
    """How this node's mount of the directory differs from rank 0's; one rank a node looks."""
    if cluster.place.local_index >= len(orders.tested):  # the first ranks of a node look at all of them
        return ""
    looked_at = orders.tested[cluster.place.local_index :: max(cluster.place.local_count, 1)]
    found = (differs(one.mount, mount_of(one.directory)) for one in looked_at)
    return next((difference for difference in found if difference), "")


def _open_everywhere(cluster: Cluster, orders: Orders) -> int:
    """The directory, open on this rank; -1 when some rank cannot see it (rank 0 raises then)."""
    problem, root_fd = "", -1
    own = orders.tested[orders.own_index(cluster.rank, cluster.place.node_index)]
    try:
        root_fd = ground.open_root(own.directory, orders.reading.mark if orders.reading else orders.storm_id)
        difference = _odd_mount(cluster, orders)
        if difference:
            raise PlaceError(f"{own.directory}: {cluster.place.host} is the odd node: {difference}", _MOUNT_ALIKE)
    except PlaceError as error:
        problem = "\n".join(error.lines())
    problems = [text for text in cluster.texts_on_rank_0(problem) if text]
    agreed = str(tell(cluster, {"problem": problems[0] if problems else ""})["problem"])
    if not agreed:
        return root_fd
    if cluster.rank == 0:
        sentence, _, hint = agreed.partition("\n")
        others = f" ({len(problems)} ranks say so)" if len(problems) > 1 else ""
        raise PlaceError(sentence + others, hint)
    return -1
