"""Where shards land: one file for each framework's layout. A new one is a file and a line here."""

from __future__ import annotations

from ckptstorm.registry import Entry

LAYOUTS: dict[str, Entry] = {
    "dcp": Entry(
        "ckptstorm.layouts.dcp:DcpLayout",
        "torch.distributed.checkpoint with FSDP2, HSDP, DDP: three writes a tensor, .metadata as the commit",
        "PyTorch 2.13, traced",
    ),
    "deepspeed": Entry(
        "ckptstorm.layouts.deepspeed:DeepSpeedLayout",
        "ZeRO-1, 2 and 3: flat optimizer files of every rank, weights once (or 2N files), latest, no sync",
        "DeepSpeed 0.19.6; ZeRO-1 and 3 traced",
    ),
    "fsdp_full": Entry(
        "ckptstorm.layouts.fsdp_full:FsdpFullLayout",
        "FULL_STATE_DICT: rank 0 gathers all and saves two files; the others wait",
        "PyTorch 2.13, its torch.save and torch.load calls traced",
    ),
    "mlperf": Entry(
        "ckptstorm.layouts.mlperf:MlperfLayout",
        "MLPerf Storage v2.0: DLIO's files for 8B, 70B, 405B and 1T models, to the byte",
        "DLIO mlperf_storage_v2.0 (392621b), read; its torch.save calls traced",
    ),
    "file_per_rank": Entry(
        "ckptstorm.layouts.file_per_rank:FilePerRankLayout",
        "one file a rank, one write a tensor, no header: what a storage system can do at best",
        "this project's own yardstick, no framework's format",
    ),
    "megatron_dist": Entry(
        "ckptstorm.layouts.megatron_dist:MegatronDistLayout",
        "Megatron-LM torch_dist: weights dealt to all ranks, optimizer buckets; a rank reads its whole bf16 shard",
        "Megatron-LM d98e8a6 and megatron-core 0.19.2, traced on CPU",
    ),
    "megatron_legacy": Entry(
        "ckptstorm.layouts.megatron_legacy:MegatronLegacyLayout",
        "Megatron-LM torch: a directory for each model-parallel rank, written by its first data rank, no sync",
        "Megatron-LM d98e8a6 and megatron-core 0.19.2, traced on CPU",
    ),
    "safetensors": Entry(
        "ckptstorm.layouts.safetensors:SafetensorsLayout",
        "Hugging Face weights: rank 0 writes bf16 files of a size and an index, every rank maps all of them",
        "safetensors 0.7 and 0.8, traced",
    ),
    "file_per_node": Entry(
        "ckptstorm.layouts.file_per_node:FilePerNodeLayout",
        "one file a node, written by its first rank for all or by all side by side",
        "this project's own, after aggregating writers such as VELOC and ADIOS2",
    ),
    "shared_file": Entry(
        "ckptstorm.layouts.shared_file:SharedFileLayout",
        "one file for all ranks (N-1), segmented or strided",
        "IOR's two N-1 patterns, on the shards of a model",
    ),
    "orbax": Entry(
        "ckptstorm.layouts.orbax:OrbaxLayout",
        "approximation of Orbax OCDBT: gathered writes, few files, an index synced over and over, a read an array",
        "Orbax 0.12.8, one process watched under strace and extended",
    ),
}
