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
from raglab.store.case_labels import SPLITS, first_form, join_groups
from raglab.store.traces import Trace, dealt_trace
from raglab.values import Case
from raglab.words.canonical import digest
from raglab.words.characters import plain_question
from raglab.words.text import jaccard
from raglab.words.tokeniser import split_words

NEAR = 0.5  # Jaccard index of words from which two questions are near-duplicates (rule S6.5)
_FAR_OFF = 0.05  # of all cases: how far a split may lie from its share before a warning says so
_ROUNDING, _ROUNDING_OF_SUM = 1e-9, 1e-6


Dealt = TypeVar("Dealt", Trace, Sequence[Case])


def split(
    cases: Dealt,
    *,
    tune: float = 0.4,
    certify: float = 0.3,
    report: float = 0.3,
    seed: int = 0,
    near: float = NEAR,
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
    near, seed = float(str(near)), operator.index(seed)
    stated = {"tune": tune, "certify": certify, "report": report}
    shares = {name: float(str(share)) for name, share in stated.items()}
    _check(questions, shares, near, seed, again=again)
    groups = near_duplicates([case.query for case in questions], near)
    dealt = _deal(questions, groups, shares, seed)
    for text in _notes(questions, dealt, groups, shares):
        warn_user(text)
    with_splits = tuple(
        case._replace(split=name) for case, name in zip(questions, dealt, strict=True)
    )
    return dealt_trace(cases, with_splits) if isinstance(cases, Trace) else with_splits


def near_duplicates(questions: Sequence[str], near: float = NEAR) -> list[list[int]]:
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
    first: dict[str, int] = {}
    same_as = [
        first.setdefault(plain_question(question), place)
        for place, question in enumerate(questions)
    ]
    bags = {place: frozenset(split_words(questions[place])) for place in first.values()}
    frequency = Counter(word for bag in bags.values() for word in bag)
    by_word: dict[str, list[int]] = defaultdict(list)
    group_of = {place: [place] for place in bags}
    for place, bag in bags.items():
        rarest = sorted(bag, key=lambda word: (frequency[word], word))
        for word in rarest[: len(bag) - math.ceil(near * len(bag) - _ROUNDING) + 1]:
            for second in by_word[word]:
                is_apart = group_of[second] is not group_of[place]
                if is_apart and jaccard(bags[second], bag) >= near:
                    join_groups(group_of, place, second)
            by_word[word].append(place)
    groups: dict[int, list[int]] = defaultdict(list)
    for place, same in enumerate(same_as):
        groups[id(group_of[same])].append(place)
    return list(groups.values())


def _check(
    cases: Sequence[Case], shares: Mapping[str, float], near: float, seed: int, *, again: bool
) -> None:
    """Refuse what holds no cases, cases that have a split, and numbers out of range."""
    if not isinstance(cases, list | tuple) or not all(isinstance(case, Case) for case in cases):
        kind = type(cases).__name__
        remedy = "see raglab.load_cases, or trace.loaded()"
        msg = f"cases must be a list of raglab.Case, got a {kind}; {remedy}."
        raise TypeError(msg)
    n_dealt = sum(case.split is not None for case in cases)
    sizes = [*shares.values()]
    rules: tuple[tuple[str, bool, object], ...] = (
        ("cases to split must be at least one", len(cases) > 0, "none"),
        (
            "cases must have no split yet, unless again=True",
            again or not n_dealt,
            f"{n_dealt:,} of {len(cases):,} with one",
        ),
        (
            "shares must be in [0, 1] and sum to 1",
            min(sizes) >= 0.0 and abs(sum(sizes) - 1.0) <= _ROUNDING_OF_SUM,
            sizes,
        ),
        ("near, a Jaccard index, must be in (0, 1]", 0.0 < near <= 1.0, near),
        ("seed must be a whole number from 0", seed >= 0, seed),
    )
    for rule, holds, value in rules:
        if not holds:
            msg = f"{rule}, got {value}."
            raise ValueError(msg)


def _deal(
    cases: Sequence[Case], groups: Sequence[Sequence[int]], shares: Mapping[str, float], seed: int
) -> list[str]:
    """Split of every case.

    Each group goes where most cases of its labels are missing, the largest groups first.
    """
    labels = [case.expect_status or "none" for case in cases]
    missing = {
        label: {name: share * n for name, share in shares.items()}
        for label, n in Counter(labels).items()
    }
    dealt = [""] * len(cases)

    def order(group: Sequence[int]) -> tuple[int, str]:
        # by the form of raglab 0.1.0, so that a seed deals as it did
        return -len(group), digest(
            f"{seed}\n{min(first_form(cases[place].query) for place in group)}"
        )

    for group in sorted(groups, key=order):
        counts = Counter(labels[place] for place in group)

        def need(name: str, counts: Counter[str] = counts) -> tuple[float, float]:
            own = sum(n * missing[label][name] for label, n in sorted(counts.items()))
            return round(own, 9), round(sum(of[name] for of in missing.values()), 9)

        name = max((name for name, share in shares.items() if share), key=need)
        for label, n in counts.items():
            missing[label][name] -= n
        for place in group:
            dealt[place] = name
    return dealt


def _notes(
    cases: Sequence[Case],
    dealt: Sequence[str],
    groups: Sequence[Sequence[int]],
    shares: Mapping[str, float],
) -> Iterable[str]:
    """What a reader must know of the splits.

    Shares that near-duplicates move, labels that a split lacks.
    """
    n, sizes = len(cases), Counter(dealt)
    if any(abs(sizes[name] - share * n) > max(1.0, _FAR_OFF * n) for name, share in shares.items()):
        counts = ", ".join(f"{name} {sizes[name]} for {of * n:.4g}" for name, of in shares.items())
        yield (
            f"splits lie off their shares: {counts}; {max(map(len, groups)):,} of {n:,} questions "
            "are near-duplicates and stay together; a higher near finds fewer."
        )
    labels = [case.expect_status or "none" for case in cases]
    present = {*zip(dealt, labels, strict=True)}
    lacks = [
        f"{name} has no case labelled {label} ({count:,} in all)"
        for name in SPLITS
        for label, count in sorted(Counter(labels).items())
        if shares[name] and (name, label) not in present
    ]
    if lacks:
        yield f"{'; '.join(lacks)}: label more, or leave a split out."
