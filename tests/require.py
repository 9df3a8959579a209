"""Tests that need something that is not everywhere: skipped with the reason, or failed where it is required.

CI names what its machines have in CKPTSTORM_REQUIRE (a comma list, such as "torch,mpi"), so that a
test cannot fall silent there.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(part: str, reason: str) -> NoReturn:
    """Skip this test because `part` is missing; fail it when CKPTSTORM_REQUIRE lists `part`."""
    required = {name.strip() for name in os.environ.get("CKPTSTORM_REQUIRE", "").split(",")}
    if part in required:
        pytest.fail(f"CKPTSTORM_REQUIRE lists {part}: {reason}")
    pytest.skip(reason)
