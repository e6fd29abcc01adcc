"""Answering (shore): answers, their support and hygiene."""
