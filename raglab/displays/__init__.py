"""Displays (shore): figures with their tables, as a notebook shows them, and what the report draws."""
