"""What is left out of a folder (shore): one warning that counts it by kind, with reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from raglab.arguments.user_warnings import warn_user
from raglab.store.document_files import DOCUMENT_ENDINGS
from raglab.store.folders import files_below
from raglab.words.characters import visible

_SHOWN_REASONS = 10  # reasons of a kind in a message
# Formats of texts beside documents/ that a warning counts; tables and pictures there are labels and
# results, and files of these names are about the set.
_COUNTED_FORMATS = ("Markdown", "HTML", "text", "PDF", "reStructuredText", "Word")
_SET_FILE_NAMES = (
    "readme",
    "license",
    "licence",
    "changelog",
    "contributing",
    "notice",
    "requirements",
)


def counted(reasons_by_kind: Mapping[str, Sequence[str]]) -> str:
    """Number of each kind, with the first reasons; a blank reason is not shown.

    Example:
      >>> counted({".rtf": ["", ""], "tables of labels": ["a.csv: load it by load_cases."]})
      '2 .rtf. 1 tables of labels: a.csv: load it by load_cases.'
    """
    texts = []
    for left_out_kind, reasons in reasons_by_kind.items():
        shown_reasons = [reason.removesuffix(".") for reason in reasons if reason]
        if len(shown_reasons) > _SHOWN_REASONS:
            shown_reasons[_SHOWN_REASONS:] = [f"and {len(shown_reasons) - _SHOWN_REASONS} more"]
        texts.append(
            f"{len(reasons)} {left_out_kind}{': ' * bool(shown_reasons)}{'; '.join(shown_reasons)}."
        )
    return " ".join(texts)


def warn_of_left_out(folder: Path, reasons_by_kind: Mapping[str, Sequence[str]]) -> None:
    """Count what is left out of a folder, if anything is."""
    if reasons_by_kind:
        warn_user(visible(f"{folder}: left out of the corpus: {counted(reasons_by_kind)}"))


def warn_of_beside(set_folder: Path, *, follow_links: bool) -> None:
    """Count the texts of a folder beside its `documents/`; those about the set are none."""
    text_endings = tuple(ending for name in _COUNTED_FORMATS for ending in DOCUMENT_ENDINGS[name])
    folder_files = files_below(set_folder, follow_links=follow_links).files
    outside_documents = [
        source
        for source, path in folder_files.items()
        if not source.startswith("documents/")
        and source.lower().endswith(text_endings)
        and not path.name.lower().startswith(_SET_FILE_NAMES)
    ]
    warn_of_left_out(
        set_folder, {"texts beside documents/": outside_documents} if outside_documents else {}
    )
