"""`ckptstorm check` on a cluster: every node looks, and rank 0 puts together what they found."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from ckptstorm.cluster.comm import Cluster
from ckptstorm.filesystems.contract import Facts, Quota
from ckptstorm.job import Job
from ckptstorm.model.parallel import World
from ckptstorm.plan import facts_of
from ckptstorm.storm import probes
from ckptstorm.storm.check import Preflight, check, checkpoints_at_once, memory_bytes
from ckptstorm.storm.findings import Finding, of_all_nodes
from ckptstorm.storm.ground import nearest_directory
from ckptstorm.storm.probes import Question
from ckptstorm.storm.session import tell
from ckptstorm.storm.tested import Tested
from ckptstorm.units import bytes_text, count_text, rate_text, time_text


def survey(job: Job, world: World, places: tuple[str, str], rate: int, cluster: Cluster | None) -> Preflight:
    """All that can be known before a storm, of every node of the cluster (of this one alone without a cluster).

    Args:
        job, world: the question.
        places: the directory under test, and that of the results.
        rate: bytes per second that a node is assumed to move.
        cluster: of a launched world, on rank 0.

    Raises:
        JobError: as `check`.
    """
    directory, results = places
    found = check(job, world, directory, results)
    nearest = nearest_directory(directory)
    need = memory_bytes(job, world, found.totals, facts_of(job, found.block_size_bytes))
    question = Question(
        nearest, found.mount, need, found.totals.bytes_per_rank_most, job.io.direct, job.io.memory_pressure
    )
    looked = _everywhere(cluster, question) if cluster is not None else tuple(probes.look(question))
    facts = found.adapter.facts(nearest)
    extra = (*looked, *_quotas(job, found, facts), _abilities(found, facts), _time(job, world, found, rate))
    kept = tuple(one for one in found.findings if one.subject != "memory")
    return replace(found, findings=(*kept, *extra))


def further(one: Tested) -> Finding:
    """A directory after the first, which `tested.check_more` has looked at."""
    where = f"{one.mount.type} from {one.mount.source}, {bytes_text(one.mount.free_bytes)} free"
    return Finding("further directory", "fine", f"{one.directory}: {where}")


def _everywhere(cluster: Cluster, question: Question) -> tuple[Finding, ...]:
    message = asdict(question)
    tell(cluster, {"survey": message})
    told = [json.loads(text) for text in probes.answer(cluster, message) if text]
    hosts = [str(each["host"]) for each in told]
    return of_all_nodes(hosts, [[Finding(**one) for one in each["findings"]] for each in told])


def _quotas(job: Job, found: Preflight, facts: Facts) -> list[Finding]:
    if not facts.quotas:
        return [Finding("quota", "fine", facts.cannot.get("quota", "none is set"))]
    count = checkpoints_at_once(job)
    need = (found.totals.data_bytes + found.totals.commit_bytes) * count
    return [_quota(quota, need, (found.totals.file_count + 1) * count) for quota in facts.quotas]


def _quota(quota: Quota, need: int, files: int) -> Finding:
    left = max(quota.limit_bytes - quota.used_bytes, 0)
    if quota.limit_bytes and need > left:
        room = f"{bytes_text(left)} left of {bytes_text(quota.limit_bytes)}"
        return Finding(
            "quota", "stops", f"{quota.who}: {bytes_text(need)} needed, {room}", "free some, or ask for more"
        )
    left_files = max(quota.limit_inodes - quota.used_inodes, 0)
    if quota.limit_inodes and files > left_files:
        sentence = f"{quota.who}: {count_text(files)} files needed, {count_text(left_files)} left"
        return Finding("quota", "stops", sentence, "free some, or ask for more")
    limit = bytes_text(quota.limit_bytes) if quota.limit_bytes else "no limit"
    return Finding("quota", "fine", f"{quota.who}: {bytes_text(quota.used_bytes)} used of {limit}")


def _abilities(found: Preflight, facts: Facts) -> Finding:
    """Who serves it, and what its adapter cannot do here."""
    said = f"{found.adapter.title}, {facts.version}".rstrip(", ") + f", served by {facts.server}"
    lacking = "; ".join(f"{name}: {why}" for name, why in facts.cannot.items() if name != "quota")
    return Finding("adapter", "fine", said + (f"; cannot tell {lacking}" if lacking else ""))


def _time(job: Job, world: World, found: Preflight, rate: int) -> Finding:
    """A guess, and said to be one: bytes by an assumed rate a node."""
    together = rate * world.node_count
    save, restore = found.totals.data_bytes / together, found.totals.restore.data_bytes / together
    rounds = job.storm.warmup + job.storm.rounds
    sentence = (
        f"if each of {world.node_count} nodes moved {rate_text(rate)}: save {time_text(save * 1e9)}, restore "
        f"{time_text(restore * 1e9)}, all {rounds} rounds {time_text((save + restore) * rounds * 1e9)} (see --rate)"
    )
    return Finding("time", "fine", sentence)
