"""The one place that speaks MPI: the world, its clock, its board, and polite waiting."""
