"""The real thing: one rank of Megatron-LM's `save_checkpoint` and load, on CPU, for strace to watch.

Megatron needs CUDA for what it computes, not for what it stores: its own code for checkpoints runs here
over gloo, with a hand-made sharded state dict (keys and offsets as its modules make them), the real
buffer layout of its distributed optimizer, and stand-ins for the parts that are never called.
Started by `strace_log.trace`, once a rank; it imports nothing of ckptstorm.
"""

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import typing
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
import torch.distributed as dist

# Parts that need triton or a GPU to be imported.
STAND_INS = (
    "megatron.core.transformer.moe.ops", "megatron.core.ssm", "megatron.training.models", "megatron.rl",
    "megatron.core.models.hybrid", "megatron.core.models.mamba", "megatron.training.distillation",
    "megatron.core.inference",
)  # fmt: skip


class StandIn(MagicMock):
    """A module of which anything can be imported."""

    __path__ = ()
    __file__ = "stand-in"


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for the modules above."""

    def find_spec(self, name, path, target=None):
        """A specification for a stand-in, or nothing."""
        if any(name == part or name.startswith(f"{part}.") for part in STAND_INS):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """The stand-in."""
        module = StandIn(name=spec.name)
        module.__spec__ = spec
        return module

    def exec_module(self, module):
        """Nothing to run."""


def mark(phase):
    """A line in the trace."""
    with contextlib.suppress(OSError):
        Path(f"/MARK/{phase}").stat()


def on_cpu():
    """Flags that Megatron puts on the GPU live on the CPU here."""
    made = torch.tensor

    def tensor(*values, **options):
        return made(*values, **(options | ({"device": "cpu"} if options.get("device") is not None else {})))

    torch.tensor = tensor
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"


def sharded_model(task, tensor, data, mapping):
    """Parameters as their modules declare them: flat here, but with their keys, layers and offsets."""
    held, layers, parts_of = {}, task["layers"], task["tensor"]
    for at, (key, layer, parts, is_copied) in enumerate(task["parameters"]):
        for part, count in enumerate(parts):
            values = torch.zeros(count, dtype=torch.bfloat16)
            in_layer = key.startswith("decoder.layers.")
            lead = 1 if in_layer else 0
            offsets = [(0, layer, layers)] if in_layer else []
            if not is_copied:
                offsets.append((lead, tensor + part * parts_of, parts_of * len(parts)))
            replica = (0, tensor if is_copied else 0, data)
            held[f"{at}.{part}"] = mapping.ShardedTensor.from_rank_offsets(
                key, values, *offsets, replica_id=replica, prepend_axis_num=lead
            )
    return held


def sharded_optimizer(task, tensor, data, mapping, optimizer):
    """`sharded_param_state_dp_reshardable` for the buffer that Megatron's own code lays out."""
    counts = [sum(parts) for _, _, parts, _ in task["parameters"]]
    parameters = [torch.nn.Parameter(torch.empty(count, device="meta")) for count in counts]
    layout = optimizer._compute_per_buffer_param_layout(
        parameters, task["bucket"], task["data"], SimpleNamespace(pad_buckets_for_high_nccl_busbw=False)
    )
    prefix = f"optimizer.distributed.dp_group_idx_{tensor}"
    state = {}
    for name in ("per_bucket_numel", "per_bucket_numel_unpadded"):
        numbers = [{("torch.bfloat16", "torch.float32"): layout.per_bucket_numel_unpadded}]
        state[name] = mapping.ShardedObject(f"{prefix}.{name}", numbers, (1,), (0,), replica_id=(0, 0, data))
    buckets = []
    for bucket, (low, high) in enumerate(layout.bucket_indices):
        share, unpadded, items = (high - low) // task["data"], layout.per_bucket_numel_unpadded[bucket], []
        start, end = low + data * share, low + (data + 1) * share
        for first, last, _ in layout.param_index_map.values():
            here, there = max(first, start), min(last, end)
            if there > here:
                key = f"{prefix}.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32).bucket_idx_{bucket}"
                items.append({
                    name: mapping.ShardedTensor(
                        f"{key}.{name}", torch.zeros(there - here), torch.float32, (there - here,), (unpadded,),
                        (here - low,), axis_fragmentations=None, replica_id=(0, 0, 0),
                    )
                    for name in ("param", "exp_avg", "exp_avg_sq")
                })  # fmt: skip
        buckets.append(items)
    return {"param_state": state | {0: {"dtype": buckets}}}


def whole_state(task, data, group, optimizer):
    """(weights, optimizer) of the legacy format: views of one buffer, and a stand-in with Megatron's own gather."""
    counts = [sum(parts) for _, _, parts, _ in task["parameters"]]
    parameters = [torch.nn.Parameter(torch.empty(count, device="meta")) for count in counts]
    layout = optimizer._compute_per_buffer_param_layout(
        parameters, task["bucket"], task["data"], SimpleNamespace(pad_buckets_for_high_nccl_busbw=False)
    )
    weights = torch.zeros(layout.bucket_indices[-1][1], dtype=torch.bfloat16)
    views = {str(at): weights[low:high] for at, (low, high, _) in enumerate(layout.param_index_map.values())}
    ranges, buckets = [], []
    for bucket, (low, high) in enumerate(layout.bucket_indices):
        share = (high - low) // task["data"]
        start, held = low + data * share, {}
        for parameter, (first, last, _) in layout.param_index_map.items():
            here, there = max(first, start), min(last, start + share)
            if there > here:
                held[parameter] = {"gbuf_local": SimpleNamespace(start=here - start, end=there - start)}
        ranges.append({"param_map": held})
        unpadded = layout.per_bucket_numel_unpadded[bucket]
        buckets.append(SimpleNamespace(grad_data=torch.empty(high - low, device="meta"), numel_unpadded=unpadded))
    own = {parameter: place["gbuf_local"] for part in ranges for parameter, place in part["param_map"].items()}

    def states(parameter):
        values = torch.zeros(own[parameter].end - own[parameter].start)
        return dict.fromkeys(("param", "exp_avg", "exp_avg_sq"), values)

    stand_in = SimpleNamespace(
        is_stub_optimizer=False, data_parallel_group=group, data_parallel_group_gloo=group,
        gbuf_ranges=[{"dtype": ranges}], optimizer_state_keys=("exp_avg", "exp_avg_sq"),
        buffers=[SimpleNamespace(numel_unpadded=sum(layout.per_bucket_numel_unpadded), buckets=buckets)],
        _get_main_param_and_optimizer_states=states,
    )  # fmt: skip
    stand_in.get_parameter_state_dp_zero = lambda: optimizer.get_parameter_state_dp_zero(stand_in)
    stand_in.save_parameter_state = lambda name: optimizer.save_parameter_state(stand_in, name)
    return views, stand_in


def arguments(directory, way):
    """What the two functions ask of the command line; `way` is that of the load, or "legacy"."""
    legacy = {"use_dist_ckpt": False, "ckpt_format": "torch"} if way == "legacy" else {}
    asked = {
        "async_save": False, "use_dist_ckpt": True, "save": str(directory), "load": str(directory),
        "ckpt_format": "torch_dist", "use_distributed_optimizer": True, "ckpt_fully_parallel_save": True,
        "ckpt_fully_parallel_save_process_group": "dp", "ckpt_fully_parallel_load": way == "own",
        "ckpt_fully_parallel_load_process_group": "dp", "ckpt_fully_parallel_load_exchange_algo": "gather_object",
        "ckpt_load_validate_sharding_integrity": True, "dist_ckpt_strictness": "assume_ok_unexpected",
        "no_save_optim": False, "dist_ckpt_optim_fully_reshardable": False, "verify_integrity": False,
        "async_strategy": "mcore", "dist_ckpt_workers": 1, "exit_on_missing_checkpoint": False,
    }  # fmt: skip

    class Arguments(SimpleNamespace):
        def __getattr__(self, name):
            return None

    return Arguments(**(asked | legacy))


def main():
    """argv: JSON file with the task (see test_megatron); the rank."""
    task, rank = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    sys.path[:0] = task["source"]
    sys.meta_path.insert(0, StandInFinder())
    typing.override = lambda function: function
    torch.set_num_threads(1)
    on_cpu()
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(task["port"])}
    dist.init_process_group("gloo", rank=rank, world_size=task["rank_count"])
    from megatron.core.dist_checkpointing import mapping
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    from megatron.training import checkpointing

    data, tensor = divmod(rank, task["tensor"])
    groups = [dist.new_group(list(range(at, task["rank_count"], task["tensor"]))) for at in range(task["tensor"])]
    for name in ("mpu", "ft_integration", "on_save_checkpoint_start", "on_save_checkpoint_success", "wandb_utils"):
        setattr(checkpointing, name, MagicMock())
    checkpointing.get_rerun_state_machine = lambda: SimpleNamespace(state_dict=lambda **_: None)
    checkpointing.get_rng_state = lambda *_, **__: mapping.ShardedObject(
        "rng_state", [torch.zeros(5056, dtype=torch.uint8)], (1, task["tensor"]), (0, tensor), replica_id=data
    )
    checkpointing.unwrap_model = lambda model: model

    def state(*_, **options):
        made = {"args": argparse.Namespace(told=list(range(9000))), "model": sharded_model(task, tensor, data, mapping)}
        made["optimizer"] = sharded_optimizer(task, tensor, data, mapping, DistributedOptimizer)
        return made | {"rng_state": checkpointing.get_rng_state()}

    checkpointing.mpu.configure_mock(**{
        "get_pipeline_model_parallel_world_size.return_value": 1, "get_pipeline_model_parallel_rank.return_value": 0,
        "get_expert_model_parallel_world_size.return_value": 1, "get_expert_model_parallel_rank.return_value": 0,
        "get_tensor_model_parallel_rank.return_value": tensor,
    })  # fmt: skip
    views, whole = whole_state(task, data, groups[tensor], DistributedOptimizer)

    def legacy_state(*_, **__):
        return {
            "args": {"told": list(range(9000))},
            "model": views,
            "rng_state": [torch.zeros(5056, dtype=torch.uint8)],
        }

    for name, way in task["variants"].items():
        checkpointing.generate_state_dict = legacy_state if way == "legacy" else state
        asked = arguments(Path(task["directory"]) / name, way)
        checkpointing.get_args = lambda asked=asked: asked
        dist.barrier()
        mark("save")
        checkpointing.save_checkpoint(
            1000, [None], whole, None, 0,
            tp_group=groups[tensor], pp_group=groups[tensor], dp_cp_group=groups[tensor], dp_group=groups[tensor],
            expt_dp_group=groups[tensor],
        )  # fmt: skip
        mark("saved")
        dist.barrier()
        mark("restore")
        passes = ({"rank0": True}, {"sharded_state_dict": state(), "dp_cp_group": groups[tensor]})
        for options in passes[way == "legacy" :]:
            checkpointing._load_base_checkpoint(asked.load, asked, **options)
        if way == "legacy" and data == 0:  # `load_parameter_state`, as `load_checkpoint` calls it
            torch.load(Path(asked.load) / f"iter_0001000/mp_rank_{tensor:02d}/distrib_optim.pt")
        mark("restored")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
