"""Local file systems on loop devices: XFS, ext4 and btrfs with a device whose speed can be set exactly."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.require import missing
from tests.services.machine import folder, mounted, need, run

_MAKERS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
}
_CGROUP = Path("/sys/fs/cgroup/blkio")


@dataclass(frozen=True)
class Loop:
    """A mounted image.

    Attributes:
        kind: "xfs", "ext4", "btrfs".
        mount: where.
        image: the file behind it.
        device: "/dev/loop3".
    """

    kind: str
    mount: Path
    image: Path
    device: str

    def throttle(self, bytes_per_s: int) -> None:
        """Let the device write no faster than this; 0 lifts it. Undone when the image is unmounted."""
        number = os.stat(self.device).st_rdev
        _throttle(f"{os.major(number)}:{os.minor(number)}", bytes_per_s)


@contextlib.contextmanager
def loop(kind: str, size: str = "512M", within: Path | None = None, name: str = "disk") -> Iterator[Loop]:
    """A file system of this kind in a sparse image, mounted.

    Args:
        kind: a key of `_MAKERS`.
        size: of the image ("512M"; XFS wants 300M at least).
        within: a folder of the caller's for image and mount; one of our own when left out.
        name: of image and mount point in it.
    """
    need("loop", _MAKERS[kind][0], "losetup")
    with contextlib.ExitStack() as stack:
        place = within or stack.enter_context(folder("loop"))
        image, mount = place / f"{name}.img", place / name
        mount.mkdir()
        run("truncate", "-s", size, image)
        run(*_MAKERS[kind], image)
        try:
            run("mount", "-o", "loop", image, mount)
        except AssertionError as error:
            missing("loop", f"cannot mount a loop image: {error}")
        stack.enter_context(mounted(mount))
        device = run("findmnt", "-n", "-o", "SOURCE", "--mountpoint", mount).strip()
        made = Loop(kind, mount, image, device)
        if can_throttle():
            stack.callback(made.throttle, 0)
        yield made


def can_throttle() -> bool:
    """Whether this machine has the cgroup that throttles devices."""
    return (_CGROUP / "blkio.throttle.write_bps_device").exists()


def _throttle(device: str, bytes_per_s: int) -> None:
    if not can_throttle():
        missing("blkio", f"{_CGROUP}: no cgroup v1 that throttles devices")
    (_CGROUP / "blkio.throttle.write_bps_device").write_text(f"{device} {bytes_per_s}")
    (_CGROUP / "blkio.throttle.read_bps_device").write_text(f"{device} {bytes_per_s}")
