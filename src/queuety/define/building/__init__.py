"""The methods of the builder, one subject a file: each reads what it was given and hands a step to `draft`."""
