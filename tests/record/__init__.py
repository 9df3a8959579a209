"""Tests of what is known afterwards."""
