"""What went wrong with other tools, small and live: each ends here as docs/scenarios.md says."""
