"""The wide and thin face: one subject a file, each verb a line or two that opens a transaction and calls a room."""
