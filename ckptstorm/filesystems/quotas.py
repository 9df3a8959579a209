"""The quota of the user who runs the storm, asked of the kernel by quotactl(2): no program or privilege needed."""

from __future__ import annotations

import ctypes
import os

from ckptstorm.filesystems.contract import CannotError, Quota

#: QCMD(Q_GETQUOTA, USRQUOTA) of linux/quota.h.
_GET_USER_QUOTA = 0x800007 << 8
#: Limits are counted in blocks of 1 KiB, usage in bytes (linux/quota.h, QIF_DQBLKSIZE).
_LIMIT_UNIT_BYTES = 1024


class _Block(ctypes.Structure):
    """struct if_dqblk."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("hard", "soft", "used", "inode_hard", "inode_soft", "inodes")),
        *((name, ctypes.c_uint64) for name in ("block_time", "inode_time")),
        ("valid", ctypes.c_uint32),
    )


def user_quota(device: str) -> Quota:
    """What this user may write on a device ("/dev/sda1").

    Raises:
        CannotError: no quotas are on there.
    """
    user, block = os.getuid(), _Block()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.quotactl(_GET_USER_QUOTA, os.fsencode(device), user, ctypes.byref(block)):
        raise CannotError("quota", f"no user quota on {device}: {os.strerror(ctypes.get_errno())}")
    limits = [limit * _LIMIT_UNIT_BYTES for limit in (block.hard, block.soft) if limit]
    inodes = [limit for limit in (block.inode_hard, block.inode_soft) if limit]
    return Quota(f"user {user}", int(block.used), min(limits, default=0), int(block.inodes), min(inodes, default=0))
