"""Real storage and real clusters for tests: each module starts one, and leaves nothing behind."""
