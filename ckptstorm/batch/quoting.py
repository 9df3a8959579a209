"""Values of strangers in scripts: quoted for bash, for `#SBATCH` lines and for `# flux:` lines, or refused.

A template prints nothing but `Quoted` text and numbers (`render` sees to that), so a forgotten filter
is an error of the template and not a hole: no job, site file or command line can inject a command.
"""

from __future__ import annotations

import re
import shlex

from ckptstorm.errors import JobError

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+", re.ASCII)
_PBS_SAFE = re.compile(r"[A-Za-z0-9_@+=:,./()&|!<>*\[\]{}-]+", re.ASCII)
_DIRECTIVE_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./()&|*\[\]-]+", re.ASCII)


class Quoted(str):
    """Text that is safe where it stands."""

    __slots__ = ()


def shell(value: object) -> Quoted:
    """One word of bash, whatever is in it.

    Control characters are written as bash's $'…' escapes: a value never reaches over the end of a line,
    where a batch system might read what follows as a directive of its own.
    """
    text = str(value)
    if "\0" in text:
        raise JobError(f"{text!r} holds a NUL byte, which no command line can carry")
    if text.isprintable() or not text:
        return Quoted(text if _PLAIN.fullmatch(text) else shlex.quote(text))
    return Quoted("$'" + "".join(_escaped(character) for character in text) + "'")


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def slurm_directive(value: object) -> Quoted:
    """A value of a `#SBATCH` line, in sbatch's own quoting: double quotes, a backslash before " and before itself."""
    text = _one_line(value)
    if _DIRECTIVE_SAFE.fullmatch(text):
        return Quoted(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return Quoted(f'"{escaped}"')


def flux_directive(value: object) -> Quoted:
    """A value of a `# flux:` line, which Flux splits as Python's shlex does."""
    return Quoted(shlex.quote(_one_line(value)))


def pbs_directive(value: object) -> Quoted:
    """A value of a `#PBS` line: qsub's quoting differs from version to version, so only what needs none is let in."""
    text = _one_line(value)
    if not _PBS_SAFE.fullmatch(text):
        raise JobError(
            f"{text!r} cannot stand in a #PBS line: only letters, digits and _@+=:,./()&|!<>*[]{{}}- can",
            "choose another value",
        )
    return Quoted(text)


def comment(value: object) -> Quoted:
    """Text for a comment: one line, whatever is in it."""
    return Quoted("".join(character if character.isprintable() else "?" for character in str(value)))


def _one_line(value: object) -> str:
    text = str(value)
    if not text.isprintable():
        raise JobError(
            f"{text!r} cannot stand in a directive of a batch script: it holds a line end or another control character",
            "remove it from the site file or the command line",
        )
    return text
