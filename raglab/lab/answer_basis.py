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
    """Trace whose recorded answers are judged on another basis than the default.

    Args:
      trace: in memory or of shards; it keeps hits, answers and labels.
      basis: `answer_right` or `judge_right`, which are columns of the cases with 0, 1 or empty
        cells, or `text`.

    Source: rule S6.3.

    Example: `raglab.lab.with_basis(trace, "text")`
    """
    n_cases = len(trace)
    rejudged_trace = trace.with_labels([None] * n_cases, [{BASIS_KEY: basis}] * n_cases)
    trace_basis(rejudged_trace)  # refuses an unknown basis
    return rejudged_trace


def not_compared(missing_by_policy: Mapping[str, MissingAnswers]) -> dict[str, MissingAnswers]:
    """Policies that lack too many recorded answers to be compared, by name."""
    return {
        policy_name: policy_missing
        for policy_name, policy_missing in missing_by_policy.items()
        if not policy_missing.is_compared
    }


def check_compared(missing_by_policy: Mapping[str, MissingAnswers]) -> None:
    """Refuse a comparison of which some policy lacks too many recorded answers.

    Raises:
      ValueError: more than 5 % of a policy's answers are missing.
    """
    for policy_name, policy_missing in not_compared(missing_by_policy).items():
        raise ValueError(missing_text(f"policy {policy_name}", policy_missing))


def check_recorded(trace: TraceView, policy: Policy, arm: str | None, fit_phrase: str) -> None:
    """Refuse a fit if too many cases lack the recorded answer that says whether they are right.

    Args:
      policy: whose hits are answered from if nothing refuses.
      fit_phrase: is fitted.

    Raises:
      ValueError: more than 5 % of the answers are missing.
    """
    if not trace_basis(trace).text:
        return
    policy_missing = tally(trace, [always_answer(policy)], arm).missing_answers[0]
    if not policy_missing.is_compared:
        message = (
            f"{fit_phrase} must be fitted on recorded answers: {policy_missing}; "
            f"{RECORDING_REMEDY}."
        )
        raise ValueError(message)


def missing_answers(policy_table: pd.DataFrame) -> dict[str, MissingAnswers]:
    """Recorded answers that policies lack, by the index of their table.

    None where cases are judged by their sources.
    """
    if "missing_answers_k" not in policy_table:
        return {}
    missing_counts = policy_table[["missing_answers_k", "missing_answers_n"]].to_numpy().tolist()
    return {
        str(policy_name): MissingAnswers(int(n_missing), int(n_answers))
        for policy_name, (n_missing, n_answers) in zip(
            policy_table.index, missing_counts, strict=True
        )
    }


MAX_NAMED_POLICIES = 5  # policies that a note names


def missing_notes(missing_by_policy: Mapping[str, MissingAnswers], cases_phrase: str) -> list[str]:
    """Which policies are not compared, and how many answers of the others are missing.

    Args:
      missing_by_policy: of policies by name.
      cases_phrase: on which cases, such as `the judged cases`.
    """
    too_many_missing = not_compared(missing_by_policy)
    few_missing = {
        policy_name: policy_missing
        for policy_name, policy_missing in missing_by_policy.items()
        if policy_missing.k and policy_name not in too_many_missing
    }
    policies_by_text = {
        f"Not compared on {cases_phrase}, for over 5 % of the answers are missing (rule S6.3)": (
            too_many_missing
        ),
        f"Missing answers count as not correct on {cases_phrase} (rule S6.3)": few_missing,
    }
    note_texts = []
    for note_text, noted_policies in policies_by_text.items():
        named_policies = [
            f"{policy_name} {policy_missing.k:,} of {policy_missing.n:,}"
            for policy_name, policy_missing in noted_policies.items()
        ]
        if named_policies:
            ellipsis = ", …" * (len(named_policies) > MAX_NAMED_POLICIES)
            note_texts.append(
                f"{note_text}: {', '.join(named_policies[:MAX_NAMED_POLICIES])}{ellipsis}."
            )
    return note_texts


def basis_kind(stated_basis: object) -> str:
    """Kind of a basis as a certificate states it."""
    text = str(stated_basis)
    return text if text in {SOURCES, *ANSWER_BASES} else MIXED


def basis_conflict(stated_basis: object, case_basis: Basis) -> bool:
    """Whether a certificate was made on one basis and cases are judged on the other."""
    return basis_kind(stated_basis) != case_basis.kind


def check_basis(stated_basis: object, case_basis: Basis) -> None:
    """Refuse to judge a certificate of one basis on the other.

    Args:
      stated_basis: basis of the certificate.
      case_basis: of the cases.

    Raises:
      ValueError: the kinds of basis differ: `sources`, `text`, or text for some cases and sources
        for the rest.
    """
    if basis_conflict(stated_basis, case_basis):
        message = (
            f"a certificate must be judged on its own basis, {stated_basis}, got cases judged by "
            f"{case_basis}; "
            "certify the policy again."
        )
        raise ValueError(message)
