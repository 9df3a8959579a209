"""Tests of ckptstorm; folders mirror the package."""
