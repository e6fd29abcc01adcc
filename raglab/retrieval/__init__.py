"""Retrieval (shore): models and indexes turn a question into hits."""
