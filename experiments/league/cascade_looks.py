"""A look at the tables of cascades: what is found, and a figure with it and without.

No look reads a reward that judges: duplicates and constants are of texts and signals, directions of
the questions that a policy is fitted on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.league.abstention import Cell
from experiments.league.cascade_rows import (
    INTERVENTIONS,
    MARGINS,
    abstention_rows,
    cascade_policy,
    left_out,
    mean_text,
)
from experiments.league.llmrouter import llmrouter_tables
from experiments.league.mot_cascade import STRONG, DateTable
from experiments.league.rows import signed
from experiments.league.table_checks import (
    constant_columns,
    joined_tables,
    near_duplicates,
    plain_words,
    turned_groups,
    without_signals,
)
from raglab.bandit import Table, fit_priced_policy

PENALTY = 10.0  # of 1, 3, 10, 30 and 100 it earns most in five folds of train
SAME = "the same"


class Look(NamedTuple):
    """What a look found.

    Attributes:
      table: name.
      check: what was looked for.
      finding: with counts.
      figure: what is measured.
      whole: on the table as it is.
      without: without what was found.
    """

    table: str
    check: str
    finding: str
    figure: str
    whole: str
    without: str


def plain_plan(
    fitted: Sequence[str], judged: Sequence[str], rewards: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Plan of the arm with the best reward by a ridge on TF-IDF of words and pairs, [Q, A].

    Args:
      fitted: texts, [N].
      judged: texts, [Q].
      rewards: of the fitted texts, [N, A].
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    words = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2))
    router = make_pipeline(words, Ridge(alpha=PENALTY)).fit(fitted, rewards)
    return np.eye(rewards.shape[1])[router.predict(judged).argmax(axis=1)]


def router_looks(folder: Path) -> Iterator[Look]:
    """Of LLMRouter's table: test questions in train, signals that turn between clusters of train.

    Args:
      folder: of the layout of `llmrouter_tables`.
    """
    (train, test), (fitted, judged), clusters = llmrouter_tables(folder)
    fixed, known = int(np.argmax(train.gross.mean(axis=0))), {*map(plain_words, fitted)}
    is_clean, signals = ~near_duplicates(judged, fitted), _signals(train)
    n_same = sum(plain_words(text) in known for text in judged)
    turned = signal_names(turned_groups(signals, train.gross[:, fixed] > 0.5, clusters))

    def ridge_plan(names: Collection[str] = ()) -> NDArray[np.float64]:
        parts = [without_signals(part, names) for part in (train, test)]
        most = float(train.cost.max())
        return fit_priced_policy(parts[0], most, known_costs=True).plan(parts[1])

    def gain_text(plan: NDArray[np.float64], *, is_all: bool = False) -> str:
        gain = (plan * test.gross).sum(axis=1) - test.gross[:, fixed]
        return mean_text(gain[is_clean | is_all])

    ridge = ridge_plan()
    near = f"{(~is_clean).sum()} of {len(judged)} test questions nearly in train, {n_same} wholly"
    for name, plan in (
        ("plain router", plain_plan(fitted, judged, train.gross)),
        ("raglab", ridge),
    ):
        figures = gain_text(plan, is_all=True), gain_text(plan)
        yield Look("llmrouter", "near-duplicates", near, f"{name} less best fixed model", *figures)
    for check, names in (
        ("constant signals", constant_columns(signals)),
        ("turned groups", turned),
    ):
        yield Look(
            "llmrouter",
            check,
            f"{len(names)} of {signals.shape[1]} signals",
            "raglab less best fixed model, clean",
            gain_text(ridge),
            gain_text(ridge_plan(names)) if names else SAME,
        )


def signal_names(turned: Sequence[str]) -> list[str]:
    """Signals of `turned_groups`, each once.

    Example:
      >>> signal_names(["votes in a", "votes in b"])
      ['votes']
    """
    return list(dict.fromkeys(name.partition(" in ")[0] for name in turned))


def date_looks(
    dates: DateTable, halves: pd.DataFrame, stems: pd.DataFrame, answered: pd.DataFrame
) -> Iterator[Look]:
    """Of the date table: questions of one story, votes that are all alike, votes that failed.

    Args:
      dates: the table.
      halves: of `certified_halves`.
      stems: of the same, whole stories in a half.
      answered: of halves without the votes that failed.
    """
    figure = f"halves certified at {MARGINS[0]:g}; policy less strong"

    def halves_text(frame: pd.DataFrame) -> str:
        n_certified = int(frame[f"{MARGINS[0]:g}"].sum())
        return f"{n_certified} of {len(frame)}; {signed((frame['policy'] - frame[STRONG]).mean())}"

    whole = halves_text(halves)
    story = (
        f"{halves['near'].mean():.1f} questions of a judged half nearly in the fitted one, "
        f"{halves['shared'].mean():.1%} of its story"
    )
    yield Look("date", "near-duplicates", story, figure, whole, halves_text(stems))
    failed = f"{dates.failed.sum()} votes of {(dates.failed > 0).sum()} questions"
    yield Look("date", "failed votes", failed, figure, whole, halves_text(answered))
    first = dates.table.features[:, dates.table.feature_names.index("first")]
    yield Look(
        "date",
        "constant confidences",
        f"all votes alike in {(first == 1.0).sum()} of {len(first)} questions",
        "policy less mixture of equal cost",
        signed(halves["gain"].mean()),
        signed(halves["gain, votes differ"].mean()),
    )
    finding = f"in {(halves['turned'] > 0).sum()} of {len(halves)} fitted halves"
    yield Look("date", "turned groups", finding, figure, whole, SAME)


def abstention_looks(cells: Sequence[Cell]) -> Iterator[Look]:
    """Of the replies of reasoning models: twins, constants, signals that turn in a model or set.

    Args:
      cells: of `abstention_cells`.
    """
    halves = abstention_rows(cells)
    n, near = halves["n"], halves["near"]
    figures = [
        signed(np.average(halves[name], weights=size))
        for name, size in (("gain", n), ("gain, clean", n - near))
    ]
    finding = f"{near.sum()} of {n.sum()} judged questions are nearly in the fitted half"
    figure = "policy less intervened reply"
    yield Look("abstention", "near-duplicates", finding, f"{figure}, halves", *figures)
    constant = [
        f"{name} of {cell.group} {cell.model}"
        for cell in cells
        for name in constant_columns(_signals(cell.table))
    ]
    whole, _ = left_out_gains(cells, is_checked=False)
    without, turned = left_out_gains(cells, is_checked=True)
    figure = f"{figure}, a model left out"
    yield Look("abstention", "constant signals", "; ".join(constant) or "none", figure, whole, SAME)
    n_turned = Counter(name for names in turned for name in signal_names(names))
    finding = ", ".join(f"{name} in {n} of {len(turned)} fits" for name, n in n_turned.items())
    yield Look("abstention", "turned groups", finding or "none", figure, whole, without)


def left_out_gains(cells: Sequence[Cell], *, is_checked: bool) -> tuple[str, list[list[str]]]:
    """Right replies of a policy less those of the intervened reply, on the models left out.

    Args:
      cells: of `abstention_cells`.
      is_checked: whether signals that turn in a model, a set or a kind of question that the policy
        is fitted on are left out.

    Returns:
      Mean with its interval, and for each model left out what turns on the others.
    """
    gains, questions, turned = [], [], []
    for _, fit_cells, judged_cells in left_out(cells):
        fitted, judged = (
            joined_tables([cell.table for cell in part]) for part in (fit_cells, judged_cells)
        )
        groups = zip(
            *((c.model, c.group, kind) for c in fit_cells for kind in c.kinds), strict=True
        )
        signals = [
            name
            for group in groups
            for name in turned_groups(_signals(fitted), fitted.gross[:, 0] > 0.5, group)
        ]
        names = signal_names(signals) if is_checked else []
        turned.append(signals)
        texts = [f"{cell.model} {row}" for cell in fit_cells for row in range(len(cell.kinds))]
        policy = cascade_policy(without_signals(fitted, names), INTERVENTIONS, texts)
        plan = policy.plan(without_signals(judged, names))
        gains.append((plan * judged.gross).sum(axis=1) - judged.gross[:, 1])
        questions += [text for cell in judged_cells for text in cell.questions]
    return mean_text(np.concatenate(gains), questions), turned


def _signals(table: Table) -> pd.DataFrame:
    """Features of a table but the intercept."""
    return pd.DataFrame(table.features, columns=table.feature_names).drop(
        columns="intercept", errors="ignore"
    )
