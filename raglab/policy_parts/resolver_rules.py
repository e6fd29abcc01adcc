"""Rules of the resolver (algebra): group contest, thresholds, switches, and rule order (S3.3).

`decide_rules` is that order, for `resolver.resolve` and for the chain alike; the compiled kernel is
its twin.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from raglab.gates import Threshold
from raglab.gating.headroom import headroom, meets_threshold
from raglab.signals import COSINE, LEAD, SQUARED_L2
from raglab.values import BoolArray, Bools, CodeArray, FloatArray, Floats, IntArray, Status


class Rule(NamedTuple):
    """One rule of the resolver: its decision, and the thresholds that must all be reached.

    Attributes:
      name: of the rule.
      status: its decision.
      thresholds: compared with fields of `Contest`.
    """

    name: str
    status: Status
    thresholds: tuple[Threshold, ...] = ()


def _rule_threshold(threshold_key: str, *, measurement: str, is_lead: bool = False) -> Threshold:
    threshold_unit = SQUARED_L2 if threshold_key == "min_group_gap" else LEAD if is_lead else COSINE
    return Threshold(
        f"resolver.{threshold_key}",
        "floor",
        threshold_unit,
        measurement,
        nullable=True,
        log=is_lead,
    )


RULES: tuple[Rule, ...] = (  # in their order: the first that decides wins (rule S3.3)
    Rule("single_group", Status.ok),
    Rule("overview", Status.ambiguous),
    Rule("entities", Status.ok),
    Rule(
        "group_gap",
        Status.ok,
        (_rule_threshold("min_group_gap", measurement="group_gap", is_lead=True),),
    ),
    Rule(
        "signature_similarity",
        Status.ok,
        (
            _rule_threshold("min_sig_sim", measurement="best_signature"),
            _rule_threshold("min_sig_sim_gap", measurement="gap_signature", is_lead=True),
        ),
    ),
    Rule(
        "anchor_similarity",
        Status.ok,
        (
            _rule_threshold("min_anchor_sim", measurement="best_anchor"),
            _rule_threshold("min_anchor_sim_gap", measurement="gap_anchor", is_lead=True),
        ),
    ),
    Rule("options", Status.ambiguous),
)
ONE_OPTION = "single_option"  # what asking becomes where one option is left (rule S3.5)
RULE_NUMBERS = {rule.name: number for number, rule in enumerate(RULES)}
# What decided, by the number that `decide_rules` gives: the rules, then the same where one option
# is left.
OUTCOMES: tuple[tuple[str, Status], ...] = (
    *((rule.name, rule.status) for rule in RULES),
    *(
        (ONE_OPTION, Status.ok) if rule.status == Status.ambiguous else (rule.name, rule.status)
        for rule in RULES
    ),
)
# where nothing decides: greater than every number, and all bits of an int8 but the sign
NO_NUMBER = 127


class Contest(NamedTuple):
    """The candidate groups' two best by distance, signature and anchor, [B] each.

    Attributes:
      first: group that would win by distance, -1 for none.
      group_gap: best_l2[1] - best_l2[0]; NaN without a second.
      by_signature: group that would win by its signature, -1 for none.
      best_signature: highest cosine of a signature.
      gap_signature: its lead over the second; NaN if none.
      by_anchor: group that would win by its anchor, -1 for none.
      best_anchor: highest cosine of an anchor.
      gap_anchor: its lead over the second; NaN if none.
    """

    first: IntArray
    group_gap: FloatArray
    by_signature: IntArray
    best_signature: FloatArray
    gap_signature: FloatArray
    by_anchor: IntArray
    best_anchor: FloatArray
    gap_anchor: FloatArray


def reshape_contest(evidence: Contest, shape: tuple[int, ...]) -> Contest:
    """Contest with every field in another shape.

    Args:
      evidence: contest of any shape.
      shape: of the result's fields.
    """
    shaped_fields: list[Any] = [contest_field.reshape(shape) for contest_field in evidence]
    return Contest(*shaped_fields)


def _best_two(
    group_values: FloatArray, group_order: IntArray | None
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Winner, its value and its lead over the second, [B] each; of equal values the first wins.

    Example:
      >>> [column.tolist() for column in _best_two(np.array([[0.5, 0.75, np.nan]]), None)]
      [[1], [0.75], [0.25]]
    """
    filled_values = np.where(np.isnan(group_values), -np.inf, group_values)
    row_indices = np.arange(len(group_values))
    if group_order is None:
        winners = filled_values.argmax(axis=1)
    else:
        winners = group_order[
            row_indices, np.take_along_axis(filled_values, group_order, axis=1).argmax(axis=1)
        ]
    best_values = filled_values[row_indices, winners]
    filled_values[row_indices, winners] = -np.inf
    second_values = filled_values.max(axis=1)
    has_best = np.isfinite(best_values)
    with np.errstate(invalid="ignore"):
        lead_values = np.where(np.isfinite(second_values), best_values - second_values, np.nan)
    return np.where(has_best, winners, -1), np.where(has_best, best_values, np.nan), lead_values


def contest(
    candidates: BoolArray,
    best_l2: FloatArray,
    sig_sim: FloatArray,
    anchor_sim: FloatArray,
    order: IntArray | None = None,
) -> Contest:
    """Winner by each of the rules that have a threshold.

    Args:
      candidates: groups that remain, [B, G].
      best_l2: squared L2 of the groups, [B, G].
      sig_sim: cosine of the groups' signatures, [B, G].
      anchor_sim: cosine of the groups' anchors, [B, G].
      order: of the groups, a permutation, where it is not their number.

    Source: rule S3.3, `group_gap`, `signature_similarity`, `anchor_similarity`.
    """
    groups, _, group_gaps = _best_two(np.where(candidates, -best_l2, -np.inf), order)
    signature_best, anchor_best = (
        _best_two(np.where(candidates, similarity, -np.inf), order)
        for similarity in (sig_sim, anchor_sim)
    )
    return Contest(groups, group_gaps, *signature_best, *anchor_best)


class RuleThresholds(NamedTuple):
    """Thresholds of the rules.

    NaN where a rule never decides, -inf where a comparison is not needed.

    A rule whose first threshold is not stated never decides.

    Attributes:
      min_group_gap: squared L2.
      min_sig_sim: cosine of the signature.
      min_sig_sim_gap: lead of that cosine.
      min_anchor_sim: cosine of the anchor.
      min_anchor_sim_gap: lead of that cosine.
    """

    min_group_gap: Floats = np.nan
    min_sig_sim: Floats = np.nan
    min_sig_sim_gap: Floats = -np.inf
    min_anchor_sim: Floats = np.nan
    min_anchor_sim_gap: Floats = -np.inf


class RuleMargins(NamedTuple):
    """Headroom of the rules that have a threshold; the first that is >= 0 picks its group.

    Attributes:
      group_gap: of rule `group_gap`, squared L2.
      signature_similarity: of rule `signature_similarity`, cosine.
      anchor_similarity: of rule `anchor_similarity`, cosine.
    """

    group_gap: Floats
    signature_similarity: Floats
    anchor_similarity: Floats


def rule_margins(evidence: Contest, thresholds: RuleThresholds) -> RuleMargins:
    """Headroom of `group_gap`, `signature_similarity` and `anchor_similarity`.

    Args:
      evidence: contest among the candidates.
      thresholds: scalars, or [P, 1] of policies.

    Source: rule S3.3.
    """
    gap_margin, signature_margin, signature_lead_margin, anchor_margin, anchor_lead_margin = (
        headroom(getattr(evidence, threshold.meets), getattr(thresholds, threshold.key))
        for resolver_rule in RULES
        for threshold in resolver_rule.thresholds
    )
    return RuleMargins(
        gap_margin,
        np.minimum(signature_margin, signature_lead_margin),
        np.minimum(anchor_margin, anchor_lead_margin),
    )


def decides(margin: Floats) -> Bools:
    """Whether a rule picks its group, bool [...]; a missing measurement (NaN) decides nothing.

    Args:
      margin: headroom of the rule, [...].
    """
    is_met: Bools = meets_threshold(margin)
    return is_met


class RuleSwitches(NamedTuple):
    """Switches of the rules `overview` and `entities`, bools or [P, 1].

    Attributes:
      overview: whether rule `overview` is on.
      overview_entities_lift: a query that names an entity is no overview.
      entities: whether rule `entities` is on.
      require_full_entity_coverage: rule `entities` is skipped where no group carries all of the
        query's entities.
    """

    overview: Bools = True
    overview_entities_lift: Bools = True
    entities: Bools = True
    require_full_entity_coverage: Bools = False


RULES_ON = RuleSwitches()


class RuleEvidence(NamedTuple):
    """Measurements of queries that the rules read, [...] each; free of thresholds.

    Attributes:
      n_groups: groups of hits with one signature.
      overview: the query matches a generic pattern and no facet pattern.
      names_entity: the query names an entity.
      skips_entities: no group carries an entity of the query.
      full_entities: some group carries all entities of the query.
      has_winner: rule `entities` has a strict winner.
      all: the contest among all groups.
      tied: the contest among the groups that tie on entities.
      n_options_all: options among all groups (rule S3.5).
      n_options_tied: options among the groups that tie on entities.
    """

    n_groups: IntArray
    overview: BoolArray
    names_entity: BoolArray
    skips_entities: BoolArray
    full_entities: BoolArray
    has_winner: BoolArray
    all: Contest
    tied: Contest
    n_options_all: IntArray
    n_options_tied: IntArray


def number_unless(rule_number: int, is_passed: Any) -> CodeArray:  # noqa: ANN401 - bool or array
    """A number, and `NO_NUMBER` where something passes, [...].

    Passing sets all of its bits, which is never the least: 40 times as fast as a masked copy.
    """
    numbers: CodeArray = np.multiply(
        np.asarray(is_passed).view(np.int8), np.int8(NO_NUMBER)
    ) | np.int8(rule_number)
    return numbers


def is_overview(evidence: RuleEvidence, switches: RuleSwitches) -> BoolArray:
    """Whether rule `overview` asks back.

    Args:
      evidence: of the queries, [Q].
      switches: scalars, or [P, 1] of policies.
    """
    is_lifted = np.logical_and(switches.overview_entities_lift, evidence.names_entity)
    return np.logical_and(switches.overview, evidence.overview) & ~is_lifted


def entities_rule_applies(evidence: RuleEvidence, switches: RuleSwitches) -> BoolArray:
    """Whether rule `entities` applies.

    It is on, some group has a hit, and full coverage where that is required.

    Args:
      evidence: of the queries, [Q].
      switches: scalars, or [P, 1] of policies.
    """
    lacks_entities = np.logical_and(switches.require_full_entity_coverage, ~evidence.full_entities)
    return np.logical_and(switches.entities, ~evidence.skips_entities) & ~lacks_entities


def ties_on_entities(evidence: RuleEvidence, switches: RuleSwitches) -> BoolArray:
    """Whether rule `entities` leaves the groups that tie on entities.

    The rules after it then choose among these.

    Args:
      evidence: of the queries, [Q].
      switches: scalars, or [P, 1] of policies.
    """
    decided_before = (evidence.n_groups == 1) | is_overview(evidence, switches)
    return entities_rule_applies(evidence, switches) & ~decided_before


def decide_rules(
    evidence: RuleEvidence,
    switches: RuleSwitches,
    thresholds: RuleThresholds,
    shape: tuple[int, ...],
) -> tuple[CodeArray, BoolArray]:
    """Which rule decides: the first in the order of `RULES`.

    Args:
      evidence: of the queries, [Q].
      switches: scalars, or [P, 1] of policies.
      thresholds: scalars, or [P, 1] of policies.
      shape: of the result, to which all of them broadcast.

    Returns:
      Number in `RULE_OUTCOMES`, and whether the rules after `entities` chose among the groups that
      tie on entities.

    Source: rules S3.3, S3.5.
    """
    is_tied = ties_on_entities(evidence, switches)
    margins_of_all = rule_margins(evidence.all, thresholds)
    margins_of_tied = rule_margins(evidence.tied, thresholds)
    # the last rule decides where no other does
    rule_numbers = np.full(shape, RULE_NUMBERS["options"], dtype=np.int8)
    for rule_name in RuleMargins._fields:
        decides_all = decides(getattr(margins_of_all, rule_name))
        decides_tied = decides(getattr(margins_of_tied, rule_name))
        np.minimum(
            rule_numbers,
            number_unless(
                RULE_NUMBERS[rule_name], ~((is_tied & decides_tied) | (~is_tied & decides_all))
            ),
            out=rule_numbers,
        )
    np.minimum(
        rule_numbers,
        number_unless(RULE_NUMBERS["entities"], ~(is_tied & evidence.has_winner)),
        out=rule_numbers,
    )
    np.minimum(
        rule_numbers,
        number_unless(RULE_NUMBERS["overview"], ~is_overview(evidence, switches)),
        out=rule_numbers,
    )
    np.minimum(
        rule_numbers,
        number_unless(RULE_NUMBERS["single_group"], evidence.n_groups != 1),
        out=rule_numbers,
    )
    has_one_option = (is_tied & (evidence.n_options_tied == 1)) | (
        ~is_tied & (evidence.n_options_all == 1)
    )
    return np.multiply(has_one_option, len(RULES), dtype=np.int8) + rule_numbers, is_tied
