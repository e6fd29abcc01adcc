"""Learned signals: signals fitted to labels, and signals of judges and readers."""

POINTS: dict[str, str] = {}
