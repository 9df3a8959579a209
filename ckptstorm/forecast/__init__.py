"""Storms that cannot be run: a model of the storage, scaling laws, goodput. Empty as yet."""
