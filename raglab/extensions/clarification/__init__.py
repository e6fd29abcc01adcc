"""Clarification: question gaps, replies, field reading, learned defaults in a live system."""

POINTS: dict[str, str] = {}
