"""Programs that checks run in child processes."""
