"""Every block of code in the documentation runs."""
