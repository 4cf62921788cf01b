"""The worker: its loop, its executors, its supervisor, its chores."""
