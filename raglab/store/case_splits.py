"""Splits of cases (shore): cases dealt to tune, certify and report (S6.5).

Near-duplicate questions stay together.
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from raglab.arguments.user_warnings import warn_user
from raglab.store.case_labels import SPLIT_NAMES, first_form, join_groups
from raglab.store.traces import Trace, dealt_trace
from raglab.values import Case
from raglab.words.canonical import digest
from raglab.words.characters import plain_question
from raglab.words.text import jaccard
from raglab.words.tokeniser import split_words

NEAR_JACCARD = (
    0.5  # Jaccard index of words from which two questions are near-duplicates (rule S6.5)
)
_SHARE_TOLERANCE = (
    0.05  # of all cases: how far a split may lie from its share before a warning says so
)
_NEAR_TOLERANCE = 1e-9
_SUM_TOLERANCE = 1e-6


Dealt = TypeVar("Dealt", Trace, Sequence[Case])


def split(
    cases: Dealt,
    *,
    tune: float = 0.4,
    certify: float = 0.3,
    report: float = 0.3,
    seed: int = 0,
    near: float = NEAR_JACCARD,
    again: bool = False,
) -> Dealt:
    """Cases, or a trace of them, with a split each: `tune`, `certify` or `report`.

    Each label is dealt in these shares. Questions that are near-duplicates, in one step or in
    several, stay together, so that no split holds what another was tuned on. What a case is dealt
    depends on its question, on the other questions and on the seed, not on the order of the cases
    or their ids.

    Args:
      cases: of `load_cases`; or a trace in memory, such as one of your own hits
        (`raglab.trace_from_frame`), whose cases are dealt as they would be without it.
      tune: share of the cases that thresholds are tuned on, in [0, 1].
      certify: share of the cases that are certified on, in [0, 1].
      report: share of the cases that are reported on, in [0, 1].
      seed: another seed gives another division.
      near: Jaccard index of the words of two questions, in (0, 1], from which they are
        near-duplicates. Questions of one template, such as "how do I set …", need a higher one:
        else they all stay together.
      again: deal cases that have a split already; what was tuned on them has seen cases of every
        new split.

    Returns:
      The cases in their order, as a tuple; of a trace, the trace with them.

    Raises:
      TypeError: no list of cases and no trace in memory, or a seed that is no whole number.
      ValueError: no case, a case that has a split without `again`, shares that do not sum to 1,
        `near` outside (0, 1], or a seed below 0.

    Warns:
      UserWarning: near-duplicates move a split away from its share, or a split has no case of a
        label.

    Source: rule S6.5.

    Example:
      >>> cases = [
      ...     Case(f"q{n}", f"{word}?", "ok")
      ...     for n, word in enumerate("one two three four five".split())
      ... ]
      >>> sorted(case.split for case in split(cases, tune=0.4, certify=0.2, report=0.4))
      ['certify', 'report', 'report', 'tune', 'tune']
    """
    questions = cases.cases if isinstance(cases, Trace) else cases
    # of numpy.float32(0.4), whose digits go on, 0.4
    near = float(str(near))
    seed = operator.index(seed)
    stated_shares = {"tune": tune, "certify": certify, "report": report}
    split_shares = {
        split_name: float(str(split_share)) for split_name, split_share in stated_shares.items()
    }
    _check(questions, split_shares, near, seed, again=again)
    question_groups = near_duplicates([case.query for case in questions], near)
    split_names = _deal(questions, question_groups, split_shares, seed)
    for note in _notes(questions, split_names, question_groups, split_shares):
        warn_user(note)
    with_splits = tuple(
        case._replace(split=split_name)
        for case, split_name in zip(questions, split_names, strict=True)
    )
    return dealt_trace(cases, with_splits) if isinstance(cases, Trace) else with_splits


def near_duplicates(questions: Sequence[str], near: float = NEAR_JACCARD) -> list[list[int]]:
    """Positions of the questions in groups.

    Two near-duplicates are in one group, ascending, by first position.

    Two near-duplicates share one of their rarest words: of n words, one of the first n - near * n +
    1. Only questions that share one are compared, which leaves out nearly all pairs.

    Args:
      near: Jaccard index of the words of two questions, in (0, 1], from which they are
        near-duplicates.

    Example:
      >>> near_duplicates(["Who pays the excess?", "What is covered?", "who pays the excess now"])
      [[0, 2], [1]]
    """
    first_positions: dict[str, int] = {}
    first_of_same = [
        first_positions.setdefault(plain_question(question), position)
        for position, question in enumerate(questions)
    ]
    word_sets = {
        position: frozenset(split_words(questions[position]))
        for position in first_positions.values()
    }
    word_frequency = Counter(
        word for question_words in word_sets.values() for word in question_words
    )
    questions_by_word: dict[str, list[int]] = defaultdict(list)
    group_of = {position: [position] for position in word_sets}
    for position, question_words in word_sets.items():
        words_by_rarity = sorted(question_words, key=lambda word: (word_frequency[word], word))
        for word in words_by_rarity[
            : len(question_words) - math.ceil(near * len(question_words) - _NEAR_TOLERANCE) + 1
        ]:
            for earlier_question in questions_by_word[word]:
                is_apart = group_of[earlier_question] is not group_of[position]
                if is_apart and jaccard(word_sets[earlier_question], question_words) >= near:
                    join_groups(group_of, position, earlier_question)
            questions_by_word[word].append(position)
    grouped_positions: dict[int, list[int]] = defaultdict(list)
    for position, first_position in enumerate(first_of_same):
        grouped_positions[id(group_of[first_position])].append(position)
    return list(grouped_positions.values())


def _check(
    cases: Sequence[Case],
    shares: Mapping[str, float],
    near_threshold: float,
    seed: int,
    *,
    again: bool,
) -> None:
    """Refuse what holds no cases, cases that have a split, and numbers out of range."""
    if not isinstance(cases, list | tuple) or not all(isinstance(case, Case) for case in cases):
        type_name = type(cases).__name__
        remedy = "see raglab.load_cases, or trace.loaded()"
        message = f"cases must be a list of raglab.Case, got a {type_name}; {remedy}."
        raise TypeError(message)
    n_dealt = sum(case.split is not None for case in cases)
    share_sizes = [*shares.values()]
    argument_rules: tuple[tuple[str, bool, object], ...] = (
        ("cases to split must be at least one", len(cases) > 0, "none"),
        (
            "cases must have no split yet, unless again=True",
            again or not n_dealt,
            f"{n_dealt:,} of {len(cases):,} with one",
        ),
        (
            "shares must be in [0, 1] and sum to 1",
            min(share_sizes) >= 0.0 and abs(sum(share_sizes) - 1.0) <= _SUM_TOLERANCE,
            share_sizes,
        ),
        ("near, a Jaccard index, must be in (0, 1]", 0.0 < near_threshold <= 1.0, near_threshold),
        ("seed must be a whole number from 0", seed >= 0, seed),
    )
    for broken_rule, holds, shown_value in argument_rules:
        if not holds:
            message = f"{broken_rule}, got {shown_value}."
            raise ValueError(message)


def _deal(
    cases: Sequence[Case],
    question_groups: Sequence[Sequence[int]],
    split_shares: Mapping[str, float],
    seed: int,
) -> list[str]:
    """Split of every case.

    Each group goes where most cases of its labels are missing, the largest groups first.
    """
    case_labels = [case.expect_status or "none" for case in cases]
    missing_by_label = {
        case_label: {
            split_name: split_share * n_cases for split_name, split_share in split_shares.items()
        }
        for case_label, n_cases in Counter(case_labels).items()
    }
    split_names = [""] * len(cases)

    def order(question_group: Sequence[int]) -> tuple[int, str]:
        # by the form of raglab 0.1.0, so that a seed deals as it did
        return -len(question_group), digest(
            f"{seed}\n{min(first_form(cases[position].query) for position in question_group)}"
        )

    for question_group in sorted(question_groups, key=order):
        label_counts = Counter(case_labels[position] for position in question_group)

        def need(split_name: str, label_counts: Counter[str] = label_counts) -> tuple[float, float]:
            missing_of_labels = sum(
                n_cases * missing_by_label[case_label][split_name]
                for case_label, n_cases in sorted(label_counts.items())
            )
            return round(missing_of_labels, 9), round(
                sum(missing_by_split[split_name] for missing_by_split in missing_by_label.values()),
                9,
            )

        split_name = max(
            (split_name for split_name, split_share in split_shares.items() if split_share),
            key=need,
        )
        for case_label, n_cases in label_counts.items():
            missing_by_label[case_label][split_name] -= n_cases
        for position in question_group:
            split_names[position] = split_name
    return split_names


def _notes(
    cases: Sequence[Case],
    split_names: Sequence[str],
    question_groups: Sequence[Sequence[int]],
    split_shares: Mapping[str, float],
) -> Iterable[str]:
    """What a reader must know of the splits.

    Shares that near-duplicates move, labels that a split lacks.
    """
    n_cases = len(cases)
    split_sizes = Counter(split_names)
    if any(
        abs(split_sizes[split_name] - target_share * n_cases) > max(1.0, _SHARE_TOLERANCE * n_cases)
        for split_name, target_share in split_shares.items()
    ):
        shown_sizes = ", ".join(
            f"{split_name} {split_sizes[split_name]} for {split_share * n_cases:.4g}"
            for split_name, split_share in split_shares.items()
        )
        yield (
            f"splits lie off their shares: {shown_sizes}; {max(map(len, question_groups)):,} of "
            f"{n_cases:,} questions are near-duplicates and stay together; a higher near "
            "finds fewer."
        )
    case_labels = [case.expect_status or "none" for case in cases]
    present_pairs = {*zip(split_names, case_labels, strict=True)}
    lacking_notes = [
        f"{split_name} has no case labelled {case_label} ({n_labelled:,} in all)"
        for split_name in SPLIT_NAMES
        for case_label, n_labelled in sorted(Counter(case_labels).items())
        if split_shares[split_name] and (split_name, case_label) not in present_pairs
    ]
    if lacking_notes:
        yield f"{'; '.join(lacking_notes)}: label more, or leave a split out."
