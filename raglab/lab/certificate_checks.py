"""Checks of certificates (shore): validity, promises re-tested on new cases (S6.3, S6.4, S6.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raglab import metrics
from raglab.decision.answer_text import SOURCES
from raglab.decision.learned_cases import check_unlearned, learned_cases, trace_queries
from raglab.decision.outcome_codes import Tally
from raglab.decision.scoring import headline_note, trace_basis
from raglab.decision.trace_view import TraceView, answered_traces
from raglab.lab.answer_basis import check_basis, check_compared, missing_notes
from raglab.lab.certified_losses import (
    COST,
    RateCounts,
    asking_note,
    certified_tally,
    in_mix,
    question_losses,
    tally_losses,
    unit_cells,
)
from raglab.live.certified_retrieval import retrieval_differences
from raglab.metrics import OBJECTIVES
from raglab.metrics.mixes import TrafficMix, check_shares, checked_mix
from raglab.replay import tally
from raglab.store.case_labels import counted_questions
from raglab.store.loaders import load_cases, load_corpus
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import SCHEMA_VERSION, refuse
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

Share = Annotated[float, Field(gt=0.0, lt=0.5)]
Count = Annotated[int, Field(gt=0, lt=10**9)]


class _Promise(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    name: Literal[(*OBJECTIVES, COST)]  # type: ignore[valid-type]
    alpha: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class _CertificateRows(BaseModel):
    """What a certificate states that is read; without any of the required it promises nothing."""

    model_config = ConfigDict(extra="allow", strict=True)
    policy_id: str
    promises: Annotated[Sequence[_Promise], Field(min_length=1)]
    delta: Share
    cases_hash: Annotated[str, Field(min_length=1)]
    basis: str
    pilot_hash: str | None
    looks: Count
    spent: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    looks_recorded: bool
    budget: Share = 0.1
    hypotheses: Count = 1
    candidates: Count = 1
    retrieval: Mapping[str, Any] = {}
    mix: Mapping[str, Any] = {}


CERTIFY_AGAIN = "certify the policy as it is now (raglab.certify_policy, or `raglab certify`)"


def certificate_defect(policy: Policy) -> str:
    """Why the certificate in a policy is not read as valid, with the remedy.

    Empty for a valid one or none.

    Source: rule S6.10.
    """
    rows = policy.certificate
    if rows is None:
        return ""
    own, defect = policy.policy_id, ""
    try:
        _CertificateRows.model_validate(dict(rows))
    except ValidationError as error:
        names = [str(fault["loc"][0]) for fault in error.errors()]
        missing = [name for name in names if name not in rows]
        wrong = f"{names[0]} {rows.get(names[0])!r:.60}"
        defect = f"one without {', '.join(missing)}" if missing else wrong
    if not defect and rows["policy_id"] != own:
        defect = f"that of {rows['policy_id']} in {own}"
    if not defect and ("mix" in rows) != (stated_corners(rows) is not None):
        defect = f"mix {rows.get('mix')!r:.60} at {rows.get('mix_corners')!r:.60}"
    rule = "a certificate must be whole, of its policy, and as raglab wrote it"
    return f"{rule}, got {defect}; {CERTIFY_AGAIN}." if defect else ""


def stated_mix(rows: Mapping[str, Any]) -> TrafficMix | None:
    """Traffic mix that a certificate states; None where it states none."""
    ends = rows.get("mix", {}).items()
    shares = {label: share for label, share in ends if label in metrics.LABELS}
    mix, corners = checked_mix(shares) if shares else None, stated_corners(rows)
    if mix is None or corners is None:
        return mix
    return replace(mix, corners=tuple(map(tuple, corners.tolist())))


def stated_corners(rows: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """Outermost mixes that a certificate states, [V, 3]; None where it states none, or no mixes."""
    try:
        corners = np.asarray(rows.get("mix_corners", ()), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    is_mix = corners.shape[1:] == (len(metrics.LABELS),) and bool((corners >= 0.0).all())
    return corners if is_mix and np.allclose(corners.sum(axis=1), 1.0) else None


def stated_certificate(policy: Policy) -> Mapping[str, Any]:
    """Certificate of a policy, as a check reads it.

    Raises:
      ValueError: there is none, or it is not valid: not whole, of another policy, or of an older
        raglab.
    """
    if policy.certificate is None:
        refuse("a policy must hold a certificate to be checked", "none", CERTIFY_AGAIN)
    if defect := certificate_defect(policy):
        raise ValueError(defect)
    return policy.certificate


OLD_SCHEMA = "2 or older"  # schema of the traces that were certified on before certificates said so
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
        facts += [("coverage", f"{self.coverage:.3f}"), ("over-ask", f"{self.over_ask:.3f}")]
        return Summary([*facts, ("basis", self.basis)], {"targets": self.table}, self.notes)


@answered_traces("trace")
def check_policy(trace: TraceView, policy: Policy, *, again: bool = False) -> Retest:
    """Re-test every promise of a policy's certificate, at the certificate's own delta.

    A certificate of a traffic mix is tested in it, whatever the shares of the new cases are.

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
    doubt = check_new_cases(trace, policy, certificate, again=again)
    targets = {str(promise["name"]): float(promise["alpha"]) for promise in certificate["promises"]}
    costs = certificate.get("costs") if COST in targets else None
    policy_retest = retest(
        policy,
        trace,
        targets,
        delta=float(certificate["delta"]),
        arm=certificate.get("arm"),
        costs=costs,
        corners=stated_corners(certificate),
    )
    mix, notes = stated_mix(certificate), check_notes(certificate, trace, policy_retest.basis)
    inside = () if mix is None else (f"Tested in the certificate's mix, {mix}.",)
    return replace(policy_retest, notes=(*policy_retest.notes, *doubt, *inside, *notes))


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
    by_split = trace_queries(trace)
    (learned,) = learned_cases([policy], by_split)
    check_unlearned(learned)
    (certified,) = learned_cases(
        [policy.model_copy(update={"tuned_on": certificate["cases_hash"]})], by_split
    )
    if certified.k and not again:
        value = f"{certified.k:,} of {certified.n:,} that the policy was certified on"
        refuse("a check must see new cases", value, "give others, or again=True (--again)")
    check_basis(certificate["basis"], trace_basis(trace))
    return (learned.doubt,) if learned.doubt else ()


def retest(
    policy: Policy,
    trace: TraceView,
    targets: Mapping[str, float],
    *,
    delta: float = 0.1,
    arm: str | None = None,
    costs: metrics.Costs | None = None,
    corners: NDArray[np.float64] | None = None,
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

    names, rows, questions = list(targets), [], counted_questions(trace.cases)

    def losses(counted: Tally, cell: int) -> RateCounts:
        of_cases = counted._replace(cells=metrics.settled_cells(counted.cells, cell))
        of_rates = tally_losses(of_cases, names, costs)
        of_questions = question_losses(
            of_rates, trace, [policy], questions, names, arm, costs, cell
        )
        if corners is None:
            return of_questions
        failed = int(counted.cells.sum() - counted.labels.sum())
        units = unit_cells(of_cases, trace, [policy], questions, names, arm, costs, cell, failed)
        check_shares(corners, metrics.label_counts(units[0, 0]) - failed)
        return in_mix(of_questions, of_cases.cells, units, names, costs, corners, delta)

    counts = losses(certified_tally(trace, [policy], arm), metrics.WRONG_CELL)
    # what is undecided or failed breaks no promise
    answered = tally(trace, [policy], arm)
    at_best = losses(answered, metrics.RIGHT_CELL)
    missing = {policy.policy_id: counts.missing_answers[0]}
    check_compared(missing)
    for place, (name, alpha) in enumerate(targets.items()):
        k, n = counts.total(0, place), int(counts.n[0, place])
        high = float(counts.bounds(place, delta, alpha)[0])
        low = float(at_best.bounds(place, delta / len(targets), alpha, lower=True)[0])
        mix = counts.mixed(place)
        rate = mix.rate(place, 0) * float(counts.scale[place]) if mix else k / n if n else np.nan
        verdict_here = "upheld" if high <= alpha else "broken" if low > alpha else "open"
        rows.append((name, alpha, k, n, rate, low, high, verdict_here))
    columns = ["target", "alpha", "k", "n", "rate", "lower_bound", "upper_bound", "verdict"]
    table = pd.DataFrame(rows, columns=columns)
    # the worst of the targets
    verdict: Verdict = min(table["verdict"], key=("broken", "open", "upheld").index)
    over_ask = float(counts.over_ask[0])
    open_cells = int(answered.cells[0, metrics.PLAIN_CELLS :].sum())
    undecided = f"{open_cells:,} undecided answers count as wrong." if open_cells else ""
    optional_notes = (headline_note(trace), asking_note(over_ask, ()), undecided)
    notes = (*filter(None, optional_notes), *missing_notes(missing, "these cases"))
    return Retest(verdict, table, notes, float(counts.coverage[0]), over_ask, str(counts.basis))


def retrieve_trace(
    policy: Policy,
    corpus: Path,
    cases: Path,
    *,
    split: str | None = None,
    encoder: str | None = None,
    reranker: str | None = None,
    follow_links: bool = False,
    stated: Mapping[str, Any] | None = None,
) -> Trace:
    """Trace of new cases, retrieved with the settings that the certificate states, or others.

    Args:
      split: only cases of it.
      encoder, reranker: by name or path; the bundled model and late interaction where not given.
      follow_links: as `load_corpus` takes it.
      stated: `retrieval` and `arm` in place of the certificate's.

    Raises:
      ValueError: the policy holds no certificate where nothing is stated, or no case is of the
        split.
    """
    # with FAISS and BM25, which the check of a trace needs not
    from raglab.live.trace_building import build_trace

    certificate = stated_certificate(policy) if stated is None else stated
    own = certificate.get("retrieval", {})
    names = ("index", "fetch_k", "rerank_k", "rrf_k", "dense_weight")
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
        **{name: own[name] for name in names if name in own},
    )


def check_notes(certificate: Mapping[str, Any], trace: TraceView, basis: str) -> tuple[str, ...]:
    """What new cases differ in from those that a certificate was made on."""
    parameters = dict(trace.meta.get("parameters", {}))
    differences = "; ".join(retrieval_differences(certificate, parameters))
    made_on = certificate.get("schema_version", OLD_SCHEMA)
    notes = {
        f"Certified by {certificate['basis']}, judged here by {basis} (rule S6.3).": (
            certificate["basis"] != basis
        ),
        f"The promise is not about these hits: {differences}.": bool(differences),
        f"Certified on a trace of schema {made_on}, this has {SCHEMA_VERSION}: certify again.": (
            made_on != SCHEMA_VERSION
        ),
    }
    return tuple(text for text, applies in notes.items() if applies)
