"""A look at a table before it is used: what makes its figures too good or turns a signal round."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import compress

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raglab.bandit import Table

WORDS = 5  # of a piece of text that two near-duplicates share
ALIKE = 0.8  # share of their pieces from which two questions are near-duplicates
FEWEST = 20  # rights and wrongs of a group in which a direction can be told
ROWS = ("value", "reward", "mask", "features", "ms", "cost")  # of a table, by question
SURE = 2.0  # standard errors by which an AUROC must lie on the other side


def plain_words(text: str) -> str:
    """Words of a text in lower case, a blank between two; the text itself where it has none."""
    return " ".join(re.findall(r"\w+", text.casefold())) or text


def near_duplicates(judged: Sequence[str], fitted: Iterable[str]) -> NDArray[np.bool_]:
    """Which judged questions stand among the fitted ones, or nearly, [Q].

    Nearly: of the runs of five words of both at least four in five are common.

    Args:
      judged: texts.
      fitted: texts.

    Example:
      >>> near_duplicates(
      ...     ["How tall is it?", "How old?"], ["how tall is it", "Who is it?"]
      ... ).tolist()
      [True, False]
    """
    pieces = [_pieces(text) for text in fitted]
    places: dict[str, list[int]] = defaultdict(list)
    for place, runs in enumerate(pieces):
        for run in runs:
            places[run].append(place)
    is_near = np.zeros(len(judged), np.bool_)
    for row, text in enumerate(judged):
        runs = _pieces(text)
        common = Counter(place for run in runs for place in places.get(run, ()))
        is_near[row] = any(
            n >= ALIKE * (len(runs) + len(pieces[place]) - n) for place, n in common.items()
        )
    return is_near


def constant_columns(signals: pd.DataFrame) -> list[str]:
    """Signals that are one number in all rows, which tell nothing.

    Example:
      >>> constant_columns(pd.DataFrame({"sure": [1.0, 1.0], "votes": [3.0, 4.0]}))
      ['sure']
    """
    return [str(name) for name in signals if signals[name].nunique(dropna=False) < 2]


def turned_groups(
    signals: pd.DataFrame, correct: NDArray[np.bool_], group: Sequence[str]
) -> list[str]:
    """Groups in which a signal ranks the other way round than over all rows, `signal in group`.

    Its AUROC lies on the other side of one half by two standard errors (Hanley and McNeil 1982, at
    one half). Groups with fewer than 20 rights or wrongs are not told.

    Args:
      signals: a column a signal, [Q].
      correct: whether the answer is right, [Q].
      group: of each row, [Q].
    """
    turned = []
    for name in signals:
        side = np.sign(_auroc(signals[name], correct) - 0.5)
        for key, part in signals[name].groupby(np.asarray(group)):
            right = correct[part.index]
            n_right, n_wrong = int(right.sum()), int((~right).sum())
            if min(n_right, n_wrong) < FEWEST:
                continue
            error = np.sqrt((n_right + n_wrong + 1.0) / (12.0 * n_right * n_wrong))
            if side * (_auroc(part, right) - 0.5) < -SURE * error:
                turned.append(f"{name} in {key}")
    return turned


def without_signals(table: Table, names: Collection[str]) -> Table:
    """Table without some of its features."""
    mask = [name not in names for name in table.feature_names]
    return table._replace(
        features=table.features[:, mask], feature_names=tuple(compress(table.feature_names, mask))
    )


def joined_tables(tables: Sequence[Table]) -> Table:
    """Rows of tables of the same arms and features, one after another."""
    rows = {name: np.concatenate([getattr(table, name) for table in tables]) for name in ROWS}
    return tables[0]._replace(**rows)


def table_part(table: Table, mask: NDArray[np.bool_]) -> Table:
    """Rows of a table.

    Args:
      table: of stored rewards.
      mask: which rows stay, [Q].
    """
    return table._replace(**{name: getattr(table, name)[mask] for name in ROWS})


def _auroc(signal: pd.Series[float], correct: NDArray[np.bool_]) -> float:
    """Chance that a right answer has the higher signal, ties halved."""
    ranks, n_right = signal.rank().to_numpy(), int(correct.sum())
    above = ranks[correct].sum() - n_right * (n_right + 1) / 2.0
    return float(above / max(1, n_right * (len(correct) - n_right)))


def _pieces(text: str) -> set[str]:
    """Runs of five words; a shorter text is one."""
    words = plain_words(text).split()
    return {" ".join(words[at : at + WORDS]) for at in range(max(1, len(words) - WORDS + 1))}
