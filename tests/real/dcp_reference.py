"""The real thing: one rank of a PyTorch job that saves and restores through DCP, for strace to watch.

Started by `strace_log.trace`, once a rank, by an interpreter that has torch. It imports nothing of
ckptstorm: the tensor list arrives as a JSON file, so a wrong list cannot hide in both.
Phases are told to the trace by a stat of "/MARK/<phase>", which no file system has.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def build(tensors):
    """A module whose parameters have exactly these (name, shape)s, in this order."""
    root = nn.Module()
    for name, shape in tensors:
        *owners, leaf = name.split(".")
        module = root
        for owner in owners:
            if owner not in module._modules:
                module.add_module(owner, nn.Module())
            module = module._modules[owner]
        module.register_parameter(leaf, nn.Parameter(torch.zeros(shape)))
    return root


def mark(phase):
    """A line in the trace."""
    with contextlib.suppress(OSError):
        Path(f"/MARK/{phase}").stat()


def shard(model, sharding, rank_count, replicas):
    """The model as the job holds it."""
    if sharding == "ddp":
        return DistributedDataParallel(model)
    names = {"hsdp": ("replicate", "shard"), "fsdp2": ("shard",)}[sharding]
    sizes = {"hsdp": (replicas, rank_count // replicas), "fsdp2": (rank_count,)}[sharding]
    fully_shard(model, mesh=init_device_mesh("cpu", sizes, mesh_dim_names=names))
    return model


def trained(model):
    """A model with an optimizer that has made a step, and both their states."""
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return optimizer, {"model": model_state, "optim": optimizer_state}


def in_another_world(task, variant, rank):
    """A save by the first ranks, and a restore by as many of the first ranks as asked."""
    worlds = [DeviceMesh("cpu", list(range(variant[key])), mesh_dim_names=("shard",)) for key in ("save", "restore")]
    directory = Path(task["directory"]) / variant["name"]
    for world, phase in zip(worlds, ("save", "restore"), strict=True):
        dist.barrier()
        mark(phase)
        if rank < variant[phase]:
            model = build(task["tensors"])
            fully_shard(model, mesh=world)
            _, state = trained(model)
            if phase == "save":
                dcp.save(state, storage_writer=dcp.FileSystemWriter(directory), process_group=world.get_group())
            else:
                dcp.load(state, checkpoint_id=directory, process_group=world.get_group())
        mark(f"{phase}d")
    dist.barrier()


def save_and_restore(task, variant):
    """One model: as many saves into one directory as asked, and a restore."""
    model = shard(build(task["tensors"]), variant["sharding"], task["rank_count"], variant.get("replicas", 1))
    optimizer, state = trained(model)
    directory = Path(task["directory"]) / variant.get("name", "")
    options = {"thread_count": variant["threads"], "single_file_per_rank": not variant.get("file_per_tensor", False)}
    for _ in range(variant["saves"]):
        dist.barrier()
        mark("save")
        dcp.save(state, storage_writer=dcp.FileSystemWriter(directory, **options))
        mark("saved")
    dist.barrier()
    mark("restore")
    dcp.load(state, checkpoint_id=directory)
    mark("restored")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    dist.barrier()


def main():
    """argv: JSON file with rank_count, port, directory, tensors, and threads and saves or `variants`; then the rank."""
    task, rank = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(task["port"])}
    dist.init_process_group("gloo", rank=rank, world_size=task["rank_count"])
    only = {"sharding": "fsdp2"} | {key: task.get(key, 1) for key in ("threads", "saves")}
    for variant in task.get("variants", [only]):
        if "restore" in variant:
            in_another_world(task, variant, rank)
        else:
            save_and_restore(task, variant)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
