"""Learned signals: signals fitted to labels, and signals of judges and readers."""

import lazy_loader

POINTS: dict[str, str] = {}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["signal_models"])
