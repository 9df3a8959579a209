"""What a mount is and offers beyond POSIX: one adapter a file system, one line each in the table."""

from __future__ import annotations

from ckptstorm.filesystems.contract import Adapter
from ckptstorm.filesystems.machine import Machine
from ckptstorm.filesystems.mount import Mount
from ckptstorm.registry import Entry, find

#: Looked through in this order: the first that matches a mount is its adapter, and the last matches all.
FILE_SYSTEMS: dict[str, Entry] = {
    "lustre": Entry("ckptstorm.filesystems.lustre:Lustre", "Lustre: stripes, OSTs, pools; bytes by each OSC"),
    "gpfs": Entry("ckptstorm.filesystems.gpfs:Gpfs", "IBM Storage Scale (GPFS): pools, filesets, mmpmon"),
    "wekafs": Entry("ckptstorm.filesystems.wekafs:WekaFS", "WekaFS: the mount's mode, the cluster's figures"),
    "beegfs": Entry("ckptstorm.filesystems.beegfs:BeeGFS", "BeeGFS: patterns and storage targets"),
    "nfs": Entry("ckptstorm.filesystems.nfs:Nfs", "NFS: versions, sizes, caching; bytes asked of the server"),
    "moosefs": Entry("ckptstorm.filesystems.moosefs:MooseFS", "MooseFS: chunks and goals, its client's network"),
    "glusterfs": Entry("ckptstorm.filesystems.glusterfs:GlusterFS", "GlusterFS: bricks, bytes exchanged with each"),
    "juicefs": Entry("ckptstorm.filesystems.juicefs:JuiceFS", "JuiceFS: object store, bytes got and put"),
    "cephfs": Entry("ckptstorm.filesystems.cephfs:CephFS", "CephFS: layouts by attributes, objects on OSDs"),
    "local": Entry("ckptstorm.filesystems.local:Local", "XFS, ext4, btrfs and others on a disk of one node"),
    "memory": Entry("ckptstorm.filesystems.memory:Memory", "tmpfs, ramfs: memory, and no checkpoint"),
    "generic": Entry("ckptstorm.filesystems.generic:Generic", "any other: what POSIX says of it, and no more"),
}


def adapter_class(mount: Mount) -> type[Adapter]:
    """The adapter for a mount."""
    for name in FILE_SYSTEMS:
        adapter: type[Adapter] = find("file system", FILE_SYSTEMS, name)
        if adapter.matches(mount):
            return adapter
    raise AssertionError("the generic adapter matches every mount")


def adapter_of(mount: Mount, machine: Machine | None = None) -> Adapter:
    """The adapter for a mount, ready to be asked."""
    return adapter_class(mount)(mount, machine or Machine())
