"""The contract suite of file systems: subclass `FileSystemContract`, say where one is mounted, inherit the tests.

class TestMine(FileSystemContract):
    @pytest.fixture
    def directory(self): ...   # an empty directory on it
    can = frozenset({"counters"})
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import msgspec
import pytest

from ckptstorm.errors import PlaceError
from ckptstorm.filesystems import FILE_SYSTEMS, adapter_of
from ckptstorm.filesystems.contract import Adapter, CannotError, Counters
from ckptstorm.filesystems.mount import mount_of
from ckptstorm.registry import find

_SIZE = 4 << 20
#: Until all that was written must have passed the counters.
_PATIENCE_S = 10.0


class FileSystemContract:
    """What every adapter must do, on the real thing.

    Attributes:
        name: of the adapter that must be found for the mount.
        can: what works here; everything else must be refused by name.
    """

    name = ""
    can: frozenset[str] = frozenset()

    @pytest.fixture
    def directory(self) -> Iterator[Path]:
        """An empty directory on the file system."""
        raise NotImplementedError

    @pytest.fixture
    def adapter(self, directory: Path) -> Adapter:
        """The adapter that is found for it."""
        return adapter_of(mount_of(str(directory)))

    def test_it_is_found_and_no_other_claims_it(self, adapter: Adapter) -> None:
        """Of all adapters but the last, exactly this one matches the mount."""
        assert adapter.name == self.name
        others = [name for name in FILE_SYSTEMS if name not in (self.name, "generic")]
        assert [name for name in others if find("file system", FILE_SYSTEMS, name).matches(adapter.mount)] == []

    def test_facts_go_into_a_record(self, adapter: Adapter, directory: Path) -> None:
        """Facts are plain values; what is missing is named with a reason, and nothing is created."""
        facts = adapter.facts(str(directory))
        assert json.loads(json.dumps(asdict(facts)))
        assert all(reason for reason in facts.cannot.values())
        assert facts.server
        assert list(directory.iterdir()) == []

    def test_a_file_lies_somewhere(self, adapter: Adapter, directory: Path) -> None:
        """Placement names at least one target, and each is one of those that the facts list."""
        file = _written(directory / "shard")
        if "placement" not in self.can:
            _refuses("placement", lambda: adapter.placement(str(file)))
            return
        placement = adapter.placement(str(file))
        assert placement.targets
        known = {target.name for target in adapter.facts(str(directory)).targets}
        assert not known or set(placement.targets) <= known

    def test_counters_count_what_is_written(self, adapter: Adapter, directory: Path) -> None:
        """A synced file passes the counter, whole."""
        if "counters" not in self.can:
            _refuses("counters", adapter.counters)
            return
        before = adapter.counters()
        _written(directory / "shard")
        after = adapter.counters()
        until_s = time.monotonic() + _PATIENCE_S
        while after.write_bytes - before.write_bytes < _SIZE and time.monotonic() < until_s:
            time.sleep(0.05)  # a client may send after its fsync has returned, and some do
            after = adapter.counters()
        assert after.source == before.source
        assert after.write_bytes - before.write_bytes >= _SIZE
        assert _never_back(before, after)

    def test_a_cold_read_passes_the_counter_and_a_warm_one_does_not(self, adapter: Adapter, directory: Path) -> None:
        """After the cache is dropped a read comes from the storage; read again at once, it does not."""
        if not {"counters", "drop_cache"} <= self.can:
            pytest.skip("needs counters and a cache that can be dropped")
        file = _written(directory / "shard")
        adapter.drop_cache(str(file))
        adapter.drop_cache(str(directory))
        start = adapter.counters().read_bytes
        _read(file)
        cold = adapter.counters().read_bytes
        _read(file)
        warm = adapter.counters().read_bytes
        assert cold - start >= _SIZE
        assert warm - cold < _SIZE

    def test_options_are_honoured_or_refused(self, adapter: Adapter, directory: Path) -> None:
        """An adapter without options cannot prepare, and says so."""
        if "prepare" in self.can:
            pytest.skip("the file system's own tests set its options")
        _refuses("prepare", lambda: adapter.prepare(str(directory), adapter.Options()))

    def test_unknown_options_are_refused(self, adapter: Adapter) -> None:
        """No adapter takes a key that it does not know."""
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"no_such_option": 1}, adapter.Options)


def _written(file: Path) -> Path:
    with file.open("wb") as opened:
        opened.write(os.urandom(_SIZE))
        os.fsync(opened.fileno())
    return file


def _read(file: Path) -> None:
    assert len(file.read_bytes()) == _SIZE


def _refuses(ability: str, ask: object) -> None:
    assert callable(ask)
    with pytest.raises((CannotError, PlaceError)) as caught:
        ask()
    assert isinstance(caught.value, CannotError)
    assert caught.value.ability == ability
    assert caught.value.reason


def _never_back(before: Counters, after: Counters) -> bool:
    return all(after.values.get(name, 0) >= value for name, value in before.values.items() if not name.endswith("_now"))
