"""One rank reads the modules, all ranks get them: imports through MPI instead of the shared file system.

A module that is imported from a shared file system costs half a dozen lookups, opens and reads; a
hundred modules on ten thousand ranks are a metadata storm before the storm. So rank 0 imports what a
rank needs and sends the compiled code of the pure-Python modules; the others run that code from memory.
Compiled extensions, and whatever was not sent, are still found the ordinary way.
"""

from __future__ import annotations

import importlib
import marshal
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from ckptstorm.cluster.comm import Cluster

#: Per module: its code, the file it came from, and where its submodules are (None: it has none).
_Sent = dict[str, tuple[CodeType, str, list[str] | None]]
_OWN = "ckptstorm."
#: Rank 0: what the others have by now.
_SENT_BEFORE: set[str] = set()


def share(cluster: Cluster, names: Iterable[str]) -> None:
    """Import these modules everywhere, read from disk by rank 0 only; a collective of all ranks."""
    if cluster.rank_count == 1:
        for name in names:
            importlib.import_module(name)
        return
    if cluster.rank != 0:
        finder = _finder()
        finder.sent.update(marshal.loads(cluster.bytes_from_rank_0(b"")))
        for name in names:
            importlib.import_module(name)
        return
    before = set(sys.modules)
    for name in names:
        importlib.import_module(name)
    # Of our own modules also those that rank 0 had already, for its command line: others may need them too.
    ours = {name for name in sys.modules if name.startswith(_OWN)}
    fresh = ((sys.modules.keys() - before) | ours) - _SENT_BEFORE
    _SENT_BEFORE.update(fresh)
    cluster.bytes_from_rank_0(marshal.dumps(_codes(fresh)))


def _codes(names: Iterable[str]) -> _Sent:
    """The code of those modules that are pure Python."""
    sent: _Sent = {}
    for name in sorted(names):
        spec = getattr(sys.modules[name], "__spec__", None)
        get_code = getattr(getattr(spec, "loader", None), "get_code", None)
        if spec is None or get_code is None or not spec.has_location or spec.name != name:
            continue
        code = get_code(name)
        if isinstance(code, CodeType):
            where = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
            sent[name] = (code, str(spec.origin), where)
    return sent


class _Received:
    """Finds and runs modules that were sent (a finder and a loader, without the base classes: importing them costs)."""

    def __init__(self) -> None:
        self.sent: _Sent = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The sent module of that name, if there is one."""
        del path, target
        if fullname not in self.sent:
            return None
        _, origin, where = self.sent[fullname]
        spec = ModuleSpec(fullname, self, origin=origin, is_package=where is not None)  # type: ignore[arg-type]
        spec.has_location = True
        if where is not None:
            spec.submodule_search_locations = where
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Nothing special."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the code that was sent."""
        exec(self.sent[module.__name__][0], module.__dict__)


def _finder() -> _Received:
    """The one finder of this process, first in line."""
    for finder in sys.meta_path:
        if isinstance(finder, _Received):
            return finder
    finder = _Received()
    sys.meta_path.insert(0, finder)
    return finder
