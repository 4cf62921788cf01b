"""Programs that show how the parts go together."""
