"""How the tables came to be, one revision a file; `steps` holds what revisions are made of."""
