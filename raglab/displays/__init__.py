"""Displays (shore): figures with tables, as a notebook shows them, and what the report draws."""

from raglab.extension_points import public_names as _public_names

__getattr__, __dir__ = _public_names(__name__, __file__)
__all__ = list(__dir__())
