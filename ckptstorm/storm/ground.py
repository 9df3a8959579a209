"""The directory under test: marked before the first file, and left as it was found.

A storm writes and deletes only inside a directory that it made or found empty and then marked with
`.ckptstorm`, the manifest. Clean-up never walks the directory: it recomputes the names that the
manifest's job must have made and removes exactly those, and never through a symbolic link.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import platform
import shlex
import stat
from dataclasses import dataclass, replace

from ckptstorm.errors import PlaceError, StormError
from ckptstorm.filesystems.mount import mount_of
from ckptstorm.storm.manifest import MANIFEST, SAVED, Manifest, read, to_json
from ckptstorm.storm.removal import is_real_directory, leads_elsewhere, remove_made

#: A foreign directory is not listed to its end to be refused.
_LOOKED_AT = 1000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Ground:
    """A directory that this storm has claimed; held by rank 0.

    Attributes:
        directory: absolute path.
        root_fd: the directory, open.
        lock_fd: the manifest, open and locked while the storm runs.
        manifest: what was written into it.
    """

    directory: str
    root_fd: int
    lock_fd: int
    manifest: Manifest


def inspect(directory: str) -> None:
    """Refuse a directory that a storm must not touch; creates nothing.

    Raises:
        PlaceError: a symbolic link or a file in the way, a foreign directory that is not empty, or
            one that another storm has marked.
    """
    try:
        mode = os.lstat(directory).st_mode
    except FileNotFoundError:
        _inspect_parent(directory)
        return
    except OSError as error:
        raise PlaceError(f"{directory}: cannot be looked at: {error.strerror}") from None
    if stat.S_ISLNK(mode):
        target = os.path.realpath(directory)
        raise PlaceError(f"{directory}: is a symbolic link", f"name the directory that it leads to: --dir {target}")
    if not stat.S_ISDIR(mode):
        raise PlaceError(f"{directory}: is not a directory", "name a new or an empty directory with --dir")
    entries = _entries(directory)
    if os.path.lexists(os.path.join(directory, MANIFEST)):
        raise _marked(directory)
    if entries:
        raise PlaceError(
            f"{directory}: is not empty ({len(entries)} or more entries, such as {sorted(entries)[0]!r}) and not ours",
            "a storm writes only into a directory of its own: name a new or an empty one with --dir",
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PlaceError(f"{directory}: no permission to write", "name another directory with --dir")


def claim(directory: str, manifest: Manifest) -> Ground:
    """Make the directory if need be, mark it, lock the mark.

    Raises:
        PlaceError: as `inspect`, or another storm was faster, or the directory cannot be made.
    """
    inspect(directory)
    made_count = _missing_levels(directory)
    try:
        os.makedirs(directory, exist_ok=True)
        root_fd = os.open(directory, _DIRECTORY)
        lock_fd = os.open(MANIFEST, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=root_fd)
    except FileExistsError:
        raise _marked(directory) from None
    except OSError as error:
        raise PlaceError(f"{directory}: cannot be made and marked: {error.strerror}") from None
    with contextlib.suppress(OSError):  # some mounts have no locks; the mark itself still keeps others out
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    made = replace(manifest, made_count=made_count)
    try:
        os.write(lock_fd, to_json(made).encode())
        os.fsync(lock_fd)
    except OSError as error:
        ground = Ground(directory, root_fd, lock_fd, made)
        give_back(ground)
        raise PlaceError(f"{directory}: cannot be marked: {error.strerror}") from None
    return Ground(directory, root_fd, lock_fd, made)


def adopt(directory: str) -> Ground:
    """Take over a directory that a storm has marked and left, for another one: its mark stays, locked.

    Raises:
        PlaceError: not marked, damaged, or in use.
    """
    manifest = read_manifest(directory)
    try:
        root_fd = os.open(directory, _DIRECTORY)
        lock_fd = os.open(MANIFEST, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root_fd)
    except OSError as error:
        raise PlaceError(f"{directory}: its mark cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        keep(Ground(directory, root_fd, lock_fd, manifest))
        raise PlaceError(f"{directory}: storm {manifest.storm_id} is running in it", "wait for its end") from None
    except OSError:  # some mounts have no locks
        pass
    return Ground(directory, root_fd, lock_fd, manifest)


def give_back(ground: Ground) -> bool:
    """Remove the mark, and the directories that the storm made (if nobody else put anything into them).

    Returns:
        False when something still stands under the name of a step: then the mark stays, for `ckptstorm clean`.
    """
    steps = ground.manifest.steps
    if any(is_real_directory(ground.root_fd, step) or leads_elsewhere(ground.root_fd, step) for step in steps):
        keep(ground)
        return False
    try:
        for name in (SAVED, MANIFEST):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=ground.root_fd)
    except OSError:  # a storage that fails; the mark stays, for `ckptstorm clean`
        keep(ground)
        return False
    keep(ground)
    remove_made(ground.directory, ground.manifest.made_count)
    return True


def keep(ground: Ground) -> None:
    """Leave the marked directory and its files for `ckptstorm clean`."""
    os.close(ground.lock_fd)
    os.close(ground.root_fd)


def open_root(directory: str, storm_id: str) -> int:
    """The claimed directory as another rank sees it: proof that it is the same one.

    Raises:
        PlaceError: it is not there, or holds another mark: not the same file system on this node.
    """
    try:
        root_fd = os.open(directory, _DIRECTORY)
    except OSError as error:
        raise PlaceError(f"{directory}: cannot be opened on {platform.node()}: {error.strerror}") from None
    try:
        found = read(root_fd).storm_id
    except (OSError, PlaceError):
        found = ""
    if found != storm_id:
        os.close(root_fd)
        raise PlaceError(
            f"{directory}: {platform.node()} does not see rank 0's mark in it ({_what_is_there(directory)})",
            "every node must see one and the same file system there: name a directory on it with --dir",
        )
    return root_fd


def _what_is_there(directory: str) -> str:
    mount = mount_of(directory)
    return f"{mount.type} from {mount.source} is mounted at {mount.mount_point} there"


def read_manifest(directory: str) -> Manifest:
    """What a marked directory says of itself.

    Raises:
        PlaceError: no such directory, not marked, or a damaged mark.
    """
    try:
        fd = os.open(directory, _DIRECTORY)
    except FileNotFoundError:
        raise PlaceError(f"{directory}: no such directory") from None
    except OSError as error:
        reason = "is a symbolic link or no directory" if error.errno in (errno.ELOOP, errno.ENOTDIR) else error.strerror
        raise PlaceError(f"{directory}: {reason}") from None
    try:
        return read(fd)
    except FileNotFoundError:
        raise PlaceError(f"{directory}: not marked by ckptstorm (no {MANIFEST}), so it is left alone") from None
    except OSError as error:
        raise PlaceError(f"{directory}/{MANIFEST}: cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)


def running_storm(directory: str) -> str:
    """Who is using a marked directory now, as "host, process 123"; "" when nobody is, as far as can be told."""
    manifest = read_manifest(directory)
    who = f"{manifest.host}, process {manifest.pid}"
    fd = os.open(os.path.join(directory, MANIFEST), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return who
    except OSError:  # no locks here: a process of this host can still be looked up
        is_here = manifest.host == platform.node()
        return who if is_here and os.path.exists(f"/proc/{manifest.pid}") else ""
    finally:
        os.close(fd)
    return ""


def nearest_directory(directory: str) -> str:
    """The directory, or the nearest one above it that exists."""
    path = os.path.abspath(directory)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def step_names(round_count: int, is_overwriting: bool) -> tuple[str, ...]:  # noqa: FBT001 - a fact of the layout
    """The step directory of each round, in order."""
    return tuple(f"step-{0 if is_overwriting else index}" for index in range(round_count))


def _missing_levels(directory: str) -> int:
    """How many directories have to be made for it to exist."""
    path, count = os.path.abspath(directory), 0
    while not os.path.lexists(path):
        path, count = os.path.dirname(path), count + 1
    return count


def _inspect_parent(directory: str) -> None:
    parent = os.path.dirname(os.path.abspath(directory))
    while not os.path.lexists(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise PlaceError(f"{directory}: {parent} is in the way and not a directory")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PlaceError(f"{directory}: no permission to make it in {parent}", "name another directory with --dir")


def _entries(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in itertools.islice(entries, _LOOKED_AT)]
    except OSError as error:
        raise PlaceError(f"{directory}: cannot be listed: {error.strerror}") from None


def _marked(directory: str) -> StormError:
    try:
        manifest, runner = read_manifest(directory), running_storm(directory)
    except PlaceError as error:
        return PlaceError(f"{error}: a storm does not start there", "name another directory with --dir")
    except OSError as error:
        return PlaceError(f"{directory}: its {MANIFEST} cannot be read: {error.strerror}", "name another with --dir")
    if runner:
        return PlaceError(f"{directory}: storm {manifest.storm_id} is running in it ({runner})", "name another --dir")
    return PlaceError(
        f"{directory}: still holds the files of storm {manifest.storm_id}",
        f"remove them with: ckptstorm clean {shlex.quote(directory)}",
    )
