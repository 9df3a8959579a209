"""A file system in user space that fails on purpose: chosen ops on chosen files, while all others stay well.

It passes everything on to a folder of its own and looks, before each call, into a list of faults that the
test may change at any time. Faults: an errno, short writes, a call that does not return (until it is let
go), a call that is acknowledged and dropped. It can also forget: `power_cut` takes away all that was not
synced, as a server does that loses its power.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 30.0


@dataclass
class Fault:
    """One fault.

    Attributes:
        ops: names of calls: read, write, fsync, create, open, mkdir, rename, readdir, getattr, unlink, flush.
        glob: a pattern over the path below the mount ("/data/*/x").
        errno: what the call answers; "" for none.
        after_bytes: reads and writes that end at or before this offset are well.
        short: so many bytes of a write, or of a read, are moved at most; 0: all.
        hold: the call does not return before the fault is lifted.
        lie: the call is acknowledged and not made.
        times: how often it falls; -1: always.
    """

    ops: list[str]
    glob: str = "*"
    errno: str = ""
    after_bytes: int = 0
    short: int = 0
    hold: bool = False
    lie: bool = False
    times: int = -1


@dataclass
class FaultFs:
    """A mounted file system that fails as it is told.

    Attributes:
        mount, backing: where it is seen, and where its files really are.
    """

    mount: Path
    backing: Path
    control: Path
    faults: list[Fault] = field(default_factory=list)
    timers: list[threading.Timer] = field(default_factory=list)

    def plant(self, **fault: Any) -> None:
        """Add a fault."""
        self.faults.append(Fault(**fault))
        self._write()

    def clear(self) -> None:
        """Lift all faults; held calls return."""
        self.faults.clear()
        self._write()

    def release_after(self, seconds: float) -> None:
        """Lift all faults a little later."""
        self.timers.append(threading.Timer(seconds, self.clear))
        self.timers[-1].start()

    def power_cut(self) -> None:
        """Forget all that was not synced; the mount stays."""
        with contextlib.suppress(FileNotFoundError):  # it is a request, and never becomes a directory
            (self.mount / ".power-cut").mkdir()

    def _write(self) -> None:
        growing = self.control.with_suffix(".new")
        growing.write_text(json.dumps([asdict(fault) for fault in self.faults]))
        growing.rename(self.control)


@contextlib.contextmanager
def fault_fs(place: Path, *, forgets: bool = False) -> Iterator[FaultFs]:
    """Mount one below `place`; unmounted, and its process ended, afterwards.

    Args:
        place: a folder of the test's own.
        forgets: whether `power_cut` takes away what was not synced (every sync then copies the file).
    """
    from tests.require import missing

    if os.geteuid() != 0 or not os.path.exists("/dev/fuse") or shutil.which("fusermount3") is None:
        missing("fuse", "needs root, /dev/fuse and fusermount3")
    try:
        import mfusepy  # noqa: F401 - only whether it is there
    except (ImportError, OSError) as error:
        missing("fuse", f"mfusepy: {error}")
    home = place / "fault-fs"
    made = FaultFs(home / "mount", home / "backing", home / "faults.json")
    for folder in (made.mount, made.backing, home / "durable"):
        folder.mkdir(parents=True)
    made.clear()
    words = [sys.executable, __file__, str(home), "forgets" if forgets else "keeps"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.ismount(made.mount):
            assert process.poll() is None and time.monotonic() < deadline, (home / "log").read_text()
            time.sleep(0.02)
        yield made
    finally:
        for timer in made.timers:
            timer.cancel()
        made.clear()
        subprocess.run(["umount", "--lazy", str(made.mount)], check=False, capture_output=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        process.kill()
        process.wait()


class _Faults:
    """The faults that hold at this moment."""

    def __init__(self, control: Path) -> None:
        self._control, self._seen, self._faults = control, -1, list[dict[str, Any]]()
        self._lock = threading.Lock()

    def meet(self, op: str, path: str, end: int = 0) -> dict[str, Any]:
        """The first fault for this call ({} for none), held as long as it is to be held."""
        fault = self._match(op, path, end)
        while fault.get("hold") and fault in self._now():
            time.sleep(0.02)
        if fault.get("errno"):
            number = getattr(errno, fault["errno"])
            raise OSError(number, os.strerror(number))
        return {} if fault.get("hold") else fault

    def _match(self, op: str, path: str, end: int) -> dict[str, Any]:
        with self._lock:
            for fault in self._now():
                is_beyond = not fault["after_bytes"] or end > fault["after_bytes"]
                if op in fault["ops"] and fnmatch.fnmatch(path, fault["glob"]) and is_beyond and fault["times"]:
                    fault["times"] -= fault["times"] > 0
                    return fault
        return {}

    def _now(self) -> list[dict[str, Any]]:
        changed = self._control.stat().st_mtime_ns
        if changed != self._seen:
            self._seen, self._faults = changed, json.loads(self._control.read_text())
        return self._faults


class _Durable:
    """What has reached the disk: contents by inode at their last sync, names at the last sync of their directory.

    A sync of a new file also keeps its name, as ext4 and XFS do.
    """

    def __init__(self, backing: Path, store: Path) -> None:
        self._backing, self._store = backing, store
        self._names: dict[str, dict[str, int]] = {}
        self._directories: set[str] = {""}

    def sync_file(self, path: str, fd: int) -> None:
        """A file's content, and its name when it has none yet."""
        number = os.fstat(fd).st_ino
        shutil.copyfile(f"/proc/self/fd/{fd}", self._store / str(number))
        directory, name = os.path.split(path.lstrip("/"))
        self._keep_directory(directory)
        self._names.setdefault(directory, {}).setdefault(name, number)

    def sync_directory(self, path: str) -> None:
        """The names in a directory."""
        directory = path.strip("/")
        self._keep_directory(directory)
        entries = list(os.scandir(self._backing / directory))
        self._names[directory] = {
            entry.name: entry.inode() for entry in entries if entry.is_file(follow_symlinks=False)
        }
        self._directories |= {f"{directory}/{entry.name}".lstrip("/") for entry in entries if entry.is_dir()}

    def restore(self) -> None:
        """Make the backing folder what had reached the disk; a file whose content never did is empty."""
        for entry in list(os.scandir(self._backing)):
            shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
        for directory in sorted(self._directories):
            (self._backing / directory).mkdir(exist_ok=True, parents=True)
        for directory, names in self._names.items():
            for name, number in names.items():
                kept, target = self._store / str(number), self._backing / directory / name
                target.write_bytes(kept.read_bytes() if kept.exists() else b"")

    def _keep_directory(self, directory: str) -> None:
        while directory not in self._directories:
            self._directories.add(directory)
            directory = os.path.dirname(directory)


def _serve(home: Path, *, forgets: bool) -> None:
    """Mount and answer until unmounted."""
    import mfusepy

    faults = _Faults(home / "faults.json")
    durable = _Durable(home / "backing", home / "durable") if forgets else None
    stat_keys = ("st_mode", "st_size", "st_nlink", "st_uid", "st_gid", "st_ino", "st_blocks")
    space_names = ("bavail", "bfree", "blocks", "bsize", "favail", "ffree", "files", "frsize", "namemax")

    class Passing(mfusepy.Operations):
        use_ns = True

        def _at(self, path: str) -> str:
            return f"{home}/backing{path}"

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            faults.meet("getattr", path)
            status = os.lstat(self._at(path))
            times = {f"st_{name}": getattr(status, f"st_{name}_ns") for name in ("atime", "mtime", "ctime")}
            return {key: getattr(status, key) for key in stat_keys} | times

        def statfs(self, path: str) -> dict[str, int]:
            figures = os.statvfs(self._at(path))
            return {f"f_{name}": getattr(figures, f"f_{name}") for name in space_names}

        def readdir(self, path: str, fh: int) -> list[str]:
            faults.meet("readdir", path)
            return [".", "..", *os.listdir(self._at(path))]

        def mkdir(self, path: str, mode: int) -> int:
            if path == "/.power-cut" and durable is not None:
                durable.restore()
                return 0
            faults.meet("mkdir", path)
            os.mkdir(self._at(path), mode)
            return 0

        def rmdir(self, path: str) -> int:
            os.rmdir(self._at(path))
            return 0

        def unlink(self, path: str) -> int:
            faults.meet("unlink", path)
            os.unlink(self._at(path))
            return 0

        def rename(self, old: str, new: str, *flags: int) -> int:
            faults.meet("rename", new)
            os.rename(self._at(old), self._at(new))
            return 0

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            faults.meet("create", path)
            return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

        def open(self, path: str, flags: int) -> int:
            faults.meet("open", path)
            access = os.O_RDWR if flags & os.O_ACCMODE else os.O_RDONLY
            return os.open(self._at(path), access | flags & os.O_TRUNC)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            fault = faults.meet("read", path, offset + size)
            return os.pread(fh, fault.get("short") or size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            fault = faults.meet("write", path, offset + len(data))
            if fault.get("lie"):
                return len(data)
            return os.pwrite(fh, data[: fault.get("short") or len(data)], offset)

        def flush(self, path: str, fh: int) -> int:
            faults.meet("flush", path)
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            if not faults.meet("fsync", path).get("lie") and durable is not None:
                durable.sync_file(path, fh)
            return 0

        def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
            if not faults.meet("fsyncdir", path).get("lie") and durable is not None:
                durable.sync_directory(path)
            return 0

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            os.truncate(self._at(path), length)
            return 0

        def chmod(self, path: str, mode: int) -> int:
            os.chmod(self._at(path), mode)
            return 0

        def utimens(self, path: str, times: Any = None) -> int:
            os.utime(self._at(path))
            return 0

    mfusepy.FUSE(Passing(), str(home / "mount"), foreground=True, allow_other=True, fsname="ckptstorm-faults")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), forgets=sys.argv[2] == "forgets")
