"""Texts (algebra): characters, words, numerals, languages, packs.

Forms in which values are written.
"""
