"""PyTorch in the loop: `torch.save` and `torch.load` of tensors whose bytes are the payload.

The same files as the layout's own, made by the framework itself, so that anyone can see that ours cost the
storage the same. A tensor of a DCP file is a `torch.save` to the open file, flushed after it as DCP does;
a file that is saved by its path is one call, whose time stands at its last tensor (at the first, when it is
loaded). A tensor is known by where it lies in the planned file. What is no tensor is written as it is.
"""

from __future__ import annotations

import errno
import importlib.util
import io
import os
from typing import Any, BinaryIO, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ckptstorm.engines.contract import Setup
from ckptstorm.engines.library import LibraryProgram
from ckptstorm.payload import Payload
from ckptstorm.program import Kind, Path, Program, TorchPart

_MINE = (Kind.TORCH_SAVE, Kind.TORCH_LOAD)
_ELEMENT_BYTES = 4
_HELD = (TorchPart.OF_PATH, TorchPart.OF_STREAM)


class TorchEngine:
    """PyTorch on the main thread."""

    name: ClassVar[str] = "torch"
    moves_data: ClassVar[bool] = True
    honours: ClassVar[dict[str, tuple[object, ...]]] = {}
    thread: ClassVar[Literal["own", "main"]] = "main"

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    @classmethod
    def missing(cls) -> str:
        """See `contract.Engine.missing`."""
        if importlib.util.find_spec("torch"):
            return ""
        return "PyTorch is not installed: pip install 'ckptstorm[torch]'"

    def prepare(self, program: Program, payload: Payload) -> LibraryProgram:
        """See `contract.Engine.prepare`."""
        return LibraryProgram(self._setup, program, payload, _Files(program))


class _Files:
    """Open files of tensors, by index in the program."""

    def __init__(self, program: Program) -> None:
        import torch

        self._torch = torch
        is_mine = np.isin(program.ops["kind"], _MINE)
        self._mine = set(program.ops["file"][is_mine].tolist())
        #: By file: what each of its data ops is part of, in order; and how many have been.
        self._parts: dict[int, list[int]] = {}
        for file, part in zip(*(program.ops[column][is_mine].tolist() for column in ("file", "flags")), strict=True):
            self._parts.setdefault(file, []).append(part)
        self._at: dict[int, int] = {}
        self._streams: dict[int, BinaryIO] = {}
        self._names: dict[int, str] = {}
        self._held: list[Any] = []  # tensors made, or loaded, that a later op of the file is about
        self._tensor: Any = None

    def is_mine(self, file: int) -> bool:
        """See `library.Backend`."""
        return file in self._mine

    def open(self, file: int, name: str, path: Path, flags: int) -> None:
        """See `library.Backend`: as a file object, or not at all when PyTorch opens it by its path."""
        del path
        self._names[file], self._at[file], self._held = name, 0, []
        if self._parts[file][0] in (TorchPart.OF_PATH, TorchPart.LAST_OF_PATH):
            return
        mode = "rb" if flags & os.O_ACCMODE == os.O_RDONLY else "wb"
        self._streams[file] = cast(BinaryIO, open(name, mode))  # noqa: SIM115 - closed by an op of its own

    def room(self, length_bytes: int) -> NDArray[np.uint8] | None:
        """See `library.Backend`: a tensor with a storage of its own, for PyTorch saves whole storages."""
        torch = self._torch
        if length_bytes % _ELEMENT_BYTES:
            self._tensor = torch.empty(length_bytes, dtype=torch.uint8)
        else:
            self._tensor = torch.empty(length_bytes // _ELEMENT_BYTES, dtype=torch.float32)
        return cast("NDArray[np.uint8]", self._tensor.view(torch.uint8).numpy())

    def write(self, file: int, kind: Kind, part: memoryview, offset_bytes: int) -> int:
        """See `library.Backend`."""
        if kind is not Kind.TORCH_SAVE:
            stream = self._streams[file]
            stream.write(self._bytes_of(self._tensor))
            stream.flush()
            return len(part)
        self._call(self._save, file, offset_bytes, len(part))
        return len(part)

    def _save(self, file: int, offset_bytes: int, length_bytes: int) -> None:
        role = self._next_role(file)
        if role == TorchPart.ALONE:
            stream = self._streams[file]
            self._torch.save(self._tensor, stream)
            stream.flush()
            assert stream.tell() == offset_bytes + _record_bytes(length_bytes), (
                "PyTorch stores it otherwise than planned"
            )
            return
        self._held.append(self._tensor)
        if role in _HELD:
            return
        whole = {str(index): tensor for index, tensor in enumerate(self._held)}
        self._held = []
        self._torch.save(whole, self._names[file] if role == TorchPart.LAST_OF_PATH else self._streams[file])

    def read(self, file: int, kind: Kind, into: memoryview, offset_bytes: int) -> int:
        """See `library.Backend`."""
        if kind is not Kind.TORCH_LOAD:
            stream = self._streams[file]
            stream.seek(offset_bytes)
            self._tensor = self._torch.frombuffer(bytearray(stream.read(len(into))), dtype=self._torch.uint8)
        else:
            self._call(self._load, file, offset_bytes, len(into))
        return int(self._tensor.numel() * self._tensor.element_size())

    def _load(self, file: int, offset_bytes: int, length_bytes: int) -> None:
        role = self._next_role(file)
        if role == TorchPart.ALONE:
            view = _View(self._streams[file], offset_bytes, _record_bytes(length_bytes))
            self._tensor = self._torch.load(view, weights_only=True)
            return
        if not self._held:
            place = self._names[file] if role in (TorchPart.OF_PATH, TorchPart.LAST_OF_PATH) else self._streams[file]
            self._held = list(self._torch.load(place, weights_only=True).values())
        self._tensor = self._held.pop(0)

    def _next_role(self, file: int) -> int:
        at = self._at[file]
        self._at[file] = at + 1
        return self._parts[file][at]

    def _call(self, act: Any, file: int, offset_bytes: int, length_bytes: int) -> None:
        """PyTorch tells a failed system call as a RuntimeError now and then: then it is an EIO."""
        try:
            act(file, offset_bytes, length_bytes)
        except OSError:
            raise
        except (RuntimeError, EOFError, ValueError) as error:
            raise OSError(errno.EIO, str(error)) from None

    def _bytes_of(self, tensor: Any) -> bytes:
        return cast(bytes, tensor.view(self._torch.uint8).numpy().tobytes())

    def found(self) -> NDArray[np.uint8] | None:
        """See `library.Backend`."""
        return cast("NDArray[np.uint8]", self._tensor.contiguous().reshape(-1).view(self._torch.uint8).numpy())

    def sync(self, file: int) -> None:
        """See `library.Backend`."""
        if file in self._streams:
            os.fsync(self._streams[file].fileno())
            return
        fd = os.open(self._names[file], os.O_RDONLY | os.O_CLOEXEC)  # saved by its path: nobody has it open
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def close(self, file: int) -> None:
        """See `library.Backend`."""
        del self._names[file]
        if file in self._streams:
            self._streams.pop(file).close()

    def is_open(self, file: int) -> bool:
        """See `library.Backend`."""
        return file in self._names

    def close_all(self) -> None:
        """See `library.Backend`."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()


def _record_bytes(data_bytes: int) -> int:
    """Size of the archive of a tensor by itself, by which the plan places the next one."""
    return 1513 if data_bytes == 0 else data_bytes - data_bytes % 64 + 1577


class _View(io.RawIOBase):
    """A part of an open file as a file of its own, as DCP hands it to `torch.load`."""

    def __init__(self, base: BinaryIO, start: int, length: int) -> None:
        super().__init__()
        self._base, self._start, self._length = base, start, length
        base.seek(start)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where it stands, from its own start."""
        return self._base.tell() - self._start

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go there."""
        before = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._length}[whence]
        return self._base.seek(self._start + before + offset) - self._start

    def readinto(self, into: Any) -> int:
        """Fill `into`, as far as the part goes."""
        left = self._length - self.tell()
        return cast("io.BufferedReader", self._base).readinto(memoryview(into)[:left])

    def read(self, size: int = -1) -> bytes:
        """So many bytes, or all that are left."""
        left = self._length - self.tell()
        return self._base.read(left if size < 0 else min(size, left))
