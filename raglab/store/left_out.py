"""What is left out of a folder (shore): warnings that count and name it, error if none remains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from raglab.arguments.user_warnings import warn_user
from raglab.store.document_files import DOCUMENTS
from raglab.store.files import InputError, shown_value
from raglab.store.folders import files_below
from raglab.words.characters import visible

_KINDS_SHOWN = 8  # in a warning
_PROBLEMS_SHOWN = 10  # in a message, with their reasons
_PATHS_SHOWN = 200  # likewise, without reasons
# Formats of texts beside documents/ that a warning counts; tables and pictures there are labels and
# results.
_BESIDE = ("Markdown", "HTML", "text", "PDF", "reStructuredText", "Word")
# a set of documents
_ABOUT = ("readme", "license", "licence", "changelog", "contributing", "notice", "requirements")


class OmittedFiles(NamedTuple):
    """What of a folder is in no chunk.

    problems: files and links that cannot be read, by their relative paths. blank: documents without
    text. labels: tables of labelled questions. passed_over: how many files there are that are none
    of the folder, by what they are.
    """

    problems: Mapping[str, InputError]
    blank: Sequence[InputError]
    labels: Sequence[InputError]
    passed_over: Mapping[str, int]


def warn_of_left_out(folder: Path, left_out: OmittedFiles) -> None:
    """Count what is left out of a folder by kind, and name what each kind has, with reasons."""
    problems, blank, labels, passed_over = left_out
    kinds: list[tuple[str, int, Sequence[str]]] = [
        ("files or links that cannot be read", len(problems), _reasons(problems)),
        ("tables of labels", len(labels), _first_reasons(labels)),
        ("documents without text", len(blank), _first_reasons(blank)),
        *((kind, count, ()) for kind, count in sorted(passed_over.items())),
    ]
    parts = []
    for kind, count, reasons in kinds:
        shown = "; ".join(reason.removesuffix(".") for reason in reasons)
        parts += [f"{count} {kind}{': ' if shown else ''}{shown}."] if count else []
    if parts:
        warn_user(visible(f"{folder}: left out of the corpus: {' '.join(parts)}"))


def _first_reasons(errors: Sequence[InputError]) -> list[str]:
    """Messages of the first few."""
    more = [f"and {len(errors) - _KINDS_SHOWN} more"] if len(errors) > _KINDS_SHOWN else []
    return [*map(str, errors[:_KINDS_SHOWN]), *more]


def _reasons(problems: Mapping[str, InputError]) -> list[str]:
    """Messages of files that cannot be read.

    Of many the first ones, and the paths of the others.
    """
    shown = [str(problem) for problem in [*problems.values()][:_PROBLEMS_SHOWN]]
    if more := [*problems][_PROBLEMS_SHOWN:]:
        rest = f" and {len(more) - _PATHS_SHOWN} more" if len(more) > _PATHS_SHOWN else ""
        shown.append(
            f"likewise, each with a reason of its own: {', '.join(more[:_PATHS_SHOWN])}{rest}"
        )
    return shown


def nothing_readable(folder: Path, problems: Sequence[InputError], documents: int) -> InputError:
    """What is wrong with a folder that gives nothing.

    The only problem itself, or several in one message.
    """
    if len(problems) == 1:
        return problems[0]
    more = (
        f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
    )
    shown = " ".join(f"({n}) {problem}" for n, problem in enumerate(problems[:_PROBLEMS_SHOWN], 1))
    rule = (
        f"one of its {documents} documents at least must be readable, and {len(problems)} files "
        "or links are not"
    )
    return InputError(f"{folder}: {rule}: {shown}{more}")


def warn_of_encodings(folder: Path, encodings: Mapping[Path, str]) -> None:
    """Say once of all pages of a folder that they are not in the encodings that they state."""
    if encodings:
        first = ", ".join(
            f"{path.name}: {label}" for path, label in [*encodings.items()][:_KINDS_SHOWN]
        )
        more = ", …" if len(encodings) > _KINDS_SHOWN else ""
        rule = (
            f"{len(encodings)} pages state another encoding, but are UTF-8, and are read as UTF-8"
        )
        warn_user(visible(f"{folder}: {rule} ({first}{more})."))


def warn_of_utf_8(folder: Path, encoding: str | None, files: Mapping[str, str]) -> None:
    """Say once of a folder which files are read in the encoding the caller states, if not all.

    Args:
      encoding: that the caller states.
      files: path -> encoding that it is read in, of files beyond ASCII.
    """
    names = [Path(file).name for file, name in files.items() if name != "utf-8"]
    if encoding is not None and len(names) < len(files):
        more = ", …" if len(names) > _KINDS_SHOWN else ""
        first = f" ({', '.join(names[:_KINDS_SHOWN])}{more})" if names else ""
        rule = f"in a folder, encoding={encoding!r} is of the files that are not UTF-8"
        text = (
            f"{folder}: {rule}: {len(names)} of {len(files)} files beyond ASCII{first} are read "
            f"as {encoding}, all "
        )
        warn_user(visible(f"{text}others as UTF-8; a file that you name alone is read in it."))


def warn_of_beside(place: Path, *, follow_links: bool) -> None:
    """Count the texts of a folder that lie beside its `documents/`.

    Those about the set, such as a README, are none.
    """
    endings = tuple(ending for name in _BESIDE for ending in DOCUMENTS[name])
    below = files_below(place, follow_links=follow_links).files
    beside = [
        path
        for source, path in below.items()
        if not source.startswith("documents/")
        and path.suffix.lower() in endings
        and not path.name.lower().startswith(_ABOUT)
    ]
    if beside:
        text = f"left out of the corpus, since it lies beside documents/: {_counted_kinds(beside)}"
        first = f"the first {shown_value(beside[0].name)}"
        warn_user(
            visible(f"{place}: {text}, {first}; move it into documents/, or give another folder.")
        )


def warn_of_others(
    folder: Path, omitted_files: Sequence[Path], documents: Collection[Path], endings: Iterable[str]
) -> None:
    """Name what of a folder is left out, by kind, and what is taken."""
    if omitted_files:
        taken = f"{_counted_kinds(documents)}" if documents else "none"
        rule = f"documents are {', '.join(endings)}, taken are {taken}"
        left_out = f"left out of the corpus: {_counted_kinds(omitted_files)}"
        warn_user(visible(f"{folder}: {left_out}; {rule}: convert the others, or take them away."))


def _counted_kinds(paths: Iterable[Path]) -> str:
    """Number of files by their ending, the most frequent first; those without one by name."""
    paths = [*paths]
    bare = [shown_value(path.name) for path in paths if not path.suffix]
    names = f"{', '.join(bare[:_KINDS_SHOWN])}{', …' if len(bare) > _KINDS_SHOWN else ''}"
    kinds = Counter(path.suffix.lower() or f"without an ending ({names})" for path in paths)
    more = f" and {len(kinds) - _KINDS_SHOWN} more kinds" if len(kinds) > _KINDS_SHOWN else ""
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(_KINDS_SHOWN)) + more
