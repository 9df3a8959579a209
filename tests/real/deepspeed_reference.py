"""The real thing: one rank of a DeepSpeed ZeRO job on CPU that saves and restores, for strace to watch.

Started by `strace_log.trace`, once a rank, by an interpreter that has deepspeed. It imports nothing of
ckptstorm. Phases are told to the trace by a stat of "/MARK/<phase>".
"""

import contextlib
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
from deepspeed.pipe import PipelineModule
from torch import nn


class Owner(nn.Module):
    """A module whose forward touches all its parameters, so that every stage gathers them as it does in training."""

    def forward(self):
        """A loss."""
        own = sum((parameter.float().square().sum() for parameter in self.parameters(recurse=False)), torch.zeros(()))
        return own + sum((child() for child in self.children()), torch.zeros(()))


def build(tensors, experts=None):
    """A module whose parameters have exactly these (name, shape)s, in this order; experts are DeepSpeed's own."""
    root = Owner()
    for name, shape in tensors:
        if experts and f".{experts['at']}." in name:
            owner = root.get_submodule(name.split(f".{experts['at']}.")[0])
            if experts["at"] not in owner._modules:
                one = build(experts["tensors"])
                owner.add_module(
                    experts["at"], MoE(experts["hidden"], one, experts["count"], ep_size=experts["parallel"])
                )
            continue
        *owners, leaf = name.split(".")
        module = root
        for owner in owners:
            if owner not in module._modules:
                module.add_module(owner, Owner())
            module = module._modules[owner]
        module.register_parameter(leaf, nn.Parameter(torch.zeros(shape)))
    return root


class Layer(nn.Module):
    """One layer of a pipeline, with exactly these parameters."""

    def __init__(self, tensors):
        super().__init__()
        self.held = build(tensors)
        for name, module in list(self.held.named_children()):
            self.add_module(name, module)
        for name, parameter in list(self.held.named_parameters(recurse=False)):
            self.register_parameter(name, parameter)
        del self._modules["held"]

    def forward(self, x):
        """Something that depends on all of them."""
        return x + sum(parameter.float().sum() for parameter in self.parameters())


def mark(phase):
    """A line in the trace."""
    with contextlib.suppress(OSError):
        Path(f"/MARK/{phase}").stat()


def pipeline(layers, stages):
    """The layers dealt out evenly."""
    made = [Layer(tensors) for tensors in layers]
    return PipelineModule(
        layers=made, num_stages=stages, loss_fn=lambda out, _: out.float().mean(), partition_method="uniform"
    )


def main():
    """argv: JSON file with rank_count, port, directory, tensors, stage (and stages, layers); then the rank."""
    task, rank = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(task["port"]), "RANK": str(rank)}
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(task["rank_count"])}
    deepspeed.init_distributed("gloo")
    stages = task.get("stages", 1)
    experts = task.get("experts")
    model = build(task["tensors"], experts) if stages == 1 else pipeline(task["layers"], stages)
    settings = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True}
    settings["zero_optimization"] = {"stage": task["stage"]}
    held = list(model.parameters())
    if experts:
        held = split_params_into_different_moe_groups_for_optimizer({"params": held, "name": "all"})
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(held), config=settings)
    if stages > 1:
        engine.train_batch(iter([(torch.ones(1, 4, dtype=torch.bfloat16), torch.ones(1, 4))]))
    elif experts:  # routing tokens needs no trace: every parameter gets a gradient
        engine.backward(sum(parameter.float().square().sum() for parameter in engine.module.parameters()))
        engine.step()
    else:
        engine.backward(engine())
        engine.step()
    dist.barrier()
    mark("save")
    engine.save_checkpoint(task["directory"])
    mark("saved")
    dist.barrier()
    mark("restore")
    engine.load_checkpoint(task["directory"])
    mark("restored")
    dist.barrier()


if __name__ == "__main__":
    main()
