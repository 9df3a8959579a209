"""How the files of a metadata load stand before each of its phases: there or not, renamed or not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ckptstorm.errors import JobError
from ckptstorm.loads.actions import Action

#: What needs none of the files.
_FREE = ("mkdir", "rmdir", "miss", "list", "log")


@dataclass(frozen=True, slots=True)
class Standing:
    """Which names of each file are there when a phase begins."""

    is_made: bool = False
    is_renamed: bool = False
    is_linked: bool = False
    has_directory: bool = False

    @property
    def form(self) -> str:
        """What the file is called then."""
        return "renamed" if self.is_renamed else "file"


def walk(actions: tuple[Action, ...], where: str) -> tuple[Standing, ...]:
    """How the files stand before each phase; whether they are prepared is decided by the first that needs them.

    Raises:
        JobError: an action cannot follow what was before it.
    """
    leads = [action.lead for action in actions]
    needs = next((lead for lead in leads if lead not in _FREE), "create")
    standing, found = Standing(is_made=needs != "create"), []
    for action in actions:
        problem = _impossible(action.lead, standing)
        if problem:
            raise JobError(f'{where} phases: "{action.word}" cannot stand there: {problem}')
        found.append(standing)
        standing = _after(action.lead, standing)
    return tuple(found)


def _impossible(lead: str, standing: Standing) -> str:
    """Why an action cannot follow what was before; "" when it can."""
    if lead == "create":
        return "the files are there already: put delete before it" if standing.is_made else ""
    if lead == "mkdir":
        return "the directories are there already: put rmdir before it" if standing.has_directory else ""
    if lead == "rmdir":
        return "" if standing.has_directory else "there is no directory yet: put mkdir before it"
    if lead == "link" and standing.is_linked:
        return "the links are there already"
    if lead in _FREE or standing.is_made:
        return ""
    return "the files are gone: put create before it"


def _after(lead: str, before: Standing) -> Standing:
    """How the files stand after an action."""
    changes = {
        "create": {"is_made": True, "is_renamed": False},
        "delete": {"is_made": False},
        "rename": {"is_renamed": not before.is_renamed},
        "link": {"is_linked": True},
        "mkdir": {"has_directory": True},
        "rmdir": {"has_directory": False},
    }
    return replace(before, **changes.get(lead, {}))


def names_of(lead: str, standing: Standing) -> tuple[str, str]:
    """The form of the name that an action is done to, and of its second name ("" for none)."""
    if lead in ("mkdir", "rmdir"):
        return "directory", ""
    second = {"rename": "file" if standing.is_renamed else "renamed", "link": "link", "miss": "absent"}.get(lead, "")
    return ("file" if lead == "create" else standing.form), second
