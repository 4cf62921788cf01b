"""One file per step kind, each with enter and resume."""
