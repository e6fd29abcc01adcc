"""What is left of a question when its names, dates and words of form are gone: what it is about."""

from __future__ import annotations

from collections.abc import Sequence

from raglab.answering._asked_kinds import OWN_WORDS
from raglab.answering._asked_scopes import FORM_WORDS, SAME
from raglab.answering._asked_words import FAMILY
from raglab.answering._phrases import spans, stems, without


def about(question: str, names: Sequence[str] = (), *, field: str | None = None) -> tuple[str, ...]:
    """Stems of what a question is about, beside its target field.

    Args:
      question: as it was asked. names: words of it that name products, clients or vendors.
      field: its target field, whose own words say nothing further.

    Example:
      >>> about("What is the storm excess on Acme Premier from April 2025?", ["acme premier"], field="excess")
      ('storm',)
    """
    key = field or ""
    own = OWN_WORDS.get(FAMILY.get(key, key), OWN_WORDS.get(key, ()))
    left = stems(without(question, [*names, *(spans(own, question) if own else ()), *spans(FORM_WORDS, question)]))
    return tuple(dict.fromkeys(SAME.get(stem, stem) for stem in left))
