"""What `lfs` and a Lustre client's files print, read: the formats of Lustre 2.10 to 2.17."""

from __future__ import annotations

import re

from ckptstorm.filesystems.contract import Quota, Target

_KIB = 1024
_TARGET = re.compile(r"^(\S+?)(?:_UUID)?\s+(\d+)\s+(\d+)\s+(\d+)\s+\d+%\s+\S+?\[(OST|MDT):\d+\]")
_PAIR = re.compile(r"\b(?:lmm_)?(stripe_count|stripe_size|pattern|pool):\s+(\S+)")
_OBJECT = re.compile(r"l_ost_idx: (\d+),")
_STATISTIC = re.compile(r"^(\S+)\s+(\d+) samples \[(\w+)\](?: (\d+) (\d+) (\d+))?")


def targets(shown: str) -> tuple[Target, ...]:
    """OSTs of `lfs df`: sizes are in KiB; a target that is not active has no line of this form."""
    found = [match for line in shown.splitlines() if (match := _TARGET.match(line))]
    return tuple(Target(m[1], int(m[2]) * _KIB, int(m[4]) * _KIB) for m in found if m[5] == "OST")


def layout(shown: str) -> dict[str, str | int]:
    """The layout of `lfs getstripe`, of a file or (`-d`) a directory; of several components a list each."""
    columns: dict[str, list[str]] = {}
    for key, value in _PAIR.findall(shown):
        columns.setdefault(key, []).append(value)
    ends = re.findall(r"lcme_extent\.e_end:\s+(\S+)", shown)
    found: dict[str, str | int] = {}
    for key, values in columns.items():
        name = "stripe_size_bytes" if key == "stripe_size" else key
        found[name] = int(values[0]) if len(values) == 1 and re.fullmatch(r"-?\d+", values[0]) else ",".join(values)
    return found | ({"component_ends": ",".join(ends)} if ends else {})


def objects(shown: str) -> list[int]:
    """The OST index of each object of a file, in its order; -1 for a component on the metadata server."""
    if "lcm_entry_count" in shown:
        found: list[int] = []
        for component in re.split(r"lcme_id:", shown)[1:]:
            if re.search(r"lmm_pattern:\s+mdt", component):
                found.append(-1)
            found += [int(index) for index in _OBJECT.findall(component)]
        return found
    plain = [int(index) for index in _OBJECT.findall(shown)]
    _, table, rows = shown.partition("obdidx")
    if table:
        plain += [int(line.split()[0]) for line in rows.splitlines()[1:] if line.strip() and line.split()[0].isdigit()]
    return plain


def pools(shown: str) -> list[str]:
    """`lfs pool_list FS`: a heading, then FS.POOL a line."""
    return [line.strip().partition(".")[2] for line in shown.splitlines() if "." in line and " " not in line.strip()]


def quota(shown: str, who: str) -> Quota:
    """`lfs quota -q -u`: file system, KiB used, quota, limit, grace, files, quota, limit, grace; "*" marks excess.

    Raises:
        ValueError: not of that form.
    """
    words = [word.rstrip("*").strip("[]") for word in shown.split()]
    if len(words) < 9:
        raise ValueError(f"lfs quota prints {shown.strip()[:60]!r}")
    used, soft, hard, _, inodes, inode_soft, inode_hard = (int(word) if word.isdigit() else 0 for word in words[1:8])
    limits = [limit for limit in (soft, hard) if limit]
    inode_limits = [limit for limit in (inode_soft, inode_hard) if limit]
    return Quota(who, used * _KIB, min(limits, default=0) * _KIB, inodes, min(inode_limits, default=0))


def statistics(shown: str) -> dict[str, int]:
    """A stats file: the sum of counters in bytes, how often all others were counted."""
    found: dict[str, int] = {}
    for line in shown.splitlines():
        match = _STATISTIC.match(line)
        if match:
            found[match[1]] = int(match[6]) if match[3] == "bytes" and match[6] else int(match[2])
    return found
