"""Tests of `ckptstorm.layouts`."""
