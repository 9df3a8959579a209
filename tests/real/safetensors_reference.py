"""The real thing: one process that saves and loads safetensors files, for strace to watch.

Started by `test_safetensors`, by an interpreter that has safetensors; with torch the files are loaded,
too. It imports nothing of ckptstorm: which tensors go into which file arrives as JSON. The calls around
safetensors' own are those of transformers 5.24 (`save_pretrained`, `from_pretrained`).
Phases are told to the trace by a stat of "/MARK/<phase>", which no file system has.
"""

import contextlib
import json
import math
import os
import sys
from pathlib import Path

import safetensors

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError:
    torch = None


def mark(phase):
    """A line in the trace."""
    with contextlib.suppress(OSError):
        Path(f"/MARK/{phase}").stat()


def save(tensors, file):
    """One file of bf16 tensors: by PyTorch, or by the same Rust function that it calls."""
    if torch is not None:
        zeros = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in tensors}
        save_file(zeros, file, metadata={"format": "pt"})
        return
    raw = {name: {"dtype": "bfloat16", "shape": shape, "data": bytes(2 * math.prod(shape))} for name, shape in tensors}
    safetensors.serialize_file(raw, file, metadata={"format": "pt"})


def write_index(files, file):
    """The index, as transformers writes it."""
    elements = sum(math.prod(shape) for tensors in files.values() for _, shape in tensors)
    index = {
        "metadata": {"total_parameters": elements, "total_size": 2 * elements},
        "weight_map": {name: file for file, tensors in files.items() for name, _ in tensors},
    }
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(json.dumps(index, indent=2, sort_keys=True) + "\n")


def load(file):
    """Every tensor of a file, every byte touched."""
    for tensor in load_file(file).values():
        tensor.float().sum()


def main():
    """argv: JSON file with directory and files (name: list of name and shape)."""
    task = json.loads(Path(sys.argv[1]).read_text())
    directory, files = task["directory"], task["files"]
    index = os.path.join(directory, "model.safetensors.index.json")
    if torch is not None:
        torch.zeros(3, dtype=torch.bfloat16).float().sum()
        save([["warm", [3]]], task["warm"])
    mark("save")
    os.makedirs(directory, exist_ok=True)
    os.listdir(directory)
    for file, tensors in files.items():
        save(tensors, os.path.join(directory, file))
    if len(files) > 1:
        write_index(files, index)
    mark("restore")
    if torch is not None:
        if len(files) > 1:
            with open(index, encoding="utf-8") as opened:
                json.loads(opened.read())
        for file in files:
            load(os.path.join(directory, file))
    mark("restored")
    print(safetensors.__version__)


if __name__ == "__main__":
    main()
