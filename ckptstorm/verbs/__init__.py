"""What the command line can be asked: one file a verb, one line in the table of `cli`."""
