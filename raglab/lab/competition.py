"""Competition (shore): who competes in a study, by rule, cases and the user's candidates (S6.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from raglab.decision.learned_cases import Queries, learned_cases
from raglab.lab.candidates import (
    CHAIN_RECIPE,
    COST_RECIPE,
    FIXED_POLICIES,
    RECIPE_NAMES,
    THRESHOLD_RECIPE,
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
TUNED = "tuned"
BY_HAND = "manual-loop"
# rows of a result, which no policy of the user may take
RESERVED_NAMES = (*RECIPE_NAMES, *FIXED_POLICIES, TUNED, BY_HAND)


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
        message = f"rule must be expected_cost or chain, got {rule!r}."
        raise ValueError(message)
    for candidate_name, setting_number, lowest_number in (
        ("folds", folds, 2),
        ("repeats", repeats, 1),
    ):
        if type(setting_number) is not int or setting_number < lowest_number:
            rule = f"{candidate_name} must be a whole number of at least {lowest_number}"
            refuse(rule, repr(setting_number), "leave it out for the usual one")
    named_policies: dict[Any, Any] = {}
    if isinstance(candidates, Mapping):
        named_policies |= candidates
    else:
        for candidate in [candidates] if isinstance(candidates, str | Policy) else candidates:
            if isinstance(candidate, Policy):
                named_policies[candidate.policy_id] = candidate
            else:
                named_policies[str(candidate).replace("_", " ")] = None
    for candidate_name, policy in named_policies.items():
        known_names = (*RECIPE_NAMES, *FIXED_POLICIES) if policy is None else RESERVED_NAMES
        is_valid_pair = isinstance(candidate_name, str) and isinstance(policy, Policy | None)
        if not is_valid_pair or (candidate_name in known_names) != (policy is None):
            message = (
                f"candidates must be among {', '.join(RECIPE_NAMES)}, or policies with names of "
                "their "
                f"own, got {candidate_name!r:.80}."
            )
            raise ValueError(message)
    if group is not None and plain_rule == "chain" and COST_RECIPE not in named_policies:
        message = (
            f"group must have {COST_RECIPE!r} among the candidates, got rule 'chain' and "
            f"group {group!r}."
        )
        raise ValueError(message)
    return plain_rule, named_policies


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
    cases: Cases,
    rule: str,
    named_policies: Mapping[str, Policy | None],
    queries_by_split: Queries | None = None,
) -> CompetitionEntry:
    """Choose the candidates that compete on these cases.

    Args:
      cases: measured cases.
      rule: see `tune`.
      named_policies: of `check_competition`.
      queries_by_split: questions on which no policy that competes may be fitted or tuned, beside
        those of `cases`.

    Raises:
      ValueError: a candidate that cannot be made of these cases, or a policy that was fitted on
        them.

    Source: rule S6.8.
    """
    is_fit = can_fit(cases)
    # A decision by cost needs enough cases of each label; with fewer a family of thresholds
    # competes (rule S6.8).
    default_recipe = COST_RECIPE if is_fit and not rare_labels(cases) else THRESHOLD_RECIPE
    if not is_fit and COST_RECIPE in named_policies:
        n_right, n_others = least_training_counts(cases)
        message = (
            f"candidate {COST_RECIPE!r} needs a signal that differs, and outside of each fold "
            f"{MIN_KIND_CASES} "
            f"cases answered right and {MIN_KIND_CASES} others, got {n_right} and {n_others}; "
            "label "
            "more, or leave it out."
        )
        raise ValueError(message)
    # A policy fitted on these cases knows their labels, and no fold can take that back.
    user_policies = {
        candidate_name: policy
        for candidate_name, policy in named_policies.items()
        if policy is not None
    }
    sample_queries: Queries = {None: [case.query for case in cases.trace.cases]}
    learning_doubts = []
    for split_queries in (sample_queries, queries_by_split or sample_queries):
        learned_rows = learned_cases(list(user_policies.values()), split_queries)
        for candidate_name, learned_row in zip(user_policies, learned_rows, strict=True):
            if learned_row.k:
                message = (
                    "a policy that competes must not be fitted on cases of this trace, got "
                    f"{candidate_name!r}: {learned_row.text}; name {COST_RECIPE!r} instead."
                )
                raise ValueError(message)
            if learned_row.doubt and split_queries is sample_queries:
                learning_doubts.append(f"Candidate {candidate_name}: {learned_row.doubt}")
    # A trace holds no hits of a deeper refinement, so it cannot be replayed.
    limited_policies = {
        candidate_name: limit_depth(policy, cases.trace)
        for candidate_name, policy in user_policies.items()
    }
    n_limited = sum(
        policy is not user_policies[candidate_name]
        for candidate_name, policy in limited_policies.items()
    )
    competing_names = dict.fromkeys(
        (*FIXED_POLICIES, CHAIN_RECIPE if rule == "chain" else default_recipe, *named_policies)
    )
    return CompetitionEntry(
        rule, tuple(competing_names), limited_policies, tuple(learning_doubts), n_limited
    )


def build_candidates(
    cases: Cases,
    competition_entry: CompetitionEntry,
    refit_chain: Callable[[], Policy],
    pool_size: int,
) -> list[Candidate]:
    """Build the competing candidates, and for comparison best threshold, best chain and cost model.

    Args:
      cases: measured cases.
      competition_entry: who competes.
      refit_chain: search of the chain on all cases.
      pool_size: configurations of the chain that a fold chooses among.
    """
    candidates = [
        *free_candidates(cases),
        cost_candidate(cases, cross_fit(cases)) if can_fit(cases) else None,
        threshold_candidate(cases),
        chain_candidate(cases, refit_chain, chain_pool(cases, pool_size)),
        *(
            fixed_candidate(candidate_name, policy, cases)
            for candidate_name, policy in competition_entry.policies.items()
        ),
    ]
    return [candidate for candidate in candidates if candidate is not None]
