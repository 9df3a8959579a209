"""Slurm, PBS and Flux scripts from a job and a site. Empty as yet."""
