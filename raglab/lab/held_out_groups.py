"""Held-out groups (shore): folds of a cross-fit that leave whole groups of cases out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, compress
from typing import NamedTuple

import numpy as np

from raglab.arguments.plain_arrays import is_missing
from raglab.decision.trace_view import TraceView
from raglab.gating.case_groups import UNKNOWN_GROUP, group_values
from raglab.replay import cases_by_shard
from raglab.values import AnyArray, BoolArray, IntArray, WholeArray
from raglab.words.characters import visible


class HeldGroups(NamedTuple):
    """Groups that a cross-fit holds out whole.

    number: of each case's group, from 0 in the order of the names, [Q]. names: of the groups.
    """

    number: IntArray
    names: tuple[str, ...]


def held_groups(
    trace: TraceView,
    fitted_trace: TraceView,
    stated_groups: str | Sequence[object],
    fit_phrase: str,
) -> HeldGroups:
    """Groups of the cases that a fit reads.

    Args:
      trace: as the caller gave it.
      fitted_trace: its cases of split `tune`, or all of it.
      stated_groups: an attribute of the cases (`raglab.gating.case_groups.group_value`), or one
        value for each case of `trace`, in order.
      fit_phrase: is fitted.

    Raises:
      ValueError: another number of values than cases, cases without a group, or fewer than two
        groups.
    """
    cases = list(chain.from_iterable(cases_by_shard(fitted_trace)))
    if isinstance(stated_groups, str):
        names_of_cases = list(group_values(cases, stated_groups))
        groups_phrase = f"the attribute {stated_groups!r}"
    else:
        split_names = [case.split for case in chain.from_iterable(cases_by_shard(trace))]
        stated_values = list(stated_groups)
        groups_phrase = "a sequence"
        if len(stated_values) != len(split_names):
            sizes_text = f"{len(stated_values)} for {len(split_names)} cases"
            message = f"groups must have one value a case of the trace, got {sizes_text}."
            raise ValueError(message)
        is_read = [fitted_trace is trace or split_name == "tune" for split_name in split_names]
        names_of_cases = [_name(stated_value) for stated_value in compress(stated_values, is_read)]
    if UNKNOWN_GROUP in names_of_cases:
        unnamed_counts = f"{names_of_cases.count(UNKNOWN_GROUP)} of {len(cases)}"
        first_unnamed = cases[names_of_cases.index(UNKNOWN_GROUP)].id
        raise ValueError(
            visible(
                f"groups must name a group for each case that {fit_phrase} is fitted on, got "
                f"{groups_phrase} without a "
                f"value for {unnamed_counts}, the first {first_unnamed!r}; state it, "
                "or give each a value of its own."
            )
        )
    group_names, group_numbers = np.unique(
        np.array(names_of_cases, dtype=np.str_), return_inverse=True
    )
    if len(group_names) < 2:
        raise ValueError(
            visible(
                f"groups must be at least 2, so that {fit_phrase} can leave one out, got "
                f"{groups_phrase} with "
                f"{len(group_names)} for {len(cases)} cases; leave groups out."
            )
        )
    return HeldGroups(group_numbers.astype(np.int64), tuple(group_names.tolist()))


def _name(stated_value: object) -> str:
    """Name of a group, as `group_value` has it: 2.0 is the group 2, and what is missing is none."""
    if is_missing(stated_value):
        return UNKNOWN_GROUP
    float_value = float(stated_value) if isinstance(stated_value, float | np.floating) else None
    return (
        str(int(float_value))
        if float_value is not None and float_value.is_integer()
        else str(stated_value).strip()
    )


def grouped_folds(
    kind_numbers: AnyArray,
    group_numbers: WholeArray,
    n_folds: int,
    rng: np.random.Generator,
) -> IntArray:
    """Fold of every case, [Q], whole groups together.

    As many folds as groups where these are fewer.

    The largest group comes first, equals in a drawn order; each goes to the fold that has the
    fewest of the kind that the group has most of, and then the fewest cases. It does not depend on
    the order of the cases.

    Args:
      kind_numbers: number of the kind of each case, such as its label, from 0, [Q].
      group_numbers: number of its group, from 0, [Q].

    Raises:
      ValueError: fewer than two groups, or folds below 2.

    Example:
      >>> y, groups = np.array([True, False] * 3), np.array([0, 0, 1, 1, 2, 2])
      >>> sorted(grouped_folds(y, groups, 3, np.random.default_rng(0)).tolist())
      [0, 0, 1, 1, 2, 2]
    """
    n_groups = int(group_numbers.max(initial=-1)) + 1
    if n_folds < 2 or n_groups < 2:
        message = (
            f"cross-fitting must have 2 folds and 2 groups or more, got {n_folds} and {n_groups}."
        )
        raise ValueError(message)
    case_kinds = kind_numbers.astype(np.int64)
    kind_counts = np.zeros((n_groups, int(case_kinds.max()) + 1), dtype=np.int64)
    np.add.at(kind_counts, (group_numbers, case_kinds), 1)
    drawn_order = rng.permutation(n_groups)
    group_order = drawn_order[np.argsort(-kind_counts[drawn_order].sum(axis=1), kind="stable")]
    fold_counts = np.zeros((min(n_folds, n_groups), kind_counts.shape[1]), dtype=np.int64)
    fold_of_group = np.zeros(n_groups, dtype=np.int64)
    for group_number in group_order:
        main_kind = int(kind_counts[group_number].argmax())
        fold_of_group[group_number] = np.lexsort(
            (fold_counts.sum(axis=1), fold_counts[:, main_kind])
        )[0]
        fold_counts[fold_of_group[group_number]] += kind_counts[group_number]
    case_folds: IntArray = fold_of_group[group_numbers]
    return case_folds


def is_judged(kind_numbers: AnyArray, case_fold: IntArray) -> BoolArray:
    """Whether a case's kind has cases in another fold, [Q].

    Of a kind that its fold alone holds nothing is learned.

    Example: kind 1 has cases in fold 0 alone.
      >>> is_judged(np.array([0, 1, 0]), np.array([0, 0, 1])).tolist()
      [True, False, True]
    """
    case_kinds = kind_numbers.astype(np.int64)
    counts = np.zeros((int(case_fold.max()) + 1, int(case_kinds.max()) + 1), dtype=np.int64)
    np.add.at(counts, (case_fold, case_kinds), 1)
    is_elsewhere: BoolArray = counts[case_fold, case_kinds] < counts.sum(axis=0)[case_kinds]
    return is_elsewhere


def held_sentences(held_out: HeldGroups, n_folds: int) -> Iterator[str]:
    """What a reader must know of folds of groups.

    Fewer folds than stated, and a group that holds most cases.

    Args:
      n_folds: as stated.
    """
    counts = np.bincount(held_out.number)
    largest_group = int(counts.argmax())
    if len(counts) < n_folds:
        yield f"{len(counts)} groups give {len(counts)} folds instead of {n_folds}."
    if 2 * counts[largest_group] > counts.sum():
        yield visible(
            f"The group {held_out.names[largest_group]!r} holds {counts[largest_group]} of "
            f"{counts.sum()} cases: most "
            "held-out figures are of it, by a fit on the few others."
        )
