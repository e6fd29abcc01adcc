"""Re-test the certificate of a policy on cases it was not earned on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from raglab import values
from raglab.lab.build import build_trace
from raglab.lab.candidates import counted
from raglab.metrics import OBJECTIVES, clopper_pearson, upper_bound
from raglab.store.corpus import load_corpus
from raglab.store.looks import queries_hash
from raglab.store.policies import Policy
from raglab.store.qa import load_cases
from raglab.store.traces import Trace

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["upheld", "open", "broken"]


class Checked(NamedTuple):
    """What new cases say of a certificate.

    verdict: `upheld` where every target is certified again, `broken` where the exact lower bound of some rate lies
    above its target, `open` where the cases are too few to say either. Either is wrong with probability delta at most:
    all targets must be certified, so each may spend it whole; one is enough to break, so they share it. table: a row
    a target. notes: what a reader must know.
    """

    verdict: Verdict
    table: pd.DataFrame
    notes: tuple[str, ...]


def check_policy(policy: Policy, trace: values.Trace, *, again: bool = False) -> Checked:
    """Re-test every promise of a policy's certificate, at the certificate's own delta.

    Args:
      trace: new cases, retrieved as those were that it was certified on.
      again: the cases may be those it was certified on.

    Raises:
      ValueError: the policy holds no whole certificate of its own, the trace holds no cases, or these, or a split of
        them, are the cases it was certified on.

    Source: rule S6.4.
    """
    certificate = _certificate(policy)
    if not len(trace):
        msg = "a check needs at least one case, got none."
        raise ValueError(msg)
    splits = {case.split: [other for other in trace.cases if other.split == case.split] for case in trace.cases}
    if not again and certificate["cases_hash"] in map(queries_hash, (trace.cases, *splits.values())):
        msg = "a check must see new cases, got those the policy was certified on; give others, or say --again."
        raise ValueError(msg)
    targets = {str(one["name"]): float(one["alpha"]) for one in certificate["promises"]}
    found = retest(policy, trace, targets, delta=float(certificate["delta"]), arm=certificate.get("arm"))
    return found._replace(notes=_notes(certificate, trace))


def retest(
    policy: Policy, trace: values.Trace, targets: Mapping[str, float], *, delta: float = 0.1, arm: str | None = None
) -> Checked:
    """What labelled cases say of some targets for one policy that was chosen without them.

    A target is upheld where its exact upper bound at 1 − delta keeps it: all together, since each must. It is broken
    where the exact lower bound at 1 − delta / T exceeds it, T targets sharing the error.

    Args:
      targets: rate -> highest value.
    """
    import pandas as pd

    seen, rows = counted(trace, [policy], list(targets), arm), []
    for place, (name, alpha) in enumerate(targets.items()):
        k, n = int(seen.k[0, place]), int(seen.n[0, place])
        high = float(upper_bound(k, n, delta))
        low = float(clopper_pearson(k, n, 1.0 - 2.0 * delta / len(targets)).low)
        said = "upheld" if high <= alpha else "broken" if low > alpha else "open"
        rows.append((name, alpha, k, n, k / n if n else float("nan"), low, high, said))
    columns = ["target", "alpha", "k", "n", "rate", "lower_bound", "upper_bound", "verdict"]
    table = pd.DataFrame(rows, columns=columns)
    found = set(table["verdict"])
    verdict: Verdict = "broken" if "broken" in found else "open" if "open" in found else "upheld"
    return Checked(verdict, table, ())


def retrieved(
    policy: Policy,
    corpus: Path,
    cases: Path,
    *,
    split: str | None = None,
    encoder: str | None = None,
    reranker: str | None = None,
) -> Trace:
    """Trace of new cases, retrieved with the settings that the certificate states.

    Args:
      split: only cases of it. encoder, reranker: by name or path; the bundled model and late interaction where not
        given.

    Raises:
      ValueError: the policy holds no certificate, or no case is of the split.
    """
    certificate = _certificate(policy)
    own = dict(certificate.get("retrieval", {}))
    settings = {name: own[name] for name in ("index", "fetch_k", "rerank_k", "rrf_k") if name in own}
    arms = (str(certificate.get("arm", "hybrid")),)
    asked = [case for case in load_cases(cases) if split in {None, case.split}]
    return build_trace(
        load_corpus(corpus), asked, policy=policy, arms=arms, encoder=encoder, reranker=reranker, **settings
    )


def _certificate(policy: Policy) -> Mapping[str, Any]:
    found = policy.certificate
    missing = {"promises", "delta", "cases_hash", "policy_id"} - set(found or {})
    if found is None:
        msg = "a policy must hold a certificate to be checked, got none; make one with `raglab certify`."
        raise ValueError(msg)
    if missing or not found["promises"] or any(one.get("name") not in OBJECTIVES for one in found["promises"]):
        came = f"one without {', '.join(sorted(missing))}" if missing else "promises of none, or of what is no rate"
        msg = f"a certificate must be whole, got {came}; make one with `raglab certify`."
        raise ValueError(msg)
    if found["policy_id"] != policy.policy_id:
        came = f"that of {found['policy_id']} in {policy.policy_id}"
        msg = f"a certificate must be that of its policy, got {came}; certify the policy as it is now."
        raise ValueError(msg)
    return found


def _notes(certificate: Mapping[str, Any], trace: values.Trace) -> tuple[str, ...]:
    own, here = dict(certificate.get("retrieval", {})), dict(trace.meta.get("parameters", {}))
    differ = [name for name in own if name != "arms" and own[name] != here.get(name)]
    told = "; ".join(f"{name} {here.get(name)} instead of {own[name]}" for name in differ)
    return (
        (f"Retrieved otherwise than the certified cases: {told}. The promise is not about these hits.",) if told else ()
    )
