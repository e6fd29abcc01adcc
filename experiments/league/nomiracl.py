"""NoMIRACL: models' replies on whether passages answer a question (EMNLP 2024 Findings).

Folder `results/baselines` of the repository: folders `relevant` (the passages answer) and
`non_relevant` (they do not), in them files `<language>.test.vanilla_prompt.jsonl` of lines
`{"query_id", "results": {model: reply}}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.league.answers import fitted_model
from experiments.league.refusals import answer_vote
from experiments.league.rows import RATES, Row, paired_interval
from experiments.league.stored import stored_lines
from raglab.gating import fused_gate

HALLUCINATION, ERROR = RATES
FOLDERS = {"relevant": True, "non_relevant": False}
RUN = "test.vanilla_prompt"  # split and template of the published figures
REFERENCE, CLOSED = "gpt-4", "gpt"  # in names of the model of the published rates, and closed ones
LEAST = 10  # questions of a kind below which nothing is fitted or judged
PUBLISHED = {HALLUCINATION: 0.332, ERROR: 0.149}  # of GPT-4 over all languages of the paper
FIELDS = ("language", "question", "answerable")  # all other columns of replies are votes


def nomiracl_rows(folder: Path) -> list[Row]:
    """Rows of each language and of all.

    Hallucination and error rate, with all models and with the open ones alone.

    Fusion and threshold are chosen on the other languages: the threshold is the highest whose error
    rate there is at most that of GPT-4's own replies. Null hypothesis of a difference: both decide
    with the same rate on the population of questions of these languages. Assumed is that questions
    are drawn independently; the interval is that of `paired_interval`. Fusion and threshold stay
    fixed: what other languages would have given is not in it. Each row has the verdict of its own
    interval; both rates of a cell are judged together too (`joint_verdict`): a policy that always
    answers is better in error and worse in hallucination, a trade.

    Args:
      folder: of the layout.
    """
    replies = nomiracl_votes(folder)
    models = sorted({*replies} - {*FIELDS})
    reference = next(name for name in models if name.casefold().startswith(REFERENCE))
    rows = []
    for names, words in (
        (models, ""),
        ([name for name in models if CLOSED not in name.casefold()], ", open models alone"),
    ):
        answers = fused_answers(replies, names, reference)
        cells = {f"language {language}": part for language, part in replies.groupby("language")}
        for cell, part in (cells | {"all": replies}).items():
            rows += _rate_rows(f"{cell}{words}", part, answers[part.index], names, reference)
    return rows


def nomiracl_votes(folder: Path) -> pd.DataFrame:
    """Votes, a row a question.

    1 where a model's reply answers, 0 where it refuses, NaN where it is missing.
    """
    rows = [
        {
            "language": path.name.partition(".")[0],
            "question": record["query_id"],
            "answerable": answerable,
        }
        | {model: answer_vote(text) for model, text in record["results"].items()}
        for name, answerable in FOLDERS.items()
        for path in sorted((folder / name).glob(f"*.{RUN}.jsonl*"))
        for record in stored_lines(path)
    ]
    return pd.DataFrame(rows)


def fused_answers(replies: pd.DataFrame, models: Sequence[str], reference: str) -> pd.Series:
    """Decisions on each language, 1 or 0, by votes fused, and a threshold chosen, on the others.

    NaN where nothing could be.

    Args:
      replies: votes of all models.
      models: whose votes are fused.
      reference: model whose error rate on the other languages is allowed.
    """
    answers = pd.Series(nan, index=replies.index)
    for language in replies["language"].unique():
        judged = replies["language"] == language
        names = [name for name in models if replies.loc[judged, name].notna().any()]
        votes, right = replies[names].to_numpy(np.float64).T, replies["answerable"].to_numpy()
        fit = ~judged.to_numpy()
        model = fitted_model(votes[:, fit], right[fit], names, LEAST)
        if model is None:
            continue
        chance = fused_gate.fused_probability(votes, model, names)
        refused = replies.loc[fit & right, reference].dropna() == 0.0
        threshold = refusal_threshold(chance[fit & right], refused.mean())
        answers[judged] = (chance[judged] >= threshold).astype(np.float64)
    return answers


def refusal_threshold(chance: np.ndarray, allowed: float) -> float:
    """Highest threshold that refuses at most an allowed share of answerable questions.

    Refused is what lies below.

    Args:
      chance: that a question can be answered, of answerable ones, [N]; NaN is refused.
      allowed: share, in [0, 1].

    Example:
      >>> refusal_threshold(np.array([0.1, 0.4, 0.4, 0.9]), 0.5)
      0.4
    """
    values = np.sort(np.where(np.isnan(chance), -1.0, chance))
    levels = np.unique(values)
    shares = np.searchsorted(values, levels, side="left") / len(values)
    return float(levels[shares <= allowed][-1])


def _rate_rows(
    cell: str, replies: pd.DataFrame, answers: pd.Series, models: Sequence[str], reference: str
) -> list[Row]:
    """Rows of both rates on some questions, raglab less the reference, paired."""
    known = answers.notna() & replies[reference].notna()
    wrong = {
        metric: (
            answers != kind,
            replies[reference] != kind,
            known & (replies["answerable"] == kind),
        )
        for metric, kind in ((HALLUCINATION, False), (ERROR, True))
    }
    is_judged = min(kind.sum() for *_, kind in wrong.values()) >= LEAST
    best, single = _best_single(replies)
    rows = []
    for metric, (fused, published, judged) in wrong.items():
        gain = fused[judged].to_numpy(np.float64) - published[judged]
        low, high = paired_interval(gain.to_numpy()) if is_judged else (nan, nan)
        _, refused, answerable = wrong[ERROR]
        is_free = metric == HALLUCINATION
        rows.append(
            Row(
                "nomiracl",
                cell,
                metric,
                n=int(judged.sum()),
                published=PUBLISHED[metric] if cell.startswith("all") else nan,
                reproduced=published[judged].mean(),
                free=1.0 - refused[answerable].mean() if is_free else nan,
                free_name="refuse at random, as often as the reference errs" if is_free else "",
                hindsight=single[judged].mean(),
                hindsight_name=best,
                raglab=fused[judged].mean(),
                fitted_on="fusion and threshold: the other languages",
                reference=f"the reply of {reference}",
                difference=fused[judged].mean() - published[judged].mean(),
                low=low,
                high=high,
                clusters=int(judged.sum()),
                calls=float(len(models)),
                reference_calls=1.0,
                note=f"not judged: {(~known).sum()}; replies that are missing: "
                f"{replies.drop(columns=[*FIELDS]).isna().sum().sum()}",
            )
        )
    return rows


def _best_single(replies: pd.DataFrame) -> tuple[str, pd.Series]:
    """Model with the least sum of both rates on these very questions, and where it is wrong.

    A missing reply counts as wrong.
    """
    kind = replies["answerable"]
    wrong = replies.drop(columns=[*FIELDS]).ne(kind.astype(np.float64), axis=0)
    sums = (wrong[kind].mean() + wrong[~kind].mean()).sort_index().fillna(2.0)
    return str(sums.idxmin()), wrong[sums.idxmin()]
