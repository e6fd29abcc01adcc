"""Competition (shore): who competes in a study, by rule, cases and the user's candidates (S6.8)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

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
from raglab.lab.decision_fitting import LEAST
from raglab.lab.search_space import limit_depth
from raglab.lab.study_notes import candidate_note
from raglab.store.policies import Policy

SelectionRule = Literal["expected_cost", "chain"]
RULE_NAMES: Mapping[str, SelectionRule] = {
    "expected_cost": "expected_cost",
    "expected cost": "expected_cost",
    "chain": "chain",
}
CandidateNames = Sequence[str | Policy] | Mapping[str, Policy]
TUNED, BY_HAND = "tuned", "manual-loop"
# rows of a result, which no policy of the user may take
OWN_NAMES = (*RECIPES, *FIXED, TUNED, BY_HAND)


def check_group_candidate(group: str | None, rule: str, named: Collection[str]) -> None:
    """Stop where groups are asked for of a study in which no decision by expected cost competes.

    Raises:
      ValueError: the rule is chain, and the decision by expected cost is not named.
    """
    if group is not None and rule == "chain" and COST not in named:
        msg = (
            f"group needs the decision by expected cost, got rule 'chain' and group {group!r}; "
            "leave one of them out, "
            f"or name the candidate {COST!r}."
        )
        raise ValueError(msg)


def check_competition(
    rule: str, candidates: CandidateNames, folds: int, repeats: int
) -> tuple[SelectionRule, dict[str, Policy | None]]:
    """The rule, and candidates that the user names, by name; None for a recipe.

    A name may have blank or underscore.

    Args: see `tune`.

    Raises:
      ValueError: an unknown rule or candidate, folds below 2, or repeats below 1.
    """
    plain_rule = RULE_NAMES.get(rule) if isinstance(rule, str) else None
    if plain_rule is None:
        msg = f"rule must be expected_cost or chain, got {rule!r}; correct the name."
        raise ValueError(msg)
    whole = all(
        isinstance(number, int) and not isinstance(number, bool) for number in (folds, repeats)
    )
    if not whole or folds < 2 or repeats < 1:
        msg = (
            "folds must be a whole number of at least 2, repeats one of at least 1, got "
            f"{folds!r} and {repeats!r}."
        )
        raise ValueError(msg)
    if isinstance(candidates, str | Policy):
        candidates = [candidates]
    kinds = str if isinstance(candidates, Mapping) else str | Policy
    if not isinstance(candidates, Sequence | Mapping) or not all(
        isinstance(candidate, kinds) for candidate in candidates
    ):
        msg = (
            "candidates must be names and policies, or map names to policies, got "
            f"{candidates!r:.80}; correct it."
        )
        raise ValueError(msg)
    if isinstance(candidates, Mapping):
        pairs: list[tuple[str, Policy | None]] = list(candidates.items())
    else:
        pairs = [
            (_recipe_name(candidate), None)
            if isinstance(candidate, str)
            else (candidate.policy_id, candidate)
            for candidate in candidates
        ]
    for name, policy in pairs:
        if policy is None and name not in (*RECIPES, *FIXED):
            msg = (
                f"candidates must be policies or among {', '.join(RECIPES)}, got {name!r}; "
                "correct the name."
            )
            raise ValueError(msg)
        if policy is not None and (name in OWN_NAMES or not isinstance(policy, Policy)):
            msg = (
                f"a candidate's name must be its own and stand for a policy, got {name!r}; choose "
                "another name."
            )
            raise ValueError(msg)
    return plain_rule, dict(pairs)


def _recipe_name(name: str) -> str:
    """Name of a recipe, `one_threshold` as `one threshold`; any other name as it is."""
    return name.replace("_", " ") if name.replace("_", " ") in RECIPES else name


class CompetitionEntry(NamedTuple):
    """Who competes in a selection.

    rule: by which the study was asked for. competing: names, the fixed policies among them.
    policies: of the user, by name. notes: why the family of single thresholds stands for the
    decision by expected cost, and which policies of the user
      refine deeper than the trace measured, so that they are judged at its depth.
    """

    rule: str
    competing: tuple[str, ...]
    policies: Mapping[str, Policy]
    notes: tuple[str, ...]


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
    fits, rare = can_fit(cases), rare_labels(cases)
    # A decision by cost needs enough cases of each label; with fewer a family of thresholds
    # competes (rule S6.8).
    own = COST if fits and not rare else THRESHOLD
    notes = [] if own == COST or rule == "chain" or COST in named else [candidate_note(rare)]
    if cases.folds > len(cases.label):
        notes.append(
            f"{cases.folds} folds are more than the {len(cases.label)} cases: each case is a fold "
            "of its own."
        )
    # Equal questions depend on each other, which no interval here knows.
    n_cases, n_questions = len(cases.label), int(cases.questions.max()) + 1
    if n_questions < n_cases:
        parted = int(cases.groups.max()) + 1 > n_questions
        where = (
            "too few for folds of their own, so that equal ones are in several"
            if parted
            else "equal ones in one fold"
        )
        notes.append(
            f"{n_cases:,} cases ask {n_questions:,} questions, {where}; no interval takes account "
            "of them."
        )
    if not fits and COST in named:
        every, outside = least_training_counts(cases)
        lacks = (
            "no signal differs"
            if min(outside) >= LEAST
            else f"a fold leaves {outside[0]} and {outside[1]}"
        )
        msg = (
            f"candidate {COST!r} must be fitted without each of {cases.folds} folds on at least "
            f"{LEAST} cases that "
            f"would be answered right and {LEAST} others, by a signal that differs, got "
            f"{every[0]} and {every[1]} "
            f"({lacks}); label more cases, or leave it out."
        )
        raise ValueError(msg)
    # A policy fitted on these cases knows their labels, and no fold can take that back.
    user_policies = {name: policy for name, policy in named.items() if policy is not None}
    sample: Queries = {None: [case.query for case in cases.trace.cases]}
    for known in (sample, by_split or sample):
        for name, learned in zip(
            user_policies, learned_cases(list(user_policies.values()), known), strict=True
        ):
            if learned.k:
                reason = "a policy that competes must not be fitted on cases of this trace"
                msg = (
                    f"{reason}, got {name!r}: {learned.text}; name {COST!r} instead, which is "
                    "fitted without the case "
                    "it decides."
                )
                raise ValueError(msg)
            notes += (
                [f"Candidate {name}: {learned.doubt}"] if learned.doubt and known is sample else []
            )
    own = CHAIN if rule == "chain" else own
    # A trace holds no hits of a deeper refinement, so it cannot be replayed.
    policies = {name: limit_depth(policy, cases.trace) for name, policy in user_policies.items()}
    for name, policy in policies.items():
        if policy is not user_policies[name]:
            depth = policy.refine.max_depth
            notes.append(
                f"Candidate {name} refines deeper than the trace measured: it is judged at depth "
                f"{depth}."
            )
    return CompetitionEntry(
        rule, tuple(dict.fromkeys((*FIXED, own, *named))), policies, tuple(notes)
    )


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
    candidates: list[Candidate | None] = [*free_candidates(cases)]
    candidates += [cost_candidate(cases, cross_fit(cases))] if can_fit(cases) else []
    candidates += [threshold_candidate(cases)]
    candidates += [chain_candidate(cases, refit_chain, chain_pool(cases, pool))]
    candidates += [fixed_candidate(name, policy, cases) for name, policy in entry.policies.items()]
    return [candidate for candidate in candidates if candidate is not None]
