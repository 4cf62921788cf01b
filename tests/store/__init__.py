"""One conformance suite, run on every database."""
