"""Site files: what ships is read, what is wrong is named, what cannot be honoured is refused."""

from __future__ import annotations

import pytest

from ckptstorm.batch.sitefile import decode, launcher_of, read_site, shipped_sites, with_time_limit
from ckptstorm.errors import JobError


def test_every_shipped_site_is_read():
    """By name and by path; the example holds every key that a site can have, or names it in a comment."""
    names = [path.stem for path in shipped_sites()]
    assert {"example", "one-node"} <= set(names)
    for path in shipped_sites():
        assert read_site(str(path)) == read_site(path.stem)
    text = next(path for path in shipped_sites() if path.stem == "example").read_text()
    site = read_site("example")
    for table in ("allocation", "launch", "software", "storage"):
        for key in getattr(site, table).__struct_fields__:
            assert f"{key} =" in text, f"[{table}] {key} is not in the example"


@pytest.mark.parametrize(
    ("text", "sentence", "hint"),
    [
        (
            "[allocation]\npartitoin = 'gpu'",
            '[allocation] partitoin: unknown key; did you mean "partition"?',
            "allowed:",
        ),
        ("partition = 'gpu'", "partition: unknown key; it belongs into [allocation]", "allowed: scheduler"),
        ("[allocation]\nranks_per_node = 0", "[allocation] ranks_per_node = 0: expected `int` >= 1", "example.toml"),
        ("[allocation]\ntime_limit = 30", "[allocation] time_limit = 30", "example.toml"),
        ("[allocation]\nmargin = 0.5", "[allocation] margin = 0.5", "example.toml"),
        ("scheduler = 'lsf'", "[scheduler] = 'lsf'", "example.toml"),
        ("[software]\nenvironment = { 'A B' = 'x' }", "[software] environment", "example.toml"),
        ("[launch]\nrails = ['mlx5_0; rm -rf /']", "[launch] rails", "example.toml"),
        (
            "[launch]\nlauncher = 'mpirun'\ncpu_bind = 'none'",
            '[launch] cpu_bind means nothing to "mpirun"',
            "arguments",
        ),
        (
            "[launch]\nlauncher = 'flux'",
            '[launch] launcher = "flux" does not start ranks under slurm',
            '"srun", "mpirun"',
        ),
        ("scheduler = 'pbs'\n[allocation]\nqos = 'high'", "[allocation] qos: pbs has nothing for it", "remove it"),
        (
            "scheduler = 'flux'\n[software]\narchive = 'x.tar'",
            "[software] archive: flux has nothing for it",
            "remove it",
        ),
        ("[container]\nruntime = 'docker'\nimage = 'x'", "[container] runtime", "example.toml"),
        ("[container]\nruntime = 'apptainer'\nimage = 'x'\nmounts = ['a,b']", "[container] mounts", "example.toml"),
        (
            "[launch]\nlauncher = 'mpirun'\n[container]\nruntime = 'pyxis'\nimage = 'x'",
            "works through srun only",
            "srun",
        ),
        ("[container]\nruntime = 'apptainer'\nimage='x'\n[software]\narchive='y'", "choose one", "staged"),
        ("[allocation", "not TOML", ""),
        ("a = " + "[" * 2000, "nested too deeply", ""),
    ],
)
def test_what_is_wrong_is_named(text, sentence, hint):
    """File, table, key, value, and what to do."""
    with pytest.raises(JobError) as raised:
        decode(text, "s.toml")
    assert str(raised.value).startswith("s.toml: ")
    assert sentence in str(raised.value)
    assert hint in raised.value.hint


def test_a_missing_site_names_its_neighbour(tmp_path):
    """And a directory or bytes that are no text are told as what they are."""
    with pytest.raises(JobError, match="did you mean") as raised:
        read_site("one-nod")
    assert "one-node" in raised.value.hint
    with pytest.raises(JobError, match="Is a directory"):
        read_site(str(tmp_path))
    (tmp_path / "b").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(JobError, match="not UTF-8"):
        read_site(str(tmp_path / "b"))
    (tmp_path / "c").write_bytes(b"#" * (2 << 20))
    with pytest.raises(JobError, match="larger than 1 MiB"):
        read_site(str(tmp_path / "c"))


def test_defaults_of_each_batch_system():
    """The launcher that belongs to it; a time limit from the command line replaces the site's."""
    launchers = {name: launcher_of(decode(f"scheduler = '{name}'", "s")) for name in ("slurm", "pbs", "flux")}
    assert launchers == {"slurm": "srun", "pbs": "mpirun", "flux": "flux"}
    site = decode("", "s")
    assert with_time_limit(site, "90min").allocation.time_limit == 90 * 60 * 10**9
    assert with_time_limit(site, "auto").allocation.time_limit == 0
    with pytest.raises(JobError, match="--time soon"):
        with_time_limit(site, "soon")
