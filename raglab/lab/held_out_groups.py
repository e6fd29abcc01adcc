"""Held-out groups (shore): folds of a cross-fit that leave whole groups of cases out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.arguments.plain_arrays import is_missing
from raglab.decision.trace_view import TraceView
from raglab.gating.case_groups import UNKNOWN_GROUP, group_values
from raglab.lab.arrays import AnyArray, BoolArray, IntArray
from raglab.replay import cases_by_shard
from raglab.words.characters import visible


class HeldGroups(NamedTuple):
    """Groups that a cross-fit holds out whole.

    number: of each case's group, from 0 in the order of the names, [Q]. names: of the groups.
    """

    number: IntArray
    names: tuple[str, ...]


def held_groups(
    trace: TraceView, fitted: TraceView, groups: str | Sequence[object], what: str
) -> HeldGroups:
    """Groups of the cases that a fit reads.

    Args:
      trace: as the caller gave it.
      fitted: its cases of split `tune`, or all of it.
      groups: an attribute of the cases (`raglab.gating.case_groups.group_value`), or one value for
        each case of `trace`, in order.
      what: is fitted.

    Raises:
      ValueError: another number of values than cases, cases without a group, or fewer than two
        groups.
    """
    cases = list(chain.from_iterable(cases_by_shard(fitted)))
    if isinstance(groups, str):
        names, of = list(group_values(cases, groups)), f"the attribute {groups!r}"
    else:
        splits = [case.split for case in chain.from_iterable(cases_by_shard(trace))]
        values, of = list(groups), "a sequence"
        if len(values) != len(splits):
            sizes = f"{len(values)} for {len(splits)} cases"
            msg = f"groups must have one value a case of the trace, got {sizes}."
            raise ValueError(msg)
        is_read = [fitted is trace or split == "tune" for split in splits]
        names = [_name(value) for value in compress(values, is_read)]
    if UNKNOWN_GROUP in names:
        counts = f"{names.count(UNKNOWN_GROUP)} of {len(cases)}"
        first = cases[names.index(UNKNOWN_GROUP)].id
        msg = (
            f"groups must name a group for each case that {what} is fitted on, got {of} without a "
            f"value for {counts}, the first {first!r}; state it, or give each a value of its own."
        )
        raise ValueError(visible(msg))
    known, number = np.unique(np.array(names, dtype=np.str_), return_inverse=True)
    if len(known) < 2:
        msg = (
            f"groups must be at least 2, so that {what} can leave one out, got {of} with "
            f"{len(known)} for {len(cases)} cases; leave groups out."
        )
        raise ValueError(visible(msg))
    return HeldGroups(number.astype(np.int64), tuple(known.tolist()))


def _name(value: object) -> str:
    """Name of a group, as `group_value` has it: 2.0 is the group 2, and what is missing is none."""
    if is_missing(value):
        return UNKNOWN_GROUP
    number = float(value) if isinstance(value, float | np.floating) else None
    return str(int(number)) if number is not None and number.is_integer() else str(value).strip()


def grouped_folds(
    kinds: AnyArray, groups: NDArray[np.integer[Any]], folds: int, rng: np.random.Generator
) -> IntArray:
    """Fold of every case, [Q], whole groups together.

    As many folds as groups where these are fewer.

    The largest group comes first, equals in a drawn order; each goes to the fold that has the
    fewest of the kind that the group has most of, and then the fewest cases. It does not depend on
    the order of the cases.

    Args:
      kinds: number of the kind of each case, such as its label, from 0, [Q].
      groups: number of its group, from 0, [Q].

    Raises:
      ValueError: fewer than two groups, or folds below 2.

    Example:
      >>> y, groups = np.array([True, False] * 3), np.array([0, 0, 1, 1, 2, 2])
      >>> sorted(grouped_folds(y, groups, 3, np.random.default_rng(0)).tolist())
      [0, 0, 1, 1, 2, 2]
    """
    n_groups = int(groups.max(initial=-1)) + 1
    if folds < 2 or n_groups < 2:
        msg = f"cross-fitting must have 2 folds and 2 groups or more, got {folds} and {n_groups}."
        raise ValueError(msg)
    kind = kinds.astype(np.int64)
    counts = np.zeros((n_groups, int(kind.max()) + 1), dtype=np.int64)
    np.add.at(counts, (groups, kind), 1)
    drawn = rng.permutation(n_groups)
    order = drawn[np.argsort(-counts[drawn].sum(axis=1), kind="stable")]
    held = np.zeros((min(folds, n_groups), counts.shape[1]), dtype=np.int64)
    fold_of = np.zeros(n_groups, dtype=np.int64)
    for group in order:
        more = int(counts[group].argmax())
        fold_of[group] = np.lexsort((held.sum(axis=1), held[:, more]))[0]
        held[fold_of[group]] += counts[group]
    case_folds: IntArray = fold_of[groups]
    return case_folds


def is_judged(kinds: AnyArray, fold: IntArray) -> BoolArray:
    """Whether a case's kind has cases in another fold, [Q].

    Of a kind that its fold alone holds nothing is learned.
    """
    kind = kinds.astype(np.int64)
    counts = np.zeros((int(fold.max()) + 1, int(kind.max()) + 1), dtype=np.int64)
    np.add.at(counts, (fold, kind), 1)
    is_elsewhere: BoolArray = counts[fold, kind] < counts.sum(axis=0)[kind]
    return is_elsewhere


def held_sentences(groups: HeldGroups, folds: int) -> Iterator[str]:
    """What a reader must know of folds of groups.

    Fewer folds than stated, and a group that holds most cases.

    Args:
      folds: as stated.
    """
    counts = np.bincount(groups.number)
    most = int(counts.argmax())
    if len(counts) < folds:
        yield f"{len(counts)} groups give {len(counts)} folds instead of {folds}."
    if 2 * counts[most] > counts.sum():
        yield visible(
            f"The group {groups.names[most]!r} holds {counts[most]} of {counts.sum()} cases: most "
            "held-out figures are of it, by a fit on the few others."
        )
