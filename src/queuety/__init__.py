"""Durable workflows and jobs in the database you already have."""

__version__ = "0.1.0"

__all__ = ["__version__"]
