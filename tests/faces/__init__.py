"""The command line and other faces."""
