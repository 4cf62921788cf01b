"""The command line, one file per noun; no SQL and no rules."""
