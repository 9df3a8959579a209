"""Tests of other tools' job files."""
