"""What the documentation says is what the code does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _maker():
    spec = importlib.util.spec_from_file_location("make_job_page", ROOT / "docs" / "make_job_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_job_page_is_made_from_the_types():
    """docs/job.md is what docs/make_job_page.py makes (run it with --write after a change of the job)."""
    assert (ROOT / "docs" / "job.md").read_text(encoding="utf-8") == _maker().page()


def test_links_of_the_pages_lead_somewhere():
    """Each relative link in README, CONTRIBUTING and docs names a file that is there."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_has_exactly_two_commands_that_set_up():
    """One runs the main job, one the tests; each is one line."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line for line in text.splitlines() if line.startswith("python3 -m venv")]
    assert len(commands) == 2
    assert "ckptstorm run laptop" in commands[0]
    assert commands[1].endswith("-m pytest tests")
