"""The tests; CONTRIBUTING.md says which kind lives where."""
