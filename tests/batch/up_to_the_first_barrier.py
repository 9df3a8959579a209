"""A rank's start, exactly as `ckptstorm run` makes it, up to the first barrier; run under strace by test_staging."""

from __future__ import annotations

from mpi4py import MPI

import ckptstorm.__main__  # noqa: F401 - what every rank imports before it knows that it is one
from ckptstorm.cluster.comm import Cluster

Cluster(MPI.COMM_WORLD)
