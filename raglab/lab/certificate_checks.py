"""Certificates on new cases (shore): every promise tested again (S6.3, S6.4, S6.10, S6.15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from raglab import metrics
from raglab.decision.answer_text import SOURCES
from raglab.decision.learned_cases import check_unlearned, learned_cases, trace_queries
from raglab.decision.outcome_codes import Tally
from raglab.decision.scoring import headline_note, trace_basis
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.lab.answer_basis import check_basis, check_compared, missing_notes
from raglab.lab.certification_counts import (
    COST,
    RateCounts,
    certified_tally,
    in_mix,
    question_losses,
    repeated_cases,
    tally_losses,
    unit_cells,
)
from raglab.lab.certification_words import asking_note
from raglab.lab.looks import stated_certificate, stated_corners, stated_mix, stated_targets
from raglab.live.certified_retrieval import retrieval_differences
from raglab.metrics.mixes import check_shares
from raglab.replay import tally
from raglab.store.case_labels import counted_questions
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import SCHEMA_VERSION, FloatArray, refuse
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

# schema of the traces that were certified on before certificates said so
OLD_CERTIFICATE_SCHEMA = "2 or older"
Verdict = Literal["upheld", "open", "broken"]


@dataclass(frozen=True, eq=False, repr=False)
class Retest(Result):
    """What new cases say of a certificate.

    Attributes:
      verdict: `upheld` where every target is certified again, `broken` where the exact lower bound
        of some rate lies above its target, `open` where the cases are too few to say either. Either
        is wrong with probability delta at most: all targets must be certified, so each may spend it
        whole; one is enough to break, so they share it.
      table: a row a target.
      notes: what a reader must know.
      coverage, over_ask: shares answered, and of the unambiguous asked back.
      basis: on which the new cases are judged (rule S6.3).
    """

    verdict: Verdict
    table: pd.DataFrame
    notes: tuple[str, ...]
    coverage: float
    over_ask: float
    basis: str = SOURCES

    def _summary(self) -> Summary:
        facts = [("verdict", self.verdict), ("targets", str(len(self.table)))]
        facts += [
            ("coverage", f"{self.coverage:.3f}"),
            ("over-ask", f"{self.over_ask:.3f}"),
        ]
        return Summary([*facts, ("basis", self.basis)], {"targets": self.table}, self.notes)


@answered_traces("trace")
def check_policy(trace: TraceView, policy: Policy, *, again: bool = False) -> Retest:
    """Re-test every promise of a policy's certificate, at the certificate's own delta.

    A certificate of a traffic mix is tested in that mix, not in the shares of the new cases.

    Args:
      trace: new cases, retrieved as those were that the policy was certified on; of shards one is
        in memory at a time.
      policy: with its certificate.
      again: states that the cases may be those it was certified on.

    Raises:
      ValueError: the policy holds no whole certificate of its own, or one of an older raglab; the
        trace holds no cases, the policy was fitted, tuned or certified on any of these, they are
        judged on another basis, too many answers are missing, or the mix of the certificate has a
        share of a label without a case.

    Source: rules S6.3, S6.4, S6.10, S6.15.
    """
    certificate = stated_certificate(policy)
    doubt_notes = check_new_cases(trace, policy, certificate, again=again)
    targets = stated_targets(certificate)
    target_costs = certificate.get("costs") if COST in targets else None
    policy_retest = retest(
        policy,
        trace,
        targets,
        delta=float(certificate["delta"]),
        arm=certificate.get("arm"),
        costs=target_costs,
        corners=stated_corners(certificate),
    )
    traffic_mix = stated_mix(certificate)
    difference_notes = check_notes(certificate, trace, policy_retest.basis)
    mix_notes = () if traffic_mix is None else (f"Tested in the certificate's mix, {traffic_mix}.",)
    return replace(
        policy_retest, notes=(*policy_retest.notes, *doubt_notes, *mix_notes, *difference_notes)
    )


def check_new_cases(
    trace: TraceView, policy: Policy, certificate: Mapping[str, Any], *, again: bool = False
) -> tuple[str, ...]:
    """Refuse cases that a certificate cannot be judged on; a note where that is in doubt.

    Args:
      again: states that the cases may be those it was certified on.

    Raises:
      ValueError: there is no case, the policy was fitted, tuned or certified on any of these, or
        they are judged on another basis.
    """
    if not len(trace):
        refuse("a check needs at least one case", "none", "check the split")
    queries_by_split = trace_queries(trace)
    (learned_row,) = learned_cases([policy], queries_by_split)
    check_unlearned(learned_row)
    (certified_row,) = learned_cases(
        [policy.model_copy(update={"tuned_on": certificate["cases_hash"]})], queries_by_split
    )
    if certified_row.k and not again:
        refuse(
            "a check must see new cases",
            f"{certified_row.k:,} of {certified_row.n:,} that the policy was certified on",
            "give others, or again=True (--again)",
        )
    check_basis(certificate["basis"], trace_basis(trace))
    return (learned_row.doubt,) if learned_row.doubt else ()


def retest(
    policy: Policy,
    trace: TraceView,
    targets: Mapping[str, float],
    *,
    delta: float = 0.1,
    arm: str | None = None,
    costs: metrics.Costs | None = None,
    corners: FloatArray | None = None,
) -> Retest:
    """What labelled cases say of some targets for one policy that was chosen without them.

    A target is upheld where its upper bound at 1 − delta keeps it: all together, since each must.
    It is broken where the lower bound at 1 − delta / T exceeds it, T targets sharing the error.

    Args:
      targets: rate -> highest value; `expected_cost` too, in units of cost.
      costs: of that target.
      corners: outermost traffic mixes, [V, 3]; None of the cases' own.

    Raises:
      ValueError: too many of the policy's answers are missing, of cases judged by text.
    """
    import pandas as pd

    target_names = list(targets)
    target_rows = []
    repeated_questions = repeated_cases(trace, [policy], counted_questions(trace.cases), arm)

    def losses(decision_tally: Tally, undecided_note: int) -> RateCounts:
        settled_cells = metrics.settled_cells(decision_tally.cells, undecided_note)
        case_losses = tally_losses(
            decision_tally._replace(cells=settled_cells), target_names, costs
        )
        question_counts = question_losses(case_losses, repeated_questions, undecided_note)
        if corners is None:
            return question_counts
        n_failed = int(decision_tally.cells.sum() - decision_tally.labels.sum())
        question_cells = unit_cells(case_losses, repeated_questions, undecided_note, n_failed)
        check_shares(corners, metrics.label_counts(question_cells[0, 0]) - n_failed)
        return in_mix(question_counts, corners, delta, question_cells)

    # To uphold a promise, whatever nobody can tell counts as wrong.
    rate_counts = losses(certified_tally(trace, [policy], arm), metrics.WRONG_CELL)
    # what is undecided or failed breaks no promise
    answered_tally = tally(trace, [policy], arm)
    best_counts = losses(answered_tally, metrics.RIGHT_CELL)
    answers_missing = {policy.policy_id: rate_counts.missing_answers[0]}
    check_compared(answers_missing)
    for target_place, (target_name, target_rate) in enumerate(targets.items()):
        k = rate_counts.total(0, target_place)
        n = int(rate_counts.n[0, target_place])
        # Every promise must hold, so each upper bound may use all of delta; one broken promise is
        # enough, so the lower bounds share it.
        upper_bound = float(rate_counts.bounds(target_place, delta, target_rate)[0])
        lower_bound = float(
            best_counts.bounds(target_place, delta / len(targets), target_rate, lower=True)[0]
        )
        mix_test = rate_counts.mixed(target_place)
        observed_rate = (
            mix_test.rate(target_place, 0) * float(rate_counts.scale[target_place])
            if mix_test
            else k / n
            if n
            else np.nan
        )
        target_verdict = (
            "upheld"
            if upper_bound <= target_rate
            else "broken"
            if lower_bound > target_rate
            else "open"
        )
        target_rows.append(
            (
                target_name,
                target_rate,
                k,
                n,
                observed_rate,
                lower_bound,
                upper_bound,
                target_verdict,
            )
        )
    table_columns = ["target", "alpha", "k", "n", "rate", "lower_bound", "upper_bound", "verdict"]
    target_table = pd.DataFrame(target_rows, columns=table_columns)
    # the worst of the targets
    worst_verdict: Verdict = min(target_table["verdict"], key=("broken", "open", "upheld").index)
    over_ask = float(rate_counts.over_ask[0])
    open_cells = int(answered_tally.cells[0, metrics.PLAIN_CELLS :].sum())
    undecided_note = f"{open_cells:,} undecided answers count as wrong." if open_cells else ""
    note_texts = filter(None, (headline_note(trace), asking_note(over_ask, ()), undecided_note))
    retest_notes = (*note_texts, *missing_notes(answers_missing, "these cases"))
    return Retest(
        worst_verdict,
        target_table,
        retest_notes,
        float(rate_counts.coverage[0]),
        over_ask,
        str(rate_counts.basis),
    )


def retrieve_trace(
    policy: Policy,
    corpus: Path,
    cases: Path,
    *,
    split: str | None = None,
    encoder: str | None = None,
    reranker: str | None = None,
    follow_links: bool = False,
    stated_settings: Mapping[str, Any] | None = None,
) -> Trace:
    """Trace of new cases, retrieved with the settings that the certificate states, or others.

    Args:
      split: only cases of it.
      encoder, reranker: by name or path; the bundled model and late interaction where not given.
      follow_links: as `load_corpus` takes it.
      stated_settings: `retrieval` and `arm` in place of the certificate's.

    Raises:
      ValueError: the policy holds no certificate where nothing is stated, or no case is of the
        split.
    """
    # with readers of documents, FAISS and BM25, which the check of a trace needs not
    from raglab.live.trace_building import build_trace
    from raglab.store.loaders import load_cases, load_corpus

    certificate = stated_certificate(policy) if stated_settings is None else stated_settings
    retrieval_settings = certificate.get("retrieval", {})
    setting_names = ("index", "fetch_k", "rerank_k", "rrf_k", "dense_weight")
    selected_cases = [
        case for case in load_cases(cases, follow_links=follow_links) if split in {None, case.split}
    ]
    return build_trace(
        load_corpus(corpus, encoder=encoder, follow_links=follow_links),
        selected_cases,
        policy=policy,
        arms=(str(certificate.get("arm", "hybrid")),),
        encoder=encoder,
        reranker=reranker,
        **{
            setting_name: retrieval_settings[setting_name]
            for setting_name in setting_names
            if setting_name in retrieval_settings
        },
    )


def check_notes(certificate: Mapping[str, Any], trace: TraceView, basis: str) -> tuple[str, ...]:
    """What new cases differ in from those that a certificate was made on."""
    parameters = dict(trace.meta.get("parameters", {}))
    difference_text = "; ".join(retrieval_differences(certificate, parameters))
    old_schema = certificate.get("schema_version", OLD_CERTIFICATE_SCHEMA)
    note_conditions = {
        f"Certified by {certificate['basis']}, judged here by {basis} (rule S6.3).": (
            certificate["basis"] != basis
        ),
        f"The promise is not about these hits: {difference_text}.": bool(difference_text),
        f"Certified on a trace of schema {old_schema}, this has {SCHEMA_VERSION}: certify again.": (
            old_schema != SCHEMA_VERSION
        ),
    }
    return tuple(note_text for note_text, is_applicable in note_conditions.items() if is_applicable)
