"""How large the pickle of a dictionary of tensors is: protocol 2 with torch's storages, opcode by opcode.

A string that is one object in Python (a literal, such as an optimizer's "exp_avg") is pickled once and
fetched from the memo after that; one that is made anew each time (`str(index)`) is pickled whole.
Checked against PyTorch 2.13 on Python 3.11.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Element = Literal["fp32", "fp16", "bf16"]
_STORAGES: dict[Element, str] = {"fp32": "FloatStorage", "fp16": "HalfStorage", "bf16": "BFloat16Storage"}
ELEMENT_BYTES: dict[Element, int] = {"fp32": 4, "fp16": 2, "bf16": 2}
#: Items between two SETITEMS.
_BATCH = 1000
#: Literals of torch's optimizers.
_LITERALS = ("step", "exp_avg", "exp_avg_sq", "state", "param_groups")
_SHORT_MEMO = 256


@dataclass(frozen=True, slots=True)
class Tensor:
    """A contiguous tensor with a storage of its own, on the CPU.

    Attributes:
        shape: elements per dimension; () for a scalar.
        element: of what.
    """

    shape: tuple[int, ...]
    element: Element

    @property
    def data_bytes(self) -> int:
        """Bytes of its storage."""
        return math.prod(self.shape) * ELEMENT_BYTES[self.element]


#: What is pickled: names to tensors, or to more of the same.
Tree = Mapping[str, "Tensor | Tree"]


def pickle_bytes(tree: Tree) -> int:
    """Size of `data.pkl` when `torch.save` is given a plain dict like `tree`."""
    pickler = _Pickler()
    pickler.tree(tree)
    return pickler.size_bytes + 1  # STOP


def tensors(tree: Tree) -> list[Tensor]:
    """All tensors, in the order of the pickle, which is that of the storages in the file."""
    found: list[Tensor] = []
    for value in tree.values():
        found += [value] if isinstance(value, Tensor) else tensors(value)
    return found


class _Pickler:
    """Counts bytes as CPython's pickler writes them."""

    def __init__(self) -> None:
        self.size_bytes = 2  # PROTO
        self._memo_count = 0
        self._known: dict[str, int] = {}
        self._storage_count = 0

    def tree(self, tree: Tree) -> None:
        self._add(1)
        self._put()
        items = list(tree.items())
        for first in range(0, len(items), _BATCH):
            batch = items[first : first + _BATCH]
            self._add(1 if len(items) == 1 else 2)  # SETITEM, or MARK and SETITEMS
            for name, value in batch:
                self._text(name)
                if isinstance(value, Tensor):
                    self._tensor(value)
                else:
                    self.tree(value)

    def _text(self, text: str) -> None:
        if text in _LITERALS:
            self._literal(text)
            return
        self._add(5 + len(text.encode()))
        self._put()

    def _literal(self, text: str) -> None:
        if not self._fetched(text):
            self._add(5 + len(text))
            self._put(text)

    def _tensor(self, tensor: Tensor) -> None:
        self._global("torch._utils", "_rebuild_tensor_v2")
        self._add(1)  # MARK of the arguments
        self._storage(tensor)
        self._add(2)  # offset 0
        self._integers(tensor.shape)
        self._integers(tuple(math.prod(tensor.shape[at + 1 :]) for at in range(len(tensor.shape))))
        self._add(1)  # no gradient
        self._global("collections", "OrderedDict")
        self._add(2)  # its empty arguments, REDUCE
        self._put()
        self._add(1)  # TUPLE of the arguments
        self._put()
        self._add(1)  # REDUCE
        self._put()

    def _storage(self, tensor: Tensor) -> None:
        self._add(1)
        self._literal("storage")
        self._global("torch", _STORAGES[tensor.element])
        self._text(str(self._storage_count))
        self._storage_count += 1
        self._literal("cpu")
        self._integer(math.prod(tensor.shape))
        self._add(1)
        self._put()
        self._add(1)  # BINPERSID

    def _integers(self, values: tuple[int, ...]) -> None:
        if not values:
            self._add(1)  # EMPTY_TUPLE, which has no memo
            return
        for value in values:
            self._integer(value)
        self._add(1 if len(values) <= 3 else 2)
        self._put()

    def _integer(self, value: int) -> None:
        if value < 1 << 31:
            self._add(2 if value < 1 << 8 else 3 if value < 1 << 16 else 5)
        else:
            self._add(2 + value.bit_length() // 8 + 1)

    def _global(self, module: str, name: str) -> None:
        if not self._fetched(name):
            self._add(3 + len(module) + len(name))
            self._put(name)

    def _fetched(self, known: str) -> bool:
        if known not in self._known:
            return False
        self._add(2 if self._known[known] < _SHORT_MEMO else 5)
        return True

    def _put(self, known: str = "") -> None:
        if known:
            self._known[known] = self._memo_count
        self._add(2 if self._memo_count < _SHORT_MEMO else 5)
        self._memo_count += 1

    def _add(self, count: int) -> None:
        self.size_bytes += count
