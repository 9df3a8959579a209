"""The real thing: torch.save to a path and to a file object, and torch.load of both, for strace to watch.

argv as of every reference: a JSON file with directory and tensors, then the rank.
"""

import contextlib
import json
import sys
from pathlib import Path

import torch


def mark(phase):
    """A line in the trace."""
    with contextlib.suppress(OSError):
        Path(f"/MARK/{phase}").stat()


def main():
    """Two saves, two loads."""
    task = json.loads(Path(sys.argv[1]).read_text())
    directory = Path(task["directory"])
    directory.mkdir()
    state = {name: torch.zeros(shape) for name, shape in task["tensors"]}
    mark("save")
    torch.save(state, directory / "model.pt")
    mark("save")
    with (directory / "object.pt").open("wb") as file:
        torch.save(state, file)
    mark("saved")
    mark("restore")
    torch.load(directory / "model.pt")
    torch.load(directory / "object.pt", weights_only=False)
    mark("restored")


if __name__ == "__main__":
    main()
