"""Labels of a set of cases (shore): splits, repeated questions, conflicts (S6.1, S6.5)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.decision.answer_text import ANSWER_RIGHT, ANSWERS_KEY, BASIS_KEY, JUDGE_RIGHT
from raglab.decision.document_names import case_sources
from raglab.store.files import Where, shown_value
from raglab.store.records import MAX_NAME_CHARACTERS, Faults, shown_names
from raglab.values import SOURCE_GRADES, Case, IntArray, document_path
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import plain_question, visible

SPLIT_NAMES = ("tune", "certify", "report")
OTHER_SPLIT_NAMES = {
    **dict.fromkeys(("train", "training"), "tune"),
    **dict.fromkeys(("dev", "val", "valid", "validation"), "certify"),
    **dict.fromkeys(("test", "testing"), "report"),
}
# Keys of `Case.extra` that raglab reads, that its loaders write, or that the bundled sets hold: no
# warning names them.
KNOWN_EXTRA_KEYS = frozenset(
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
CONTEXT_KEYS = ("article", "paragraph", "earlier_turns")
# fields that a label rules out: a refusal has no sources, and only who asks back offers options
_FIELDS_RULED_OUT: Mapping[str | None, tuple[str, ...]] = {
    "refuse": ("expect_sources", "expect_sources_any", "min_sources", "expect_option"),
    "ok": ("expect_option",),
}
# an absolute path, or one that leaves the folder of the corpus
_OUTSIDE_PATH = re.compile(r"/|[A-Za-z]:/|(.*/)?\.\./")

Member = TypeVar("Member")
PlacedCases = Iterable[tuple[Where, Case]]


def labelled_set(
    placed: PlacedCases,
    set_name: str,
    *,
    in_our_form: bool = False,
    stated_extras: Collection[str] = (),
    faults: Faults | None = None,
) -> tuple[Case, ...]:
    """Cases of a labelled set, each id once, splits by our names, no contradicting labels.

    Args:
      placed: cases, each with its place.
      set_name: of the set, in messages.
      in_our_form: whether a person wrote it in our form: then a question with two labels is an
        error. In a published set, or in a trace of hits, it is a warning, and each case is scored
        by its own label.
      stated_extras: keys of `extra` that the caller states besides `KNOWN_EXTRA_KEYS`.
      faults: of reading the cases, which stop the set together with those of their labels.

    Raises:
      InputError: no case, an id twice, an unknown split, a field that its label rules out, or a
        question with two labels in a set of our form; all of these at once.

    Warns:
      UserWarning: splits are mapped; questions are repeated; sources lie outside a corpus; or keys
        are kept in `extra` that nobody reads.

    Source: rules S6.1, S6.5.
    """
    placed_cases = list(placed)
    faults = Faults("cases") if faults is None else faults
    if not placed_cases and not faults:
        faults.add(
            Where(set_name), "a labelled set must have at least one case", "add cases", "none"
        )
    # All faults are collected before any stops the load: a person corrects a file in one go.
    mapped_splits: Counter[str] = Counter()
    case_ids: set[str] = set()
    cases = []
    for location, case in placed_cases:
        _check_case(location, case, case_ids, faults)
        plain_split = (case.split or "").strip().casefold()
        our_split = (
            plain_split if plain_split in SPLIT_NAMES else OTHER_SPLIT_NAMES.get(plain_split)
        )
        if our_split is None and plain_split:
            faults.add(
                location,
                f"split must be one of {', '.join((*SPLIT_NAMES, *OTHER_SPLIT_NAMES))}",
                "rename it, or use raglab.split",
                shown_value(case.split),
            )
        elif our_split != case.split and our_split is not None:
            mapped_splits[f"{case.split!r} as {our_split}"] += 1
        cases.append(case._replace(split=our_split))
    # Published sets repeat questions with other labels: a fault in our own form alone.
    notes = (
        [f"splits are read as ours (rule S6.5): {_counts(mapped_splits)}"] if mapped_splits else []
    )
    notes += _repeated_questions(
        [location for location, _ in placed_cases], cases, faults if in_our_form else None
    )
    faults.stop()
    # Only a person who wrote the set can have meant a path or a key in another way.
    if in_our_form:
        sources_of_cases = ((case, source) for case in cases for source in case_sources(case))
        outside_sources = [
            (case.id, source) for case, source in sources_of_cases if is_outside(source)
        ]
        if outside_sources:
            first_case, source = map(shown_value, outside_sources[0])
            notes.append(
                f"{len({case_id for case_id, _ in outside_sources}):,} of {len(cases):,} cases "
                f"name sources outside a corpus, first {source} in {first_case}; write paths from "
                "the corpus' folder"
            )
        known_extras = KNOWN_EXTRA_KEYS.union(stated_extras)
        unread_extras = Counter(
            repr(extra_key)
            for case in cases
            for extra_key in case.extra
            if extra_key not in known_extras
        )
        if unread_extras:
            notes.append(f"kept in extra, which raglab does not read: {_counts(unread_extras)}")
    for note in notes:
        warn_user(visible(f"{set_name}: {note}."))
    return tuple(cases)


def check_split_names(names: Iterable[str | None]) -> None:
    """Refuse splits that no study, certificate or report reads.

    Raises:
      ValueError: a name that is not in `SPLIT_NAMES`.

    Source: rule S6.5.
    """
    unknown_splits = sorted(
        {str(split_name) for split_name in names if split_name is not None} - {*SPLIT_NAMES, ""}
    )
    if unknown_splits:
        message = (
            f"a case's split must be one of {', '.join(SPLIT_NAMES)}, got "
            f"{', '.join(map(repr, unknown_splits))}; rename it, or use raglab.split."
        )
        raise ValueError(message)


def _check_case(location: Where, case: Case, case_ids: set[str], faults: Faults) -> None:
    """Note an id that came before, names that are too long, and fields that a label rules out."""
    if case.id in case_ids:
        faults.add(
            location,
            "a case's id must be unique",
            "rename or remove one",
            f"{shown_value(case.id)} again",
        )
    case_ids.add(case.id)
    if len(case.id) > MAX_NAME_CHARACTERS:
        faults.add(
            location,
            f"an id must have at most {MAX_NAME_CHARACTERS} characters",
            "shorten it",
            str(len(case.id)),
        )
    for field_name in _FIELDS_RULED_OUT.get(case.expect_status, ()):
        if field_value := getattr(case, field_name):
            faults.add(
                location,
                f"{field_name} must be empty in a case labelled {case.expect_status}",
                "correct the label, or empty it",
                shown_value(
                    field_value if isinstance(field_value, int) else "; ".join(field_value)
                ),
            )


def _counts(name_counts: Counter[str]) -> str:
    return shown_names(
        f"{counted_name} ({n_cases:,})" for counted_name, n_cases in name_counts.items()
    )


def is_outside(source: str) -> bool:
    """Whether a source is an absolute path, or one that leaves the folder of its corpus."""
    return _OUTSIDE_PATH.match(document_path(source)) is not None


def _question_key(
    case: Case, normalise: Callable[[str], str] = plain_question
) -> tuple[str, tuple[str, ...], str]:
    """What makes two questions one: words, documents that the user named, and what came before."""
    context = {
        extra_key: case.extra[extra_key] for extra_key in CONTEXT_KEYS if extra_key in case.extra
    }
    return (
        normalise(case.query),
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


def question_fingerprint(case: Case, normalise: Callable[[str], str] = plain_question) -> str:
    """First 16 hex digits of the SHA-256 of what makes two questions one.

    Words, named documents, earlier turns.

    Args:
      case: with its question.
      normalise: of the words.

    Example:
      >>> question_fingerprint(Case("a", "Who  pays?")) == question_fingerprint(
      ...     Case("b", "who pays", "ok")
      ... )
      True
    """
    return digest(canonical_json(_question_key(case, normalise)), 16)


def question_numbers(cases: Iterable[Case]) -> IntArray:
    """Number of each case's question, from 0, [Q].

    Equal questions have one, whatever the order of the cases, and are in the order of version
    0.1.0, so that folds stay as they were.
    """
    fingerprints = [
        (question_fingerprint(case), question_fingerprint(case, first_form)) for case in cases
    ]
    least_forms: dict[str, str] = {}
    for question, first_form_fingerprint in fingerprints:
        least_forms[question] = min(
            first_form_fingerprint, least_forms.get(question, first_form_fingerprint)
        )
    return np.unique([least_forms[question] for question, _ in fingerprints], return_inverse=True)[
        1
    ]


def join_groups(
    group_of: dict[Member, list[Member]], first_member: Member, second_member: Member
) -> None:
    """Make one group of those of two members.

    Args:
      group_of: list of each member's group, which all of them share.
    """
    smaller_group, larger_group = sorted((group_of[first_member], group_of[second_member]), key=len)
    if smaller_group is not larger_group:
        larger_group += smaller_group
        group_of.update(dict.fromkeys(smaller_group, larger_group))


def counted_questions(cases: Iterable[Case]) -> IntArray:
    """`question_numbers` of cases to promise on.

    Warns:
      UserWarning: several cases ask one question.
    """
    numbers_of_cases = question_numbers(cases)
    n_questions = len(np.unique(numbers_of_cases))
    if n_questions < len(numbers_of_cases):
        warn_user(
            f"{len(numbers_of_cases):,} cases ask {n_questions:,} questions, which count once each."
        )
    return numbers_of_cases


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
    locations: Sequence[Where], cases: Sequence[Case], faults: Faults | None
) -> Iterator[str]:
    """Sentences about questions that come twice, with the same label or another one.

    Args:
      faults: takes questions with two labels; None where a sentence says so.
    """
    first_cases: dict[tuple[object, ...], Case] = {}
    repeated = []
    conflicts = []
    for location, case in zip(locations, cases, strict=True):
        # a case without a label contradicts none, and counts in no rate
        earlier_case = (
            first_cases.setdefault(_question_key(case), case) if case.expect_status else case
        )
        if earlier_case is case:
            continue
        if _label_key(earlier_case) == _label_key(case):
            repeated.append((earlier_case, case))
        elif faults is None:
            conflicts.append((earlier_case, case))
        else:
            shown_labels = " after ".join(map(shown_value, map(_label_text, (case, earlier_case))))
            faults.add(
                location,
                "a question must have one label",
                "correct one, or merge them: a.md;b.md",
                f"{shown_labels} in {shown_value(earlier_case.id)}",
            )
    if conflicts:
        earlier_case, case = conflicts[0]
        yield (
            f"{len(conflicts):,} cases have another label than an earlier one of their question, "
            f"first {shown_value(case.id)} after {shown_value(earlier_case.id)}; each counts "
            "by its own"
        )
    if repeated:
        earlier_case, case = repeated[0]
        n_across = sum(earlier_case.split != case.split for earlier_case, case in repeated)
        across_clause = f", {n_across:,} of them in another split (rule S6.5)" if n_across else ""
        yield (
            f"{len(repeated):,} of {len(cases):,} cases repeat question and label of an earlier "
            f"one{across_clause}, first {shown_value(case.id)} after {shown_value(earlier_case.id)}"
        )
