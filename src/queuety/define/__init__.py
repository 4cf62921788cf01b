"""What a user writes: handlers and their marks, the builder, the wire form of a definition. No database."""
