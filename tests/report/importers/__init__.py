"""Tests of the importers of other tools' results."""
