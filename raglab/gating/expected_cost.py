"""Decision by expected cost (algebra): class probability from signals, cheapest action (S2.17).

A stored multinomial logistic reads declared signals and gives the probabilities of four classes.
Costs by label and outcome (rule S6.7) make of them the expected cost of answering, refusing and
asking back; the least decides. The probabilities depend on no cost, so they are measured once and
every cost is replayed over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from raglab.arguments.plain_arrays import measured_values
from raglab.gating.case_groups import group_values
from raglab.metrics.costs import LABELS, OUTCOMES
from raglab.signals import NAMES
from raglab.values import Case, CodeArray, FloatArray, Floats, Status, refuse

# answer would be right; ok but its evidence would miss; the rest
OUTCOME_CLASSES = ("right", "miss", "refuse", "ambiguous")
LABEL_OF_CLASS = (0, 0, 1, 2)  # of each class, as `Status`
SCALED_SIGNAL_LIMIT = 4.0  # standard deviations beyond which a signal counts no more
ABSENT_LOGIT = -30.0  # logit of a class of which there is no case


class SignalPart(NamedTuple):
    """Part of a signal in the logit of every class.

    Attributes:
      signal: its name.
      center: value that counts as 0.
      scale: the signal counts as (value - center) / scale, within ± `SCALED_SIGNAL_LIMIT`.
      missing: value used where the signal has none.
      weights: by class, as `OUTCOME_CLASSES`.
    """

    signal: str
    center: float
    scale: float
    missing: float
    weights: tuple[float, ...]


class GroupBias(NamedTuple):
    """What belonging to a group adds to the logit of every class (rule S2.20).

    Attributes:
      attribute: name of the attribute that groups the cases, such as `tenant`.
      bias: name of a group and its bias by class, by name; a group that is not among them has a
        bias of 0.
    """

    attribute: str
    bias: tuple[tuple[str, tuple[float, ...]], ...]


class DecisionModel(NamedTuple):
    """Multinomial logistic over signals.

    Attributes:
      parts: one a signal.
      bias: by class.
      asked_right: chance that the options of a case to be asked hold what it expects.
      structure: hash of the hits it was fitted on, see `structure_hash`.
      groups: biases of groups of cases, or None.
    """

    parts: tuple[SignalPart, ...]
    bias: tuple[float, ...]
    asked_right: float
    structure: str
    groups: GroupBias | None = None

    def __repr__(self) -> str:
        """Fields by name, without groups that there are not.

        Fingerprints are made of this text (rule S0.8).
        """
        field_values = (
            self._asdict()
            if self.groups
            else {name: getattr(self, name) for name in self._fields[:-1]}
        )
        return (
            f"{type(self).__name__}("
            f"{', '.join(f'{name}={value!r}' for name, value in field_values.items())})"
        )

    def group_values(self, cases: Sequence[Case]) -> tuple[str, ...] | None:
        """Group of each case by the model's attribute, [Q]; None of a model without groups.

        Args:
          cases: Q of them.
        """
        return None if self.groups is None else group_values(cases, self.groups.attribute)


class ActionCosts(NamedTuple):
    """Cost of an action where a case is of a label, scalars or [P, 1].

    Attributes:
      right: of an answer that is right.
      wrong_ok: of a wrong answer to a case labelled ok.
      wrong_refuse: of an answer to a case labelled refuse.
      wrong_ambiguous: of an answer to a case labelled ambiguous.
      refused_ok: of refusing a case labelled ok.
      refused_refuse: of refusing a case labelled refuse.
      refused_ambiguous: of refusing a case labelled ambiguous.
      asked_ok: of asking back where the case is labelled ok.
      asked_refuse: of asking back where the case is labelled refuse.
      asked_right: of asking back about an ambiguous case whose options hold what is expected.
      asked_ambiguous: of asking back about an ambiguous case whose options do not.
      ratio: factor of the costs of wrong answers.
    """

    right: Floats
    wrong_ok: Floats
    wrong_refuse: Floats
    wrong_ambiguous: Floats
    refused_ok: Floats
    refused_refuse: Floats
    refused_ambiguous: Floats
    asked_ok: Floats
    asked_refuse: Floats
    asked_right: Floats
    asked_ambiguous: Floats
    ratio: Floats


# Entry of the cost matrix that each field is: label and outcome, as a policy's path has them.
COST_PATHS: dict[str, str] = {
    "right": "ok.answered_right",
    "wrong_ok": "ok.answered_wrong",
    "wrong_refuse": "refuse.answered_wrong",
    "wrong_ambiguous": "ambiguous.answered_wrong",
    "refused_ok": "ok.refused",
    "refused_refuse": "refuse.refused",
    "refused_ambiguous": "ambiguous.refused",
    "asked_ok": "ok.asked_wrong",
    "asked_refuse": "refuse.asked_wrong",
    "asked_right": "ambiguous.asked_right",
    "asked_ambiguous": "ambiguous.asked_wrong",
}


def action_costs(matrix: FloatArray, ratio: Floats = 1.0) -> ActionCosts:
    """Costs of the actions, of a cost matrix [..., 3, 5].

    Args:
      matrix: costs by label and outcome, [..., 3, 5], see `metrics.cost_matrix`.
      ratio: factor of the costs of wrong answers, [...].
    """

    def entry(path: str) -> Any:  # noqa: ANN401 - a scalar or array
        case_label, _, case_outcome = path.partition(".")
        return matrix[..., LABELS.index(case_label), OUTCOMES.index(case_outcome)]

    return ActionCosts(**{name: entry(path) for name, path in COST_PATHS.items()}, ratio=ratio)


def class_logits(
    signals: FloatArray, model: DecisionModel, names: Sequence[str] = NAMES
) -> FloatArray:
    """Part of each signal in the logit of each class, [signals of the model, 4, ...].

    Args:
      signals: by name, [S, ...]; NaN where missing.
      model: fitted.
      names: of the signals, [S].
    """
    cases_shape = signals.shape[1:]
    signal_logits = np.empty((len(model.parts), len(OUTCOME_CLASSES), *cases_shape))
    for part_index, signal_part in enumerate(model.parts):
        signal_values = signals[names.index(signal_part.signal)]
        signal_values = np.where(np.isnan(signal_values), signal_part.missing, signal_values)
        scaled_values = np.clip(
            (signal_values - signal_part.center) / signal_part.scale,
            -SCALED_SIGNAL_LIMIT,
            SCALED_SIGNAL_LIMIT,
        )
        for class_index, class_weight in enumerate(signal_part.weights):
            signal_logits[part_index, class_index] = class_weight * scaled_values
    return signal_logits


def mixed_bias(
    bias: Sequence[float], fitted: Sequence[float], traffic: Sequence[float]
) -> tuple[float, ...]:
    """Bias of each class where labels have other shares in traffic than in the fitted cases, [4].

    It gives the class probabilities times (share in traffic / share in the fitted cases),
    normalised.

    Args:
      bias: as fitted, by class, [4].
      fitted: share of each label in the fitted cases, [3].
      traffic: share of each label in traffic, [3].

    Source: rule S6.15; Saerens, Latinne and Decaestecker 2002.

    Example: as many to be refused in traffic as to be answered, where the fit saw three times more.
      >>> [round(value, 3) for value in mixed_bias((0, 0, 0, 0), (0.25, 0.75, 0), (0.5, 0.5, 0))]
      [0.693, 0.693, -0.405, -30.0]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        bias_shift = np.log(np.asarray(traffic, dtype=np.float64)) - np.log(np.asarray(fitted))
    bias_shift = np.where(np.isfinite(bias_shift), bias_shift, ABSENT_LOGIT)[list(LABEL_OF_CLASS)]
    return tuple(np.maximum(np.asarray(bias, dtype=np.float64) + bias_shift, ABSENT_LOGIT).tolist())


def group_bias(model: DecisionModel, groups: Sequence[str] | None) -> FloatArray:
    """Bias of each class with that of each case's group, [4, Q]; [4, 1] of a model without groups.

    Args:
      model: fitted.
      groups: group of each case, [Q]; one without a bias, as '' of a case that states none, adds 0.

    Raises:
      ValueError: the model has groups, and those of the cases are not given.

    Source: rule S2.20.

    Example:
      >>> model = DecisionModel(
      ...     (), (1.0, 0.0, 0.0, 0.0), 1.0, "", GroupBias("tenant", (("acme", (0.5, 0, 0, -0.5)),))
      ... )
      >>> group_bias(model, ["acme", "zeta"]).tolist()
      [[1.5, 1.0], [0.0, 0.0], [0.0, 0.0], [-0.5, 0.0]]
    """
    common_bias = np.array(model.bias, dtype=np.float64)[:, None]
    if model.groups is None:
        return common_bias
    if groups is None:
        refuse(
            f"a model with a bias by {model.groups.attribute} must be given the group of each case",
            "none",
            "pass those of `DecisionModel.group_values`",
        )
    bias_by_group = dict(model.groups.bias)
    no_bias = (0.0,) * len(OUTCOME_CLASSES)
    added_bias: FloatArray = np.array(
        [bias_by_group.get(group_name, no_bias) for group_name in groups], dtype=np.float64
    )
    return common_bias + added_bias.reshape(-1, len(OUTCOME_CLASSES)).T


def class_probabilities(
    signals: FloatArray,
    model: DecisionModel,
    names: Sequence[str] = NAMES,
    groups: Sequence[str] | None = None,
) -> FloatArray:
    """Probability of each class, [4, ...], by `OUTCOME_CLASSES`.

    Args:
      signals: by name, [S, ..., Q]; NaN where missing.
      model: fitted.
      names: of the signals, [S].
      groups: group of each case, [Q], for a model that has groups.

    Raises:
      ValueError: the model has groups, and those of the cases are not given.

    Source: rules S2.17, S2.20; multinomial logistic regression.

    Example:
      >>> model = DecisionModel((), (0.0, 0.0, 0.0, 0.0), 1.0, "")
      >>> class_probabilities(np.zeros((len(NAMES), 1)), model)[:, 0].tolist()
      [0.25, 0.25, 0.25, 0.25]
    """
    cases_shape = signals.shape[1:]
    class_bias = group_bias(model, groups)
    bias_shape = [1] * len(cases_shape)
    if class_bias.shape[1] > 1:  # cases are the last axis
        bias_shape[-1] = class_bias.shape[1]
    total_logits = np.broadcast_to(
        class_bias.reshape(len(OUTCOME_CLASSES), *bias_shape), (len(OUTCOME_CLASSES), *cases_shape)
    ).copy()
    for signal_logits in class_logits(
        signals, model, names
    ):  # one after the other, so that the sum is the same on every machine
        total_logits += signal_logits
    total_logits -= total_logits.max(axis=0)
    class_odds = np.exp(total_logits)
    total_odds = class_odds[0] + class_odds[1] + class_odds[2] + class_odds[3]
    class_shares: FloatArray = class_odds / total_odds
    return class_shares


def expected_costs(
    probability: FloatArray, asked_right: Floats, costs: ActionCosts
) -> tuple[Floats, Floats, Floats]:
    """Expected cost of answering, refusing and asking back, [...] each.

    Args:
      probability: of the classes, [4, ...].
      asked_right: of the model, [...].
      costs: broadcast against [...].

    Source: rule S2.17; Chow 1970 with a third action, Elkan 2001.
    """
    p_right, p_miss, p_refuse, p_ambiguous = probability
    p_ok = p_right + p_miss
    # The compiled twin adds in this very order.
    wrong_cost = (
        costs.wrong_ok * p_miss
        + costs.wrong_refuse * p_refuse
        + costs.wrong_ambiguous * p_ambiguous
    )
    answer_cost = costs.right * p_right + costs.ratio * wrong_cost
    refuse_cost = (
        costs.refused_ok * p_ok
        + costs.refused_refuse * p_refuse
        + costs.refused_ambiguous * p_ambiguous
    )
    ambiguous_ask_cost = costs.asked_right * asked_right + costs.asked_ambiguous * (
        1.0 - asked_right
    )
    ask_cost = (
        costs.asked_ok * p_ok + costs.asked_refuse * p_refuse + ambiguous_ask_cost * p_ambiguous
    )
    return answer_cost, refuse_cost, ask_cost


# bools
def least_cost(
    answer_cost: Floats,
    refuse_cost: Floats,
    ask_cost: Floats,
    can_ask: Any,  # noqa: ANN401
) -> CodeArray:
    """Status of the cheapest action, [...].

    Ties go to refuse, then to asking, and so does a cost that is NaN.

    Args:
      answer_cost: expected cost of answering, [...].
      refuse_cost: expected cost of refusing, [...].
      ask_cost: expected cost of asking back, [...].
      can_ask: whether there are two options.

    Source: rule S2.17.

    Example:
      >>> least_cost(0.5, 0.5, 0.5, True).item() == Status.refuse
      True
      >>> least_cost(0.0, 1.0, float("nan"), True).item() == Status.refuse
      True
    """
    answer_cost, refuse_cost, ask_cost = (
        measured_values(cost, "cost") for cost in (answer_cost, refuse_cost, ask_cost)
    )
    # A cost that is not known is no reason to act: with it no action is the cheapest.
    is_known = ~(np.isnan(answer_cost) | np.isnan(refuse_cost) | np.isnan(ask_cost))
    asks = (
        is_known & can_ask & np.less(ask_cost, refuse_cost) & np.less_equal(ask_cost, answer_cost)
    )
    answers = is_known & np.less(answer_cost, refuse_cost) & ~asks
    status = np.where(asks, Status.ambiguous, np.where(answers, Status.ok, Status.refuse))
    return np.asarray(status, dtype=np.int8)
