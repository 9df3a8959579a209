"""One Slurm for all tests of this folder: starting it takes less than a second, and nothing is shared with others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services import slurm as service
from tests.services.slurm import Slurm


@pytest.fixture(scope="session")
def cluster() -> Iterator[Slurm]:
    """Four emulated nodes of four cores each."""
    with service.slurm(node_count=4, cpus=4) as running:
        yield running
