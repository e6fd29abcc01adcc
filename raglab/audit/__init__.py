"""Audit (shore): what was asked, decided and learned, and how an answer came about."""
