"""Where shards land: one file for each framework's layout. A new one is a file and a line here."""

from __future__ import annotations

from ckptstorm.registry import Entry

LAYOUTS: dict[str, Entry] = {
    "dcp": Entry(
        "ckptstorm.layouts.dcp:DcpLayout",
        "torch.distributed.checkpoint with FSDP2: one file a rank, three writes a tensor, .metadata as the commit",
        "PyTorch 2.13, traced",
    ),
    "file_per_rank": Entry(
        "ckptstorm.layouts.file_per_rank:FilePerRankLayout",
        "one file a rank, one write a tensor, no header: what a storage system can do at best",
    ),
}
