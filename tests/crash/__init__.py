"""Breaks before every statement, and real processes killed."""
