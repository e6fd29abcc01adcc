"""Cases of a certification (shore): those to use, what may not learn from them (S6.7, S6.10)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.decision.inclusion import PROBABILITY
from raglab.decision.learned_cases import (
    Queries,
    check_unlearned,
    hash_queries,
    learned_cases,
    trace_queries,
)
from raglab.decision.trace_view import TraceView
from raglab.replay import cases_by_shard
from raglab.store.case_labels import check_split_names, counted_questions
from raglab.store.policies import Policy
from raglab.store.traces import StudyTrace
from raglab.values import refuse

SPLITS = ("tune", "certify")
TEST_REMEDY = "label one certify, or .replace({'test': 'certify'}) before loading"


class CertifyCases(NamedTuple):
    """Cases that an order is learned on, None without any, and those to certify on.

    Hashes of the latter and of all.

    by_split: questions of all cases. questions: number of the question of each case to certify on,
    from 0, [Q]. tested: the split to certify on, None where there is none.
    """

    pilot: StudyTrace | None
    held_out: StudyTrace
    held_out_hash: str
    trace_hash: str
    by_split: Queries
    questions: NDArray[np.int64]
    tested: tuple[str | None, ...] = (None,)

    @property
    def queries(self) -> list[str]:
        """Questions of the cases to certify on."""
        return list(chain.from_iterable(self.by_split[name] for name in self.tested))

    @property
    def n_questions(self) -> int:
        """Distinct questions to certify on, the n of the certificate."""
        return int(self.questions.max()) + 1


def _checked_questions(trace: TraceView) -> NDArray[np.int64]:
    """Number of each case's question; cases drawn with different probabilities are refused.

    A certificate counts each question once.
    """
    cases = list(chain.from_iterable(cases_by_shard(trace)))
    drawn = {case.extra.get(PROBABILITY) for case in cases}
    if len(drawn) > 1:
        rule = "cases to certify on must be drawn with one inclusion probability"
        shown = ", ".join(sorted(map(str, drawn))[:4])
        refuse(rule, f"{len(drawn)}: {shown}", "draw evenly, or weigh them by raglab.review")
    return counted_questions(cases)


def certify_splits(trace: StudyTrace) -> CertifyCases:
    """Split `certify` of a trace with split `tune`, or all cases of one without splits.

    Raises:
      ValueError: splits without `certify`, no case, or cases drawn with several probabilities.
    """
    by_split = trace_queries(trace)
    check_split_names(by_split)
    pilot, held_out = SPLITS
    of_all = hash_queries(chain.from_iterable(by_split.values()))
    if held_out in by_split:
        learned_on = trace.split(pilot) if pilot in by_split else None
        of_tested = hash_queries(by_split[held_out])
        tested = trace.split(held_out)
        questions = _checked_questions(tested)
        return CertifyCases(learned_on, tested, of_tested, of_all, by_split, questions, (held_out,))
    if by_split.keys() - {None}:
        split_names = ", ".join(sorted(map(str, by_split)))
        refuse("cases must have a split certify to certify on", split_names, TEST_REMEDY)
    if not len(trace):
        refuse("a certificate needs at least one case", "none", "check the split")
    return CertifyCases(None, trace, of_all, of_all, by_split, _checked_questions(trace))


def distinct_candidates(candidates: Iterable[Policy], cases: CertifyCases) -> list[Policy]:
    """Candidates, each policy once.

    None of which may have learned from the cases to certify on, alone or with others.

    Raises:
      ValueError: one that has.
    """
    by_id: dict[str, Policy] = {}
    for policy in candidates:  # of equal ones that which remembers a look
        if policy.certificate is not None or policy.policy_id not in by_id:
            by_id[policy.policy_id] = policy
    offered = list(by_id.values())
    for learned in learned_cases(offered, cases.by_split, cases.tested):
        check_unlearned(learned)
    return offered


def doubt_notes(offered: Sequence[Policy], cases: CertifyCases) -> tuple[str, ...]:
    """Notes on candidates that may have learned from a part of the cases to certify on."""
    rows = learned_cases(offered, cases.by_split, cases.tested)
    doubts = [learned.doubt for learned in rows if learned.doubt]
    lead = f"Of {len(doubts):,} of {len(offered):,} candidates: " if len(offered) > 1 else ""
    return tuple(f"{lead}{doubt}" for doubt in doubts[:1])
