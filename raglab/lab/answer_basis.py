"""Basis and missing answers (shore): *correct* on a trace, policies compared there (S6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from raglab.decision.answer_text import (
    ANSWER_BASES,
    BASIS_KEY,
    MIXED,
    RECORDING_REMEDY,
    SOURCES,
    Basis,
    MissingAnswers,
    missing_text,
)
from raglab.decision.scoring import trace_basis
from raglab.decision.trace_view import TraceView
from raglab.lab.untuned_policies import always_answer
from raglab.replay import tally
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace

if TYPE_CHECKING:
    import pandas as pd


def with_basis(trace: StudyTrace, basis: str) -> StudyTrace:
    """Trace whose recorded answers are judged by something else than the first at hand.

    Args:
      trace: in memory or of shards; it keeps hits, answers and labels.
      basis: `answer_right` or `judge_right`, which are columns of the cases with 0, 1 or empty
        cells, or `text`.

    Source: rule S6.3.

    Example: `raglab.lab.with_basis(trace, "text")`
    """
    n = len(trace)
    judged = trace.with_labels([None] * n, [{BASIS_KEY: basis}] * n)
    trace_basis(judged)  # refuses what is none
    return judged


def not_compared(missing: Mapping[str, MissingAnswers]) -> dict[str, MissingAnswers]:
    """Policies that lack too many recorded answers to be compared, by name."""
    return {name: answers for name, answers in missing.items() if not answers.is_compared}


def check_compared(missing: Mapping[str, MissingAnswers]) -> None:
    """Refuse a comparison of which some policy lacks too many recorded answers.

    Raises:
      ValueError: more than 5 % of a policy's answers are missing.
    """
    for name, answers in not_compared(missing).items():
        raise ValueError(missing_text(f"policy {name}", answers))


def check_recorded(trace: TraceView, policy: Policy, arm: str | None, what: str) -> None:
    """Refuse a fit if too many cases lack the recorded answer that says whether they are right.

    Args:
      policy: whose hits are answered from if nothing refuses.
      what: is fitted.

    Raises:
      ValueError: more than 5 % of the answers are missing.
    """
    if not trace_basis(trace).text:
        return
    missing = tally(trace, [always_answer(policy)], arm).missing_answers[0]
    if not missing.is_compared:
        msg = f"{what} must be fitted on recorded answers: {missing}; {RECORDING_REMEDY}."
        raise ValueError(msg)


def missing_answers(table: pd.DataFrame) -> dict[str, MissingAnswers]:
    """Recorded answers that policies lack, by the index of their table.

    None where cases are judged by their sources.
    """
    if "missing_answers_k" not in table:
        return {}
    pairs = table[["missing_answers_k", "missing_answers_n"]].to_numpy().tolist()
    return {
        str(name): MissingAnswers(int(k), int(n))
        for name, (k, n) in zip(table.index, pairs, strict=True)
    }


NAMED = 5  # policies that a note names


def missing_notes(missing: Mapping[str, MissingAnswers], where: str) -> list[str]:
    """Which policies are not compared, and how many answers of the others are missing.

    Args:
      missing: of policies by name.
      where: on which cases, such as `the judged cases`.
    """
    out = not_compared(missing)
    few = {name: answers for name, answers in missing.items() if answers.k and name not in out}
    texts = {
        f"Not compared on {where}, for over 5 % of the answers are missing (rule S6.3)": out,
        f"Missing answers count as not correct on {where} (rule S6.3)": few,
    }
    notes = []
    for text, which in texts.items():
        named = [f"{name} {answers.k:,} of {answers.n:,}" for name, answers in which.items()]
        if named:
            more = ", …" * (len(named) > NAMED)
            notes.append(f"{text}: {', '.join(named[:NAMED])}{more}.")
    return notes


def basis_kind(stated: object) -> str:
    """Kind of a basis as a certificate states it."""
    text = str(stated)
    return text if text in {SOURCES, *ANSWER_BASES} else MIXED


def basis_conflict(stated: object, here: Basis) -> bool:
    """Whether a certificate was made on one basis and cases are judged on the other."""
    return basis_kind(stated) != here.kind


def check_basis(stated: object, here: Basis) -> None:
    """Refuse to judge a certificate of one basis on the other.

    Args:
      stated: basis of the certificate.
      here: of the cases.

    Raises:
      ValueError: the kinds of basis differ: `sources`, `text`, or text for some cases and sources
        for the rest.
    """
    if basis_conflict(stated, here):
        msg = (
            f"a certificate must be judged on its own basis, {stated}, got cases judged by {here}; "
            "certify the policy again."
        )
        raise ValueError(msg)
