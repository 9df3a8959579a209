"""What was measured, in small mergeable values: histograms, phase rows, error classes; pure."""
