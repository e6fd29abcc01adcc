"""Competition (shore): who competes in a study, by rule, cases and the user's candidates (S6.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from raglab.decision.learned_cases import Queries, learned_cases
from raglab.lab.candidates import (
    CHAIN,
    COST,
    FIXED,
    RECIPES,
    THRESHOLD,
    Candidate,
    Cases,
    can_fit,
    chain_candidate,
    chain_pool,
    cost_candidate,
    cross_fit,
    fixed_candidate,
    free_candidates,
    least_training_counts,
    rare_labels,
    threshold_candidate,
)
from raglab.lab.decision_fitting import MIN_KIND_CASES
from raglab.lab.untuned_policies import limit_depth
from raglab.store.policies import Policy
from raglab.values import refuse

CandidateNames = Sequence[str | Policy] | Mapping[str, Policy]
TUNED, BY_HAND = "tuned", "manual-loop"
# rows of a result, which no policy of the user may take
OWN_NAMES = (*RECIPES, *FIXED, TUNED, BY_HAND)


def check_competition(
    rule: str, candidates: CandidateNames, folds: int, repeats: int, group: str | None = None
) -> tuple[str, dict[str, Policy | None]]:
    """The rule, and candidates that the user names, by name; None for a recipe.

    A name may have blank or underscore.

    Args: see `tune`.

    Raises:
      ValueError: an unknown rule or candidate, folds below 2, repeats below 1, or a group where no
        decision by expected cost competes.
    """
    plain_rule = str(rule).replace(" ", "_")
    if plain_rule not in {"expected_cost", "chain"}:
        msg = f"rule must be expected_cost or chain, got {rule!r}."
        raise ValueError(msg)
    for name, number, least in (("folds", folds, 2), ("repeats", repeats, 1)):
        if type(number) is not int or number < least:
            rule = f"{name} must be a whole number of at least {least}"
            refuse(rule, repr(number), "leave it out for the usual one")
    named: dict[Any, Any] = {}
    if isinstance(candidates, Mapping):
        named |= candidates
    else:
        for each in [candidates] if isinstance(candidates, str | Policy) else candidates:
            if isinstance(each, Policy):
                named[each.policy_id] = each
            else:
                named[str(each).replace("_", " ")] = None
    for name, policy in named.items():
        known = (*RECIPES, *FIXED) if policy is None else OWN_NAMES
        is_pair = isinstance(name, str) and isinstance(policy, Policy | None)
        if not is_pair or (name in known) != (policy is None):
            msg = (
                f"candidates must be among {', '.join(RECIPES)}, or policies with names of their "
                f"own, got {name!r:.80}."
            )
            raise ValueError(msg)
    if group is not None and plain_rule == "chain" and COST not in named:
        msg = (
            f"group must have {COST!r} among the candidates, got rule 'chain' and group {group!r}."
        )
        raise ValueError(msg)
    return plain_rule, named


class CompetitionEntry(NamedTuple):
    """Who competes in a selection.

    rule: by which the study was asked for. competing: names, the fixed policies among them.
    policies: of the user, by name. doubts: whether these learned from cases of the study, where
    that is not known. limited: how many of them refine deeper than the trace measured, so that they
    are judged at its depth.
    """

    rule: str
    competing: tuple[str, ...]
    policies: Mapping[str, Policy]
    doubts: tuple[str, ...] = ()
    limited: int = 0


def competition(
    cases: Cases, rule: str, named: Mapping[str, Policy | None], by_split: Queries | None = None
) -> CompetitionEntry:
    """Choose the candidates that compete on these cases.

    Args:
      cases: measured cases.
      rule: see `tune`.
      named: of `check_competition`.
      by_split: questions on which no policy that competes may be fitted or tuned, beside those of
        `cases`.

    Raises:
      ValueError: a candidate that cannot be made of these cases, or a policy that was fitted on
        them.

    Source: rule S6.8.
    """
    fits = can_fit(cases)
    # A decision by cost needs enough cases of each label; with fewer a family of thresholds
    # competes (rule S6.8).
    own = COST if fits and not rare_labels(cases) else THRESHOLD
    if not fits and COST in named:
        n_right, n_rest = least_training_counts(cases)
        msg = (
            f"candidate {COST!r} needs a signal that differs, and outside of each fold {MIN_KIND_CASES} "
            f"cases answered right and {MIN_KIND_CASES} others, got {n_right} and {n_rest}; label "
            "more, or leave it out."
        )
        raise ValueError(msg)
    # A policy fitted on these cases knows their labels, and no fold can take that back.
    policies = {name: policy for name, policy in named.items() if policy is not None}
    sample: Queries = {None: [case.query for case in cases.trace.cases]}
    doubts = []
    for known in (sample, by_split or sample):
        every = learned_cases(list(policies.values()), known)
        for name, learned in zip(policies, every, strict=True):
            if learned.k:
                msg = (
                    "a policy that competes must not be fitted on cases of this trace, got "
                    f"{name!r}: {learned.text}; name {COST!r} instead."
                )
                raise ValueError(msg)
            if learned.doubt and known is sample:
                doubts.append(f"Candidate {name}: {learned.doubt}")
    # A trace holds no hits of a deeper refinement, so it cannot be replayed.
    shallow = {name: limit_depth(policy, cases.trace) for name, policy in policies.items()}
    limited = sum(policy is not policies[name] for name, policy in shallow.items())
    competing = dict.fromkeys((*FIXED, CHAIN if rule == "chain" else own, *named))
    return CompetitionEntry(rule, tuple(competing), shallow, tuple(doubts), limited)


def build_candidates(
    cases: Cases, entry: CompetitionEntry, refit_chain: Callable[[], Policy], pool: int
) -> list[Candidate]:
    """Build the competing candidates, and for comparison best threshold, best chain and cost model.

    Args:
      cases: measured cases.
      entry: who competes.
      refit_chain: search of the chain on all cases.
      pool: configurations of the chain that a fold chooses among.
    """
    candidates = [
        *free_candidates(cases),
        cost_candidate(cases, cross_fit(cases)) if can_fit(cases) else None,
        threshold_candidate(cases),
        chain_candidate(cases, refit_chain, chain_pool(cases, pool)),
        *(fixed_candidate(name, policy, cases) for name, policy in entry.policies.items()),
    ]
    return [candidate for candidate in candidates if candidate is not None]
