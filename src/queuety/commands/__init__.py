"""What changes a workflow from outside, one subject a file: open, load, decide, write."""
