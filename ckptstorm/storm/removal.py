"""Removing what a storm made: by name, never by walking a directory, and never through a symbolic link."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_made(directory: str, made_count: int) -> None:
    """Remove the directory and its parents that the storm made, as far as they are empty."""
    path = os.path.abspath(directory)
    for _ in range(made_count):
        try:
            os.rmdir(path)
        except OSError:  # not empty, or not ours to remove: it stays
            return
        path = os.path.dirname(path)


def remove_files(root_fd: int, step: str, names: Iterable[str]) -> int:
    """Remove exactly these files of a step directory, then nothing else.

    Returns:
        How many were there. Files already gone are fine; a step that is a symbolic link is not entered.
    """
    removed = 0
    with _step_fd(root_fd, step) as step_fd:
        if step_fd < 0:
            return 0
        known: dict[str, bool] = {"": True}
        for name in names:
            if not _is_real_path(step_fd, os.path.dirname(name), known):
                continue
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=step_fd)
                removed += 1
    return removed


def remove_directories(root_fd: int, step: str, names: Iterable[str]) -> None:
    """Remove the directories between a step and these files, as far as they are empty; a link is none."""
    with _step_fd(root_fd, step) as step_fd:
        if step_fd < 0:
            return
        parents = {os.path.dirname(name) for name in names} - {""}
        for parent in sorted(parents, key=len, reverse=True):
            with contextlib.suppress(OSError):  # not empty, or another rank was faster
                os.rmdir(parent, dir_fd=step_fd)


def remove_named_directories(root_fd: int, step: str, names: Iterable[str]) -> None:
    """Remove these directories below a step, children first, as far as they are empty; a link is none."""
    with _step_fd(root_fd, step) as step_fd:
        known: dict[str, bool] = {"": True}
        for name in sorted(names, key=lambda each: -each.count("/")) if step_fd >= 0 else ():
            if not _is_real_path(step_fd, os.path.dirname(name), known):
                continue
            with contextlib.suppress(OSError):  # not there, not empty, or a link
                os.rmdir(name, dir_fd=step_fd)


def is_real_directory(root_fd: int, step: str) -> bool:
    """Whether the step directory is there, and is no symbolic link that leads elsewhere."""
    try:
        return stat.S_ISDIR(os.stat(step, dir_fd=root_fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_real_path(step_fd: int, path: str, known: dict[str, bool]) -> bool:
    """Whether a directory and all above it, up to the step, are real ones; `known` remembers."""
    if path not in known:
        known[path] = _is_real_path(step_fd, os.path.dirname(path), known) and is_real_directory(step_fd, path)
    return known[path]


def leads_elsewhere(root_fd: int, name: str) -> bool:
    """Whether something is there under that name that is no directory of ours: a link, a file."""
    try:
        return not stat.S_ISDIR(os.stat(name, dir_fd=root_fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


def remove_step(root_fd: int, step: str) -> bool:
    """Remove an emptied step directory; False when it holds something that is not ours."""
    try:
        os.rmdir(step, dir_fd=root_fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True


@contextlib.contextmanager
def _step_fd(root_fd: int, step: str) -> Iterator[int]:
    try:
        fd = os.open(step, _DIRECTORY, dir_fd=root_fd)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            yield -1
            return
        raise
    try:
        yield fd
    finally:
        os.close(fd)
