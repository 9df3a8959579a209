"""A record that may be given away: hosts, paths, accounts and words of people gone, every number whole.

What is kept is a list, not what is removed: a fact that a later version adds is left out until somebody has thought
about it. Host names and paths that stand inside sentences are replaced there, and looked for once more at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ckptstorm.errors import PlaceError
from ckptstorm.measure.failure import Failure
from ckptstorm.measure.traffic import Traffic
from ckptstorm.record import settings, stormjson
from ckptstorm.record.record import MismatchSeen, Node, PhaseRecord, StormRecord
from ckptstorm.record.tomltext import tables
from ckptstorm.record.verdict import verdict

#: Facts of the environment that say nothing of who or where.
_KEPT = ("engine", "direct", "cpu_count")
#: Times of day without their zone, which tells where: this many characters.
_TIMES, _TIME_LENGTH = ("started", "ended"), len("2026-11-01T12:00:00")
#: Facts that a record is judged by: kept too, their numbers whole and every word that is no plain one taken out.
_JUDGED = ("recovery", "halves", "own_written_share", "spread", "directory_of_rank", "source_of_rank")
#: A word of ours: "complete", "by rank"; a host's name has a digit or a dot, an address both.
_PLAIN_WORD = re.compile(r"[a-z][a-z_ -]{0,30}\Z")
_KEPT_OF_MOUNT = ("type", "block_size_bytes", "size_bytes", "free_bytes")
_KEPT_OF_ALLOCATION = ("scheduler", "ranks_per_node", "tasks_per_node", "cpus_per_node", "gpus_per_node", "mpi")
#: A mount option without an address or a name in it: a word, or a number with its unit.
_PLAIN_OPTION = re.compile(r"[a-z][a-z0-9_]*(=[0-9]+[kKmMgG]?)?\Z")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,7}\b")
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_DIRECTORY, _SOURCE, _MOUNT = "/directory-under-test", "mount-source", "/mount"


def anonymous(record: StormRecord) -> StormRecord:
    """The same storm without a word of where it ran.

    Raises:
        PlaceError: a host name or path of the record was found again afterwards, so it must not be given away.
    """
    places = _places(record)
    words = _longest_first(places | _accounts(record))
    job = _cleaned(record.job, places)
    made = replace(
        record,
        job=job,
        job_text=f"# An anonymous copy: the resolved job, without the words of who wrote it.\n\n{tables(job)}",
        environment=_environment(record.environment, words),
        nodes=tuple(Node(_node_name(index), node.rank_count) for index, node in enumerate(record.nodes)),
        phases=tuple(_phase(phase, words, _sources(record)) for phase in record.phases),
        ended_because=_without(record.ended_because, words),
    )
    if verdict(made).exit_code != verdict(record).exit_code or verdict(made).valid != verdict(record).valid:
        raise PlaceError(
            f"the copy of {record.storm_id} would be judged otherwise than the record, so it was not made",
            "look through ckptstorm export --csv, and give that away",
        )
    said = "\n".join([*_texts(stormjson.to_json(made)), made.job_text])
    left = [word for word in places if re.search(_pattern(word), said)]
    if left:
        raise PlaceError(
            f"the copy of {record.storm_id} would still name {left[0]!r}, so it was not made",
            "look through ckptstorm export --csv, and give that away",
        )
    return made


def _places(record: StormRecord) -> dict[str, str]:
    """Hosts and paths, and what stands for each."""
    words: dict[str, str] = {}
    for index, node in enumerate(record.nodes):
        words |= {node.host.partition(".")[0]: _node_name(index), node.host: _node_name(index)}
    environment = record.environment
    words |= {
        settings.text(environment, "mount", "source"): _SOURCE,
        settings.text(environment, "mount", "path"): _MOUNT,
        settings.text(environment, "directory"): _DIRECTORY,
    }
    listed = environment.get("directories")
    for index, each in enumerate(listed if isinstance(listed, list | tuple) else (), 1):
        if isinstance(each, dict):
            words[settings.text(each, "directory")] = f"{_DIRECTORY}-{index}"
            words[settings.text(each, "mount", "source")] = _SOURCE
            words[settings.text(each, "mount", "path")] = _MOUNT
    return _longest_first(words)


def _accounts(record: StormRecord) -> dict[str, str]:
    """Names that a batch system gave or was given; they can only stand in sentences."""
    names = ("account", "job_name", "partition", "reservation", "cluster", "node_list", "step_node_list", "qos")
    allocation = settings.table(record.environment, "allocation")
    return {settings.text(allocation, name): name.replace("_", "-") for name in names}


def _longest_first(words: dict[str, str]) -> dict[str, str]:
    """So that none is replaced in part; words that name nobody are left out, for every record has them."""
    kept = {word: instead for word, instead in words.items() if len(word) > 1 and word not in _COMMON}
    return dict(sorted(kept.items(), key=lambda pair: -len(pair[0])))


_COMMON = frozenset({"localhost", "tmpfs", "overlay", "none", "/tmp", "normal", "default", "job", "node", "rank"})


def _node_name(index: int) -> str:
    return f"node-{index + 1:04d}"


def _pattern(word: str) -> str:
    """The word alone, not as a part of another one."""
    return rf"(?<![A-Za-z0-9_-]){re.escape(word)}(?![A-Za-z0-9_-])"


def _without(text: str, words: Mapping[str, str]) -> str:
    for word, instead in words.items():
        text = re.sub(_pattern(word), instead, text)
    return re.sub(r"(?<![A-Za-z0-9_.<>-])/[^\s'\",;)]+", _path, text)


def _path(match: re.Match[str]) -> str:
    """An absolute path: inside the directory under test the names are the framework's; else only that there was one."""
    return match[0] if match[0].startswith(_DIRECTORY) else "/path"


def _cleaned(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _cleaned(each, words) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(each, words) for each in value]
    return _without(value, words) if isinstance(value, str) else value


def _texts(value: Any) -> Iterator[str]:
    """Every string in a tree of plain values, keys aside: they are ours."""
    if isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _environment(environment: dict[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    versions = settings.table(environment, "versions")
    kept = {name: environment[name] for name in _KEPT if name in environment}
    kept |= {name: settings.text(environment, name)[:_TIME_LENGTH] for name in _TIMES if name in environment}
    plain = {name: found[0] for name in versions if (found := _VERSION.search(str(versions[name])))}
    allocation = settings.table(environment, "allocation")
    kept |= {"waits": _cleaned(environment["waits"], words)} if "waits" in environment else {}
    kept |= {name: _wordless(environment[name]) for name in _JUDGED if name in environment}
    listed = environment.get("directories")
    if isinstance(listed, list | tuple):
        kept["directories"] = [_directory(each, index) for index, each in enumerate(listed, 1)]
    return kept | {
        "file_system": _file_system(settings.table(environment, "file_system")),
        "mount": _mount(settings.table(environment, "mount")),
        "directory": _DIRECTORY,
        "versions": plain,
        "allocation": {name: allocation[name] for name in _KEPT_OF_ALLOCATION if name in allocation},
        "anonymous": True,
    }


def _mount(mount: dict[str, Any]) -> dict[str, Any]:
    options = settings.text(mount, "options").split(",")
    return {name: mount[name] for name in _KEPT_OF_MOUNT if name in mount} | {
        "source": _SOURCE,
        "path": _MOUNT,
        "options": ",".join(each for each in options if _PLAIN_OPTION.match(each)),
    }


def _directory(facts: Any, index: int) -> dict[str, Any]:
    """One of several directories under test."""
    told = facts if isinstance(facts, dict) else {}
    return {
        "directory": f"{_DIRECTORY}-{index}",
        "mount": _mount(settings.table(told, "mount")),
        "file_system": _file_system(settings.table(told, "file_system")),
    }


def _wordless(value: Any) -> Any:
    """Numbers and our own plain words; any other text is taken out."""
    if isinstance(value, dict):
        return {key: _wordless(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_wordless(each) for each in value]
    return value if not isinstance(value, str) or _PLAIN_WORD.match(value) else "taken out"


def _file_system(facts: dict[str, Any]) -> dict[str, Any]:
    """Which one it is, and how large its targets are; their names are numbers."""
    listed = facts.get("targets")
    targets = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list | tuple) else []
    return {name: facts[name] for name in ("adapter", "title") if name in facts} | {
        "targets": [
            {"name": f"target-{index}"} | {key: each[key] for key in ("size_bytes", "free_bytes") if key in each}
            for index, each in enumerate(targets, 1)
        ]
    }


def _sources(record: StormRecord) -> dict[str, str]:
    """What was counted, numbered: a source's own name may hold an address or a device."""
    found = dict.fromkeys(each.source for phase in record.phases for each in phase.traffic)
    return {source: f"source-{index}" for index, source in enumerate(found, 1)}


def _traffic(traffic: Traffic, words: Mapping[str, str], sources: Mapping[str, str]) -> Traffic:
    """Counters keep their values; names that become alike are told apart by a number."""
    values: dict[str, int] = {}
    for name, value in traffic.values.items():
        cleaned = _ADDRESS.sub("address", _without(name, words))
        values[cleaned if cleaned not in values else f"{cleaned} {len(values)}"] = value
    return replace(traffic, source=sources[traffic.source], host=_without(traffic.host, words), values=values)


def _phase(phase: PhaseRecord, words: Mapping[str, str], sources: Mapping[str, str]) -> PhaseRecord:
    return replace(
        phase,
        traffic=tuple(_traffic(each, words, sources) for each in phase.traffic),
        failures=tuple(_failure(each, words) for each in phase.failures),
        mismatches=tuple(
            MismatchSeen(each.rank, _without(each.host, words), _without(each.sentence, words))
            for each in phase.mismatches
        ),
    )


def _failure(failure: Failure, words: Mapping[str, str]) -> Failure:
    files = tuple((_without(file, words), count) for file, count in failure.files)
    return replace(failure, host=_without(failure.host, words), file=_without(failure.file, words), files=files)
