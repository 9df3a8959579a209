"""Contract suites for people who add an engine, a layout or a file system; imported by nobody else."""
