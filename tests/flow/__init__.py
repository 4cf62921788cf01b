"""Scenarios, named by what the user sees."""
