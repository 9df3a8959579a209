"""Tests of storms that are reckoned, not run."""
