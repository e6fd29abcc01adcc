"""Savers, and tables of other tools (shore): cases, corpora, shards, hits, scores."""

from raglab.extension_points import public_names as _public_names

__getattr__, __dir__ = _public_names(__name__, __file__)
__all__ = list(__dir__())
