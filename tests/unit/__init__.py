"""Tests that need no database and take milliseconds."""
