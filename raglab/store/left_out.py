"""What is left out of a folder (shore): one warning that counts it by kind, with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from raglab.arguments.user_warnings import warn_user
from raglab.store.document_files import DOCUMENTS
from raglab.store.folders import files_below
from raglab.words.characters import visible

_SHOWN = 10  # reasons of a kind in a message
# Formats of texts beside documents/ that a warning counts; tables and pictures there are labels and
# results, and files of these names are about the set.
_BESIDE = ("Markdown", "HTML", "text", "PDF", "reStructuredText", "Word")
_ABOUT = ("readme", "license", "licence", "changelog", "contributing", "notice", "requirements")


def counted(kinds: Mapping[str, Sequence[str]]) -> str:
    """Number of each kind, with the first reasons; a blank reason is not shown.

    Example:
      >>> counted({".rtf": ["", ""], "tables of labels": ["a.csv: load it by load_cases."]})
      '2 .rtf. 1 tables of labels: a.csv: load it by load_cases.'
    """
    parts = []
    for kind, reasons in kinds.items():
        shown = [reason.removesuffix(".") for reason in reasons if reason]
        if len(shown) > _SHOWN:
            shown[_SHOWN:] = [f"and {len(shown) - _SHOWN} more"]
        parts.append(f"{len(reasons)} {kind}{': ' * bool(shown)}{'; '.join(shown)}.")
    return " ".join(parts)


def warn_of_left_out(folder: Path, kinds: Mapping[str, Sequence[str]]) -> None:
    """Count what is left out of a folder, if anything is."""
    if kinds:
        warn_user(visible(f"{folder}: left out of the corpus: {counted(kinds)}"))


def warn_of_beside(place: Path, *, follow_links: bool) -> None:
    """Count the texts of a folder beside its `documents/`; those about the set are none."""
    endings = tuple(ending for name in _BESIDE for ending in DOCUMENTS[name])
    below = files_below(place, follow_links=follow_links).files
    beside = [
        source
        for source, path in below.items()
        if not source.startswith("documents/")
        and source.lower().endswith(endings)
        and not path.name.lower().startswith(_ABOUT)
    ]
    warn_of_left_out(place, {"texts beside documents/": beside} if beside else {})
