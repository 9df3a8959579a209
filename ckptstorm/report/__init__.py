"""Records turned into pages that a person can act on; reads records only, runs nothing."""
