"""Tests of `ckptstorm.model`."""
