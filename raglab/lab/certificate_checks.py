"""Checks of certificates (shore): validity, promises re-tested on new cases (S6.3, S6.4, S6.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    lower_bound,
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
from raglab.values import SCHEMA_VERSION

if TYPE_CHECKING:
    import pandas as pd

WHOLE = ("promises", "delta", "cases_hash", "policy_id")  # without which it promises nothing
# what those of older raglabs do not all state
STATED = ("basis", "pilot_hash", "looks", "spent", "looks_recorded")
CERTIFY_AGAIN = "certify the policy as it is now (raglab.certify_policy, or `raglab certify`)"


def certificate_defect(policy: Policy) -> str:
    """Why the certificate in a policy is not read as valid, with the remedy.

    Empty for a valid one or none.

    Source: rule S6.10.
    """
    rows = policy.certificate
    if rows is None:
        return ""
    missing = [name for name in WHOLE if name not in rows]
    known = (*OBJECTIVES, COST)
    stated = [] if missing or not isinstance(rows["promises"], Sequence) else rows["promises"]
    promises = [promise if isinstance(promise, Mapping) else {} for promise in stated]
    if not promises or any(promise.get("name") not in known for promise in promises):
        value = (
            f"one without {', '.join(missing)}"
            if missing
            else "promises of none, or of what is no rate"
        )
        return f"a certificate must be whole, got {value}; {CERTIFY_AGAIN}."
    if rows["policy_id"] != policy.policy_id:
        value = f"that of {rows['policy_id']} in {policy.policy_id}"
        return f"a certificate must be that of its policy, got {value}; {CERTIFY_AGAIN}."
    if wrong := _wrong_value(rows, promises):
        return f"a certificate must be as raglab wrote it, got {wrong}; {CERTIFY_AGAIN}."
    unstated = [name for name in STATED if name not in rows]
    if unstated:
        rule = "a certificate must state its basis, the splits it used and how often (rule S6.10)"
        return f"{rule}, got one of an older raglab without {', '.join(unstated)}; {CERTIFY_AGAIN}."
    return ""


def _wrong_value(rows: Mapping[str, Any], promises: Sequence[Mapping[str, Any]]) -> str:
    """First value of a certificate that is of another kind or out of range, as text.

    Empty where all are right.
    """

    def is_number(value: object, low: float, high: float) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and low < value < high

    delta = rows["delta"]
    checks: dict[str, bool] = {
        "delta": is_number(delta, 0.0, 0.5),
        "cases_hash": isinstance(rows["cases_hash"], str) and bool(rows["cases_hash"]),
        "promises": all(is_number(promise.get("alpha"), 0.0, inf) for promise in promises),
        "budget": "budget" not in rows or is_number(rows["budget"], 0.0, 0.5),
        "spent": "spent" not in rows or is_number(rows["spent"], 0.0, inf),
        "retrieval": isinstance(rows.get("retrieval", {}), Mapping),
        "mix": isinstance(rows.get("mix", {}), Mapping)
        and ("mix" in rows) == ("mix_corners" in rows),
        "mix_corners": stated_corners(rows) is not None or "mix" not in rows,
    } | {
        name: name not in rows or (isinstance(rows[name], int) and is_number(rows[name], 0, 10**9))
        for name in ("looks", "hypotheses", "candidates")
    }
    return next(
        (f"{name} {rows.get(name)!r:.60}" for name, is_right in checks.items() if not is_right), ""
    )


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
        msg = f"a policy must hold a certificate to be checked, got none; {CERTIFY_AGAIN}."
        raise ValueError(msg)
    if defect := certificate_defect(policy):
        raise ValueError(defect)
    return policy.certificate


OLD_SCHEMA = "2 or older"  # schema of the traces that were certified on before certificates said so
Verdict = Literal["upheld", "open", "broken"]


class Retest(NamedTuple):
    """What new cases say of a certificate.

    verdict: `upheld` where every target is certified again, `broken` where the exact lower bound of
    some rate lies above its target, `open` where the cases are too few to say either. Either is
    wrong with probability delta at most: all targets must be certified, so each may spend it whole;
    one is enough to break, so they share it. table: a row a target. notes: what a reader must know.
    coverage, over_ask: shares answered, and of the unambiguous asked back. basis: on which the new
    cases are judged (rule S6.3).
    """

    verdict: Verdict
    table: pd.DataFrame
    notes: tuple[str, ...]
    coverage: float
    over_ask: float
    basis: str = SOURCES

    def frame(self) -> pd.DataFrame:
        """The promises, a row a target."""
        return self.table.copy()

    def __repr__(self) -> str:
        return (
            f"Retest({self.verdict}, {len(self.table)} targets, coverage {self.coverage:.3f}, "
            f"basis {self.basis})"
        )


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
    inside = (
        [f"Tested in the certificate's mix, {mix}: rates at its middle, bounds at its worst."]
        if mix is not None
        else []
    )
    return policy_retest._replace(notes=(*policy_retest.notes, *doubt, *inside, *notes))


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
        msg = "a check needs at least one case, got none."
        raise ValueError(msg)
    by_split = trace_queries(trace)
    (learned,) = learned_cases([policy], by_split)
    check_unlearned(learned)
    (certified,) = learned_cases(
        [policy.model_copy(update={"tuned_on": certificate["cases_hash"]})], by_split
    )
    if certified.k and not again:
        value = f"{certified.k:,} of {certified.n:,} that the policy was certified on"
        msg = f"a check must see new cases, got {value}; give others, or say again=True (--again)."
        raise ValueError(msg)
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
        high = counts.bound(0, place, delta, alpha)
        low = lower_bound(at_best, place, delta / len(targets), alpha)
        mix = counts.mixed(place)
        rate = mix.rate(place, 0) * float(counts.scale[place]) if mix else k / n if n else np.nan
        verdict_here = "upheld" if high <= alpha else "broken" if low > alpha else "open"
        rows.append((name, alpha, k, n, rate, low, high, verdict_here))
    columns = ["target", "alpha", "k", "n", "rate", "lower_bound", "upper_bound", "verdict"]
    table = pd.DataFrame(rows, columns=columns)
    verdicts = set(table["verdict"])
    verdict: Verdict = (
        "broken" if "broken" in verdicts else "open" if "open" in verdicts else "upheld"
    )
    over_ask = float(counts.over_ask[0])
    open_cells = int(answered.cells[0, metrics.PLAIN_CELLS :].sum())
    undecided = f"{open_cells:,} answers are undecided and count as wrong." if open_cells else ""
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
    own = dict(certificate.get("retrieval", {}))
    settings = {
        name: own[name]
        for name in ("index", "fetch_k", "rerank_k", "rrf_k", "dense_weight")
        if name in own
    }
    arms = (str(certificate.get("arm", "hybrid")),)
    selected_cases = [
        case for case in load_cases(cases, follow_links=follow_links) if split in {None, case.split}
    ]
    documents = load_corpus(corpus, encoder=encoder, follow_links=follow_links)
    return build_trace(
        documents,
        selected_cases,
        policy=policy,
        arms=arms,
        encoder=encoder,
        reranker=reranker,
        **settings,
    )


def check_notes(certificate: Mapping[str, Any], trace: TraceView, basis: str) -> tuple[str, ...]:
    """What new cases differ in from those that a certificate was made on."""
    differences = "; ".join(
        retrieval_differences(certificate, dict(trace.meta.get("parameters", {})))
    )
    notes = []
    if certificate["basis"] != basis:
        notes.append(
            f"The certified cases were judged by {certificate['basis']}, these by {basis} (rule "
            "S6.3)."
        )
    if differences:
        notes.append(
            f"Retrieved otherwise than the certified cases: {differences}. The promise is not "
            "about these hits."
        )
    made_on = certificate.get("schema_version", OLD_SCHEMA)
    if made_on != SCHEMA_VERSION:
        notes.append(
            f"The certificate is of a trace of schema version {made_on}, this one has "
            f"{SCHEMA_VERSION}: the certified "
            "cases were measured by another raglab. Build their trace again and certify on it."
        )
    return tuple(notes)
