"""Traffic that is not a checkpoint (random, metadata): pure, lowers to programs. No load is built in yet."""
