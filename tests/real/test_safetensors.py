"""Safetensors as planned beside safetensors as it is: one process under strace, for each writer.

Compared call by call, in order and to the byte: open, ftruncate, write, rename and close of a save;
open, stat and advice of a load. What a load moves by page faults strace cannot see: its mappings are
compared instead (each covers the whole file), and the absence of reads.

CKPTSTORM_TORCH_PYTHON has torch and safetensors 0.8; CKPTSTORM_OLD_SAFETENSORS_PYTHON has 0.5 to 0.7.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptstorm.job import Job, LayoutTable, ModelTable
from ckptstorm.layouts.formats import safetensors_io
from ckptstorm.model.zoo import resolve
from ckptstorm.plan import World, facts_of, plan
from ckptstorm.program import Kind, open_flags
from ckptstorm.testing.layouts import programs
from tests.require import missing

# Tensors of 96 B to 5.8 MB: small ones side by side, and on both sides of 8 KiB and of 1 MiB.
MODEL = ModelTable(architecture="gpt", layers=2, hidden=480, heads=4, vocab=6000, context_length=8)
SHARD_BYTES = {"one file": 10**9, "files": 6_000_000}
PYTHONS = {"0.8": "CKPTSTORM_TORCH_PYTHON", "0.7": "CKPTSTORM_OLD_SAFETENSORS_PYTHON"}
_TRACED = "openat,mkdir,renameat,rename,read,pread64,write,pwrite64,ftruncate,fsync,close,fstat,statx,newfstatat,mmap"
_CALL = re.compile(r"(?:\d+ +)?(?P<name>\w+)\((?P<told>.*)\)\s+= (?P<result>-?\d+|0x\w+)")
_PATH = re.compile(r'<(?P<open>/[^>]*)>|"(?P<named>/[^"]*)"')
# An fstat is newfstatat or statx in other versions of glibc and in Rust.
_WORDS = {
    "openat": "open", "ftruncate": "truncate", "renameat": "rename", "fadvise64": "fadvise",
    "statx": "fstat", "newfstatat": "fstat",
}  # fmt: skip
_PATIENCE_S = 100


@pytest.fixture(scope="module", params=PYTHONS)
def writer(request):
    """A writer, and an interpreter that has it."""
    wanted, variable = request.param, PYTHONS[request.param]
    interpreter = os.environ.get(variable, sys.executable)
    if shutil.which("strace") is None:
        missing("torch", "no strace here")
    found = subprocess.run(
        [interpreter, "-c", "import safetensors; print(safetensors.__version__)"], capture_output=True, check=False
    )
    version = tuple(map(int, found.stdout.decode().split(".")[:2])) if found.returncode == 0 else ()
    if not (version >= (0, 8) if wanted == "0.8" else (0, 5) <= version < (0, 8)):
        part = "torch" if wanted == "0.8" else "old-safetensors"
        missing(part, f"{interpreter} has no safetensors {wanted}: set {variable} to an interpreter that has it")
    return wanted, interpreter


@pytest.fixture(scope="module", params=SHARD_BYTES)
def traced(request, writer, tmp_path_factory):
    """(job, calls of the save, calls of the load, the checkpoint)."""
    name, interpreter = writer
    size = SHARD_BYTES[request.param]
    options = {"writer": name, "shard_size": size}
    job = Job(model=MODEL, layout=LayoutTable(name="safetensors", options=options))
    folder = tmp_path_factory.mktemp("safetensors")
    split = safetensors_io.split(resolve(MODEL).tensors(), size)
    files = {
        file.name: [(tensor.name, tensor.shape) for tensor in tensors]
        for file, tensors in zip(safetensors_io.model_files(split), split, strict=True)
    }
    told = folder / "task.json"
    told.write_text(json.dumps({"directory": str(folder / "model"), "warm": str(folder / "warm"), "files": files}))
    script = str(Path(__file__).with_name("safetensors_reference.py"))
    strace = ["strace", "-f", "-y", "-s", "0", "-o", str(folder / "log"), "-e", f"trace={_TRACED},fadvise64,getdents64"]
    ended = subprocess.run(
        [*strace, interpreter, script, str(told)], capture_output=True, timeout=_PATIENCE_S, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    save, restore = _phases((folder / "log").read_text(errors="replace"), str(folder / "model"))
    return job, save, restore, folder / "model"


def _phases(log, directory):
    """The calls on the checkpoint between the marks: of the save, and of the load."""
    phases = {"save": [], "restore": []}
    phase, renamed = None, {}
    for line in log.splitlines():
        if '"/MARK/' in line:
            phase = phases.get(line.split('"/MARK/')[1].split('"')[0])
        elif phase is not None and (call := _call(line, directory, renamed)):
            phase.append(call)
    return phases["save"], phases["restore"]


def _call(line, directory, temporary):
    """(call, file, bytes), with temporary names replaced by ours, in the order of their making."""
    match = _CALL.match(line)
    if match is None:
        return None
    paths = [found["open"] or found["named"] for found in _PATH.finditer(match["told"])]
    inside = [path for path in paths if path == directory or path.startswith(f"{directory}/")]
    if not inside:
        return None
    name, file = match["name"], inside[0][len(directory) + 1 :]
    if file.startswith(".tmp"):
        file = temporary.setdefault(file, f".tmp{len(temporary):06d}")
    numbers = [int(number) for number in re.findall(r", (\d+)", match["told"])]
    moved = int(match["result"]) if name in ("read", "write") else 0
    moved = numbers[-1] if name in ("ftruncate", "fadvise64") else numbers[0] if name == "mmap" else moved
    return _WORDS.get(name, name), file, moved


def planned(job, phase, block_size_bytes):
    """(call, file, bytes) of our programs for rank 0, in order."""
    calls = []
    for program in programs(getattr(plan(job, World(2), 0), phase), facts_of(job, block_size_bytes)):
        for row, moved in zip(program.ops, program.expected_bytes().tolist(), strict=True):
            kind, name = Kind(row["kind"]), program.paths[int(row["file"])].name
            told = int(row["length_bytes"]) if kind in (Kind.TRUNCATE, Kind.FADVISE) else moved
            calls.append((kind.word, name, told))
    return calls


def on_files(calls, dropped=()):
    """Calls on files, not on the directory, without those that are not compared."""
    return [call for call in calls if call[1] and call[0] not in dropped and call[:1] + call[2:] != ("read", 0)]


@pytest.mark.real
def test_save(traced):
    """A save: each call on each file, in order and to the byte; renamed before it is closed."""
    job, save, _, model = traced
    # Closed under its new name; Python's index file is looked at when it is opened.
    final = {name: call[1] for name, call in _renames(save, model)}
    found = on_files(save, ("fstat", "mmap"))
    expected = [
        (word, final.get(name, name) if word == "close" else name, moved)
        for word, name, moved in on_files(planned(job, "save", model.stat().st_blksize))
    ]
    assert found == expected
    assert {call[0] for call in found} >= {"open", "write", "close"}


def _renames(calls, model):
    """(temporary name, the close that follows its rename)."""
    for index, call in enumerate(calls):
        if call[0] == "rename":
            close = next(later for later in calls[index:] if later[0] == "close")
            assert (model / close[1]).exists()
            yield call[1], close


@pytest.mark.real
def test_directory(traced):
    """The directory is made, and listed."""
    job, save, _, _ = traced
    found = [call[0] for call in save if not call[1]]
    assert found[0] == "mkdir"
    assert "getdents64" in found
    assert [call[0] for call in planned(job, "save", 4096) if not call[1]] == ["mkdir", "readdir"]


@pytest.mark.real
def test_sizes_and_modes_on_disk(traced):
    """Every file has its planned size, the index included, and the mode that its writer gives it."""
    job, _, _, model = traced
    sizes = {
        path.name: path.size_bytes
        for program in programs(plan(job, World(2), 1).restore, facts_of(job, 4096))
        for path in program.paths
    }
    assert {path.name: path.stat().st_size for path in model.iterdir()} == sizes
    modes = {
        open_flags(int(row["length_bytes"]))[1]
        for program in programs(plan(job, World(2), 0).save, facts_of(job, 4096))
        for row in program.ops[program.ops["kind"] == Kind.OPEN]
        if program.paths[int(row["file"])].content_name.endswith(".safetensors")
    }
    umask = os.umask(0)
    os.umask(umask)
    assert {path.stat().st_mode & 0o777 for path in model.glob("*.safetensors")} == {mode & ~umask for mode in modes}


@pytest.mark.real
def test_load(traced, writer):
    """A load: opens, stats and advice of each file in order; every mapping is of a whole file, and nothing is read."""
    job, _, restore, model = traced
    if writer[0] != "0.8":
        pytest.skip("only the interpreter with torch loads")
    expected = planned(job, "restore", 4096)
    models = [call for call in restore if call[1].endswith(".safetensors")]
    compared = ("open", "fstat", "fadvise")
    orderly = [call for call in on_files(expected) if call[1].endswith(".safetensors") and call[0] in compared]
    assert [call for call in models if call[0] in compared] == orderly
    assert [call for call in models if call[0] in ("read", "pread64")] == []
    maps = [call[1:] for call in models if call[0] == "mmap"]
    opens = [call[1] for call in expected if call[0] == "open" and call[1].endswith(".safetensors")]
    assert maps == [(name, (model / name).stat().st_size) for name in opens]


@pytest.mark.real
def test_load_of_the_index(traced, writer):
    """The index, where there is one, is read by one call, before all else."""
    job, _, restore, _ = traced
    if writer[0] != "0.8":
        pytest.skip("only the interpreter with torch loads")
    found = [call for call in on_files(restore) if call[0] in ("open", "read") and call[1].endswith(".json")]
    expected = [
        call
        for call in on_files(planned(job, "restore", 4096))
        if call[0] in ("open", "read") and call[1].endswith(".json")
    ]
    assert found == expected
    assert not found or restore[0][:2] == ("open", safetensors_io.INDEX_NAME)
