"""Labels of a set of cases (shore): splits, repeated questions, conflicts (S6.1, S6.5)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import ANSWER_RIGHT, ANSWERS_KEY, BASIS_KEY, JUDGE_RIGHT
from raglab.decision.document_names import case_sources
from raglab.store.files import Where, shown_value
from raglab.store.records import MAX_NAME, Faults, shown_names
from raglab.values import SOURCE_GRADES, Case, document_path
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import plain_question, visible

SPLITS = ("tune", "certify", "report")
OTHER_SPLITS = {
    **dict.fromkeys(("train", "training"), "tune"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "certify"),
    **dict.fromkeys(("test", "testing"), "report"),
}
# Keys of `Case.extra` that raglab reads, that its loaders write, or that the bundled sets hold: no
# warning names them.
KNOWN_EXTRAS = frozenset(
    {
        "lang",
        "language",
        "line",
        "domain",
        "kind",
        "phrasing",
        "readings",
        "article",
        "paragraph",
        "document",
        "conversation_id",
        ANSWERS_KEY,
        SOURCE_GRADES,
        ANSWER_RIGHT,
        JUDGE_RIGHT,
        BASIS_KEY,
        "answerability",
        "earlier_turns",
        "last_turn",
        "turn",
        "question_type",
        "multi_turn",
        "collection",
        "label_note",
        "at",
        "groups",
        "logged_answer",
        "stratum",
        "inclusion_probability",
        "sample_label",
    }
)
# keys of `extra` that tell one question from another
CONTEXT = ("article", "paragraph", "earlier_turns")
# fields that a label rules out: a refusal has no sources, and only who asks back offers options
_RULED_OUT: Mapping[str | None, tuple[str, ...]] = {
    "refuse": ("expect_sources", "expect_sources_any", "min_sources", "expect_option"),
    "ok": ("expect_option",),
}
# an absolute path, or one that leaves the folder of the corpus
_OUTSIDE = re.compile(r"/|[A-Za-z]:/|(.*/)?\.\./")

Member = TypeVar("Member")
PlacedCases = Iterable[tuple[Where, Case]]


def labelled_set(
    placed: PlacedCases,
    name: str,
    *,
    own: bool = False,
    known: Collection[str] = (),
    faults: Faults | None = None,
) -> tuple[Case, ...]:
    """Cases of a labelled set, each id once, splits by our names, no contradicting labels.

    Args:
      placed: cases, each with its place.
      name: of the set, in messages.
      own: whether a person wrote it in our form: then a question with two labels is an error. In a
        published set, or in a trace of hits, it is a warning, and each case is scored by its own
        label.
      known: keys of `extra` that the caller states, beside `KNOWN_EXTRAS`.
      faults: of reading the cases, which stop the set together with those of their labels.

    Raises:
      InputError: no case, an id twice, an unknown split, a field that its label rules out, or a
        question with two labels in a set of our form; all of these at once.

    Warns:
      UserWarning: splits are mapped; questions are repeated; sources lie outside a corpus; or keys
        are kept in `extra` that nobody reads.

    Source: rules S6.1, S6.5.
    """
    pairs = list(placed)
    faults = Faults("cases") if faults is None else faults
    if not pairs and not faults:
        faults.add(Where(name), "a labelled set must have at least one case", "add cases", "none")
    mapped: Counter[str] = Counter()
    ids: set[str] = set()
    cases = []
    for where, case in pairs:
        _check_case(where, case, ids, faults)
        plain = (case.split or "").strip().casefold()
        split = plain if plain in SPLITS else OTHER_SPLITS.get(plain)
        if split is None and plain:
            faults.add(
                where,
                f"split must be one of {', '.join((*SPLITS, *OTHER_SPLITS))}",
                "rename it, or use raglab.split",
                shown_value(case.split),
            )
        elif split != case.split and split is not None:
            mapped[f"{case.split!r} as {split}"] += 1
        cases.append(case._replace(split=split))
    notes = [f"splits are read as ours (rule S6.5): {_counts(mapped)}"] if mapped else []
    notes += _repeated_questions([where for where, _ in pairs], cases, faults if own else None)
    faults.stop()
    if own:
        pairs_of_sources = ((case, source) for case in cases for source in case_sources(case))
        outside = [(case.id, source) for case, source in pairs_of_sources if is_outside(source)]
        if outside:
            first, source = map(shown_value, outside[0])
            notes.append(
                f"{len({name for name, _ in outside}):,} of {len(cases):,} cases name sources "
                f"outside a corpus, first {source} in {first}; write paths from the corpus' folder"
            )
        unread = KNOWN_EXTRAS.union(known)
        further = Counter(repr(key) for case in cases for key in case.extra if key not in unread)
        if further:
            notes.append(f"kept in extra, which raglab does not read: {_counts(further)}")
    for text in notes:
        warn_user(visible(f"{name}: {text}."))
    return tuple(cases)


def check_split_names(names: Iterable[str | None]) -> None:
    """Refuse splits that no study, certificate or report reads.

    Raises:
      ValueError: a name that is none of `SPLITS`.

    Source: rule S6.5.
    """
    odd = sorted({str(name) for name in names if name is not None} - {*SPLITS, ""})
    if odd:
        msg = (
            f"a case's split must be one of {', '.join(SPLITS)}, got {', '.join(map(repr, odd))}; "
            "rename it, or use raglab.split."
        )
        raise ValueError(msg)


def _check_case(where: Where, case: Case, ids: set[str], faults: Faults) -> None:
    """Note an id that came before, names that are too long, and fields that a label rules out."""
    if case.id in ids:
        faults.add(
            where,
            "a case's id must be unique",
            "rename or remove one",
            f"{shown_value(case.id)} again",
        )
    ids.add(case.id)
    if len(case.id) > MAX_NAME:
        faults.add(
            where,
            f"an id must have at most {MAX_NAME} characters",
            "shorten it",
            str(len(case.id)),
        )
    for field in _RULED_OUT.get(case.expect_status, ()):
        if value := getattr(case, field):
            faults.add(
                where,
                f"{field} must be empty in a case labelled {case.expect_status}",
                "correct the label, or empty it",
                shown_value(value if isinstance(value, int) else "; ".join(value)),
            )


def _counts(counter: Counter[str]) -> str:
    return shown_names(f"{name} ({count:,})" for name, count in counter.items())


def is_outside(source: str) -> bool:
    """Whether a source is an absolute path, or one that leaves the folder of its corpus."""
    return _OUTSIDE.match(document_path(source)) is not None


def _question_key(
    case: Case, form: Callable[[str], str] = plain_question
) -> tuple[str, tuple[str, ...], str]:
    """What makes two questions one: words, documents that the user named, and what came before."""
    context = {key: case.extra[key] for key in CONTEXT if key in case.extra}
    return (
        form(case.query),
        _distinct(case.selected_sources),
        canonical_json(context) if context else "",
    )


def _label_key(
    case: Case,
) -> tuple[str | None, tuple[str, ...], tuple[str, ...], int, int | None]:
    return (
        case.expect_status,
        _distinct(case.expect_sources),
        _distinct(case.expect_sources_any),
        case.min_sources,
        case.expect_option,
    )


def _distinct(sources: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({*sources}))


def first_form(text: str) -> str:
    """A question without regard to case and white space: its plain form in raglab 0.1.0."""
    return " ".join(text.casefold().split())


def question_fingerprint(case: Case, form: Callable[[str], str] = plain_question) -> str:
    """First 16 hex digits of the SHA-256 of what makes two questions one.

    Words, named documents, earlier turns.

    Args:
      case: with its question.
      form: of the words.

    Example:
      >>> question_fingerprint(Case("a", "Who  pays?")) == question_fingerprint(
      ...     Case("b", "who pays", "ok")
      ... )
      True
    """
    return digest(canonical_json(_question_key(case, form)), 16)


def question_numbers(cases: Iterable[Case]) -> NDArray[np.int64]:
    """Number of each case's question, from 0, [Q].

    Equal questions have one, whatever the order of the cases, and are in the order of version
    0.1.0, so that folds stay as they were.
    """
    pairs = [(question_fingerprint(case), question_fingerprint(case, first_form)) for case in cases]
    least: dict[str, str] = {}
    for question, first in pairs:
        least[question] = min(first, least.get(question, first))
    return np.unique([least[question] for question, _ in pairs], return_inverse=True)[1]


def join_groups(group_of: dict[Member, list[Member]], first: Member, second: Member) -> None:
    """Make one group of those of two members.

    Args:
      group_of: list of each member's group, which all of them share.
    """
    small, large = sorted((group_of[first], group_of[second]), key=len)
    if small is not large:
        large += small
        group_of.update(dict.fromkeys(small, large))


def counted_questions(cases: Iterable[Case]) -> NDArray[np.int64]:
    """`question_numbers` of cases to promise on.

    Warns:
      UserWarning: several cases ask one question.
    """
    numbers = question_numbers(cases)
    n = len(np.unique(numbers))
    if n < len(numbers):
        warn_user(f"{len(numbers):,} cases ask {n:,} questions, which count once each.")
    return numbers


def label_fingerprint(case: Case, golds: Sequence[str] = ()) -> str:
    """First 16 hex digits of the SHA-256 of what a case is judged by.

    Status, sources, options, gold answers.

    Args:
      case: with its label.
      golds: gold answers, where the case is judged by text.

    Source: rules S6.1, S6.3.

    Example:
      >>> label_fingerprint(Case("a", "Who?", "ok")) == label_fingerprint(
      ...     Case("a", "Who?", "ok"), ["Ann"]
      ... )
      False
    """
    return digest(canonical_json([*_label_key(case), sorted(golds)]), 16)


def _label_text(case: Case) -> str:
    """Label as messages show it: `ok a.md; b.md`."""
    sources = "; ".join((*case.expect_sources, *case.expect_sources_any))
    parts = (case.expect_status, sources, case.min_sources, case.expect_option)
    return " ".join(map(str, filter(None, parts)))


def _repeated_questions(
    places: Sequence[Where], cases: Sequence[Case], faults: Faults | None
) -> Iterator[str]:
    """Sentences about questions that come twice, with the same label or another one.

    Args:
      faults: takes questions with two labels; None where a sentence says so.
    """
    first: dict[tuple[object, ...], Case] = {}
    repeated, conflicts = [], []
    for where, case in zip(places, cases, strict=True):
        # a case without a label contradicts none, and counts in no rate
        before = first.setdefault(_question_key(case), case) if case.expect_status else case
        if before is case:
            continue
        if _label_key(before) == _label_key(case):
            repeated.append((before, case))
        elif faults is None:
            conflicts.append((before, case))
        else:
            labels = " after ".join(map(shown_value, map(_label_text, (case, before))))
            faults.add(
                where,
                "a question must have one label",
                "correct one, or merge them: a.md;b.md",
                f"{labels} in {shown_value(before.id)}",
            )
    if conflicts:
        before, case = conflicts[0]
        yield (
            f"{len(conflicts):,} cases have another label than an earlier one of their question, "
            f"first {shown_value(case.id)} after {shown_value(before.id)}; each counts by its own"
        )
    if repeated:
        before, case = repeated[0]
        apart = sum(before.split != case.split for before, case in repeated)
        across = f", {apart:,} of them in another split (rule S6.5)" if apart else ""
        yield (
            f"{len(repeated):,} of {len(cases):,} cases repeat question and label of an earlier "
            f"one{across}, first {shown_value(case.id)} after {shown_value(before.id)}"
        )
