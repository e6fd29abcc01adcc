"""Sections of a policy (algebra): what gates, rules and lists may hold (S0.5, S2.1 to S2.18).

Each value has its unit and range.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import chain, pairwise
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictStr,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from raglab import gates
from raglab.gating.expected_cost import DecisionModel, GroupBias, SignalPart, mixed_bias
from raglab.metrics.costs import LABELS, OUTCOMES
from raglab.policy_parts.arms import ARMS, CHOOSERS
from raglab.policy_parts.gate_order import check_order
from raglab.policy_parts.own_gates import section_error
from raglab.policy_parts.patterns import (
    COUNTED_LISTS,
    MAX_PATTERNS,
    NOTHING_SPENT,
    Pattern,
    check_patterns,
    patterns_hash,
)
from raglab.signals import (
    COSINE,
    COST,
    COUNT,
    LEAD,
    NAMES,
    POINTS,
    RATIO,
    SHARE,
    SQUARED_L2,
    Unit,
    is_name,
    signal,
)
from raglab.values import FloatArray

EXPECTED_COST = "expected_cost"


def _unit_field(unit: Unit) -> Any:  # noqa: ANN401 - a field of pydantic
    """Range of a unit, and what a message says of it."""
    return Field(
        ge=unit.low,
        le=unit.high,
        allow_inf_nan=None if unit.whole else False,
        description=unit.described,
    )


SquaredL2 = Annotated[float, _unit_field(SQUARED_L2)]
Cosine = Annotated[float, _unit_field(COSINE)]
Lead = Annotated[float, _unit_field(LEAD)]
Points = Annotated[float, _unit_field(POINTS)]
Share = Annotated[float, _unit_field(SHARE)]
Count = Annotated[int, _unit_field(COUNT)]
if TYPE_CHECKING:
    ArmName: TypeAlias = str
else:  # pydantic checks against the table's names and lists them where none of them came
    ArmName = Literal[(*ARMS, *CHOOSERS)]

Scale = Annotated[
    float, Field(gt=0.0, le=1_000.0, description="a count that brings others near [0, 1]")
]

Stated = StrictStr | tuple[StrictStr, ...]


SHOWN_CHARACTERS = 120  # characters of a key or a value that a message shows


def cut_value(text: str, max_length: int = SHOWN_CHARACTERS) -> str:
    """Text of a key or a value as a message shows it."""
    return text if len(text) <= max_length else f"{text[:max_length]}..."


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _ListSection(_Section):
    """A section in which YAML's lists become tuples."""

    model_config = ConfigDict(strict=False)


# Of models: as many as no fit makes, and so far from the largest float that no sum of them
# overflows.
MOST_KNOTS, MOST_PARTS, MOST_WEIGHT = 10_000, 200, 1e12
# of a signal: one that hardly varies has a tiny scale, and no quotient overflows
MIN_SCALE = 1e-100
Number = Annotated[float, Field(strict=True, ge=-MOST_WEIGHT, le=MOST_WEIGHT, allow_inf_nan=False)]


class ContextSection(_Section):
    """Which hits go to the answer (rules S1.2, S1.3)."""

    final_k: Count
    order: Literal["rank", "l2"]


class OfGates:
    """Sections made of the gate table, under the names by which another process finds them."""


def section_of(gate: gates.Gate) -> Any:  # noqa: ANN401 - a model
    """Section of a gate: its switch, and a number a threshold within the range of its unit."""
    section_fields: dict[str, Any] = {"enabled": (bool, ...)}
    for threshold in gate.thresholds:
        number_type: Any = Annotated[int if threshold.whole else float, _unit_field(threshold.unit)]
        section_fields[threshold.key] = (
            number_type | None if threshold.nullable else number_type,
            ...,
        )
    gate_section = create_model(
        gate.name.title(), __base__=_Section, __doc__=f"Rule {gate.rule}.", **section_fields
    )
    gate_section.__module__, gate_section.__qualname__ = (
        __name__,
        f"{OfGates.__name__}.{gate_section.__name__}",
    )
    setattr(OfGates, gate_section.__name__, gate_section)
    return gate_section


class Gap(section_of(gates.gate_by_name("gap"))):  # type: ignore[misc]
    """Rule S2.4."""

    near_pages: Annotated[int, Field(ge=0, le=1_000)]


class Coverage(section_of(gates.gate_by_name("coverage"))):  # type: ignore[misc]
    """Rule S2.5. min_hits: chosen hits that must hold each entity."""

    min_hits: Annotated[int, Field(ge=1, le=100)]


class Polyline(_ListSection):
    """A signal's share of the logit: knots ascending, values never falling."""

    x: Annotated[tuple[Number, ...], Field(max_length=MOST_KNOTS)]
    y: Annotated[tuple[Number, ...], Field(max_length=MOST_KNOTS)]

    @model_validator(mode="after")
    def _monotone(self) -> Self:
        if not self.x or len(self.x) != len(self.y):
            message = "x and y must be as many finite numbers, at least one; fit the gate again"
            raise ValueError(message)
        if any(left_value >= right_value for left_value, right_value in pairwise(self.x)) or any(
            left_value > right_value for left_value, right_value in pairwise(self.y)
        ):
            message = "x must ascend and y must not fall; fit the gate again"
            raise ValueError(message)
        return self


class FusionSection(section_of(gates.gate_by_name("fused"))):  # type: ignore[misc]
    """Rule S2.14."""

    bias: Number
    fitted_on: StrictStr | None
    parts: Annotated[dict[StrictStr, Polyline], Field(max_length=MOST_PARTS)]

    @model_validator(mode="after")
    def _usable(self) -> Self:
        _check_names(self.parts, "parts must name signals")
        if self.enabled and not self.parts:
            message = (
                "a fused gate without parts refuses everything; fit one (raglab.fit_fused_gate) "
                "or switch it off"
            )
            raise ValueError(message)
        return self


class Refine(_Section):
    """Rule S2.9."""

    max_depth: Annotated[int, Field(ge=0, le=100)]
    epsilon: Points
    refine_on_refusal: bool


class Calibration(Polyline):
    """What a number is worth: probability of being right, through knots, flat beyond its ends."""

    fitted_on: StrictStr | None = None

    @model_validator(mode="after")
    def _probability(self) -> Self:
        if not all(0.0 <= probability <= 1.0 for probability in self.y):
            message = "y must lie in [0, 1]; fit the calibration again"
            raise ValueError(message)
        return self


class Confidence(section_of(gates.gate_by_name("confidence"))):  # type: ignore[misc]
    """Rule S2.8."""

    blend: Share
    min_texts: Count
    fallback: Literal["hybrid", "cosine"]
    calibration: Calibration


class StrategySection(_Section):
    """Rules S4.1, S4.5, S4.7: the arm that answers live, or what chooses it.

    And what makes arms available.
    """

    arm: ArmName
    min_graph: Share
    min_table: Share
    min_complexity: Share
    words_scale: Scale
    entities_scale: Scale


class GenerationSection(section_of(gates.gate_by_name("generation"))):  # type: ignore[misc]
    """Rule S2.10."""

    calibration: Calibration | None


class Resolver(_Section):
    """Rules S3.1 to S3.5."""

    strict: bool
    overview: bool
    overview_entities_lift: bool
    entity_extractor: bool
    entities: bool
    require_full_entity_coverage: bool
    min_group_gap: SquaredL2 | None
    signature: bool
    min_sig_sim: Cosine | None
    min_sig_sim_gap: Lead | None
    anchor: bool
    min_anchor_sim: Cosine | None
    min_anchor_sim_gap: Lead | None
    max_options: Count
    document_identity: Literal["path", "file_name"]


class SignalSection(_Section):
    """Rule S2.15: bounds of any signal; a value at its bound passes."""

    min: Annotated[float, Field(allow_inf_nan=False)] | None = None
    max: Annotated[float, Field(allow_inf_nan=False)] | None = None
    on_fire: Literal["refuse", "ask", "warn"] = "refuse"
    enabled: bool = True

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            message = f"min must not be above max, {self.max}; no value would pass"
            raise ValueError(message)
        return self


UNGATED_SIGNAL = SignalSection(enabled=False)  # of a signal that a policy does not gate


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names of signals, the built-in ones in their order, then those of the user by name."""
    name_set = set(names)
    return (
        *(signal_name for signal_name in NAMES if signal_name in name_set),
        *sorted(name_set.difference(NAMES)),
    )


def _check_names(names: Iterable[str], requirement: str) -> None:
    """Stop where a text can name no signal.

    Whether there is one of that name, the trace or the machine knows.
    """
    for name in names:
        if not is_name(name):
            name_form = "small letters, digits and underscores, at most 40, a letter first"
            message = f"{requirement} ({name_form}), got {cut_value(repr(name))}; correct the name"
            raise ValueError(message)


def _known_signals(signals: dict[str, SignalSection]) -> dict[str, SignalSection]:
    """Gates on signals, bounds of the built-in ones within the range of their unit."""
    _check_names(signals, "signals must be named")
    for signal_name in in_order(signals.keys() & set(NAMES)):
        signal_unit = signal(signal_name).unit
        for bound_key in ("min", "max"):
            bound = getattr(signals[signal_name], bound_key)
            if bound is not None and not signal_unit.low <= bound <= signal_unit.high:
                range_text = f"[{signal_unit.low:g}, {signal_unit.high:g}]"
                message = (
                    f"{signal_name}.{bound_key} must lie in {range_text}, {bound:g} does not; "
                    f"it is {signal_unit.described}"
                )
                raise ValueError(message)
    return signals


SignalSections = Annotated[dict[StrictStr, SignalSection], AfterValidator(_known_signals)]


def _known_gates(
    gate_sections: dict[str, dict[str, bool | float]],
) -> dict[str, dict[str, bool | float]]:
    """User gates, checked against their registration as far as this process has it (rule S2.18)."""
    _check_names(gate_sections, "gates must be named")
    for gate_name, gate_section in gate_sections.items():
        for setting_key, setting in gate_section.items():
            if (setting_key == "enabled") is not isinstance(setting, bool) or not isfinite(setting):
                requirement = "must be a finite number, of enabled true or false"
                message = (
                    f"{gate_name}.{cut_value(setting_key)} {requirement}, got {setting!r}; "
                    "correct it"
                )
                raise ValueError(message)
        if section_fault := section_error(gate_name, gate_section):
            raise ValueError(section_fault)
    return gate_sections


GateSections = Annotated[
    dict[StrictStr, dict[StrictStr, StrictBool | StrictFloat]], AfterValidator(_known_gates)
]  # of the user, by name: `enabled` and thresholds
Cost = Annotated[float, _unit_field(COST)]


class LabelCosts(_Section):
    """What the outcomes of cases of one label cost (rule S6.7)."""

    answered_right: Cost
    answered_wrong: Cost
    refused: Cost
    asked_right: Cost
    asked_wrong: Cost


class CostsSection(_Section):
    """Costs by label and outcome (rule S6.7)."""

    ok: LabelCosts
    refuse: LabelCosts
    ambiguous: LabelCosts

    @property
    def matrix(self) -> FloatArray:
        """Cost by label and outcome, [3, 5]."""
        return np.array(
            [[getattr(getattr(self, label), outcome) for outcome in OUTCOMES] for label in LABELS]
        )


class PartSection(_ListSection):
    """What one signal adds to the logits of the classes (rule S2.17)."""

    center: Number
    scale: Annotated[float, Field(strict=True, ge=MIN_SCALE, le=MOST_WEIGHT, allow_inf_nan=False)]
    missing: Number
    weights: tuple[Number, Number, Number, Number]


ClassBias = tuple[Number, Number, Number, Number]
MAX_GROUPS = 10_000  # of a model
MAX_GROUP_NAME = 200  # characters of its name


class GroupSection(_ListSection):
    """Rule S2.20: what a case's group adds to the class logits, by the value of an attribute."""

    attribute: Annotated[StrictStr, Field(min_length=1, max_length=MAX_GROUP_NAME)]
    bias: Annotated[
        dict[Annotated[StrictStr, Field(min_length=1, max_length=MAX_GROUP_NAME)], ClassBias],
        Field(min_length=1, max_length=MAX_GROUPS),
    ]

    @property
    def table(self) -> GroupBias:
        """The biases as the algebra takes them, by name."""
        return GroupBias(self.attribute, tuple(sorted(self.bias.items())))


SHARE_TOLERANCE = 1e-3  # by which rounded shares may miss 1
LabelShare = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
LabelShares = tuple[LabelShare, LabelShare, LabelShare]


class MixSection(_ListSection):
    """Rule S6.15: shares of ok, refuse and ambiguous in the fitted cases and in traffic."""

    fitted: LabelShares
    traffic: LabelShares

    @field_validator("fitted", "traffic")
    @classmethod
    def _whole(cls, shares: LabelShares) -> LabelShares:
        if abs(sum(shares) - 1.0) > SHARE_TOLERANCE:
            message = f"shares of a mix must sum to 1, got {sum(shares):g}; fit again"
            raise ValueError(message)
        return shares


class ModelSection(_ListSection):
    """Rule S2.17: the multinomial logistic that `raglab.fit_decision` fits."""

    parts: Annotated[dict[StrictStr, PartSection], Field(max_length=MOST_PARTS)]
    bias: ClassBias
    asked_right: Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
    structure: Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
    fitted_on: StrictStr | None = None
    groups: Annotated[GroupSection | None, Field(exclude_if=lambda groups: groups is None)] = None
    mix: Annotated[MixSection | None, Field(exclude_if=lambda mix: mix is None)] = None

    @field_validator("parts")
    @classmethod
    def _known(cls, parts: dict[str, PartSection]) -> dict[str, PartSection]:
        _check_names(parts, "parts must name signals")
        return parts

    @cached_property
    def model(self) -> DecisionModel:
        """The model as the algebra takes it."""
        parts = (
            SignalPart(
                signal_name,
                part_section.center,
                part_section.scale,
                part_section.missing,
                part_section.weights,
            )
            for signal_name, part_section in sorted(self.parts.items())
        )
        group_bias = None if self.groups is None else self.groups.table
        class_bias: tuple[float, ...] = self.bias
        if self.mix is not None:
            class_bias = mixed_bias(class_bias, self.mix.fitted, self.mix.traffic)
        return DecisionModel(tuple(parts), class_bias, self.asked_right, self.structure, group_bias)


class DecisionSection(_Section):
    """Rules S2.16, S2.17: what decides; the costs that `expected_cost` minimises.

    Ratio: factor of wrong answers'.

    order: of the gates (rules S2.12, S2.16), those left out are off; None for the published one.
    """

    rule: Literal["chain", "expected_cost"]
    ratio: Annotated[float, _unit_field(RATIO)]
    costs: CostsSection
    model: ModelSection | None
    order: tuple[StrictStr, ...] | None

    @field_validator("order", mode="before")
    @classmethod
    def _ordered(cls, order: Any) -> Any:  # noqa: ANN401 - a list of YAML, or anything
        return tuple(order) if isinstance(order, list) else order

    @field_validator("order")
    @classmethod
    def _possible(cls, order: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if order is not None:
            check_order(order)
        return order

    @model_validator(mode="after")
    def _decides(self) -> Self:
        if self.rule == EXPECTED_COST and self.model is None:
            message = "rule expected_cost needs a model; fit one with raglab.fit_decision"
            raise ValueError(message)
        return self


MAX_PATTERN_LENGTH = 2_000  # characters
MAX_ENTITY_NAME = 200  # characters of an entity's name


class PatternLists(_ListSection):
    """Case-insensitive linear-time regular expressions (rules S2.1, S2.5, S3.3)."""

    deny: tuple[Stated, ...]
    allow: tuple[Stated, ...]
    generic: tuple[Stated, ...]
    facet: tuple[Stated, ...]
    compare: tuple[Stated, ...]
    coverage_generic: tuple[Stated, ...]
    entities: dict[StrictStr, tuple[Stated, ...]]
    document_entities: dict[StrictStr, tuple[Stated, ...]]

    @cached_property
    def digest(self) -> str:
        """Hash of the patterns (rule S0.6).

        A section is replaced as a whole, so that it never goes stale.
        """
        return patterns_hash(self)

    @model_validator(mode="after")
    def _usable(self) -> Self:
        """Patterns of all lists against one budget.

        A thousand small bombs are no larger than a big one.
        """
        spent_budget = NOTHING_SPENT
        for name in (*COUNTED_LISTS, "entities", "document_entities"):
            listed_patterns = getattr(self, name)
            try:
                spent_budget = check_patterns(_listed_patterns(listed_patterns), spent_budget)
                unknown_entities = [
                    name for name in self.document_entities if name not in self.entities
                ]
                if unknown_entities and name == "document_entities":
                    requirement = (
                        f"document_entities must be among entities, {unknown_entities[0]!r} is not"
                    )
                    raise ValueError(f"{requirement}; add it there, or correct the name")  # noqa: EM102, TRY003, TRY301
            except ValueError as error:  # of that list, as errors of its own fields are
                problem = PydanticCustomError(
                    "pattern", "{rule}", {"rule": str(error).removesuffix(".")}
                )
                error_details = InitErrorDetails(type=problem, loc=(name,), input=listed_patterns)
                raise ValidationError.from_exception_data(
                    type(self).__name__, [error_details]
                ) from None
        return self


def _listed_patterns(given_patterns: Any) -> list[Pattern]:  # noqa: ANN401 - a list, or lists by name
    """Patterns of a list, or all aliases of entities by name, as many and as long as may be.

    Raises:
      ValueError: too many, one that is empty or too long, or a name that is too long.
    """
    is_by_name = isinstance(given_patterns, dict)
    patterns = [*chain.from_iterable(given_patterns.values())] if is_by_name else [*given_patterns]
    pattern_parts = [
        *chain.from_iterable(
            [pattern] if isinstance(pattern, str) else pattern or [""] for pattern in patterns
        )
    ]
    n_patterns = max(len(given_patterns), len(patterns))
    longest_pattern = max(map(len, pattern_parts), default=0)
    longest_name = max(map(len, given_patterns), default=0) if is_by_name else 0
    if n_patterns > MAX_PATTERNS:
        requirement = (
            f"a list must hold at most {MAX_PATTERNS} patterns, {n_patterns} are more; join "
            "some by |"
        )
        if is_by_name:
            requirement = (
                f"entities must be at most {MAX_PATTERNS} with all their aliases, {n_patterns} "
                "are more; "
                "state those of documents in their metadata"
            )
    elif not all(pattern_parts):
        requirement = "a pattern must not be empty; remove it"
    elif longest_pattern > MAX_PATTERN_LENGTH:
        requirement = (
            f"a pattern must have at most {MAX_PATTERN_LENGTH} characters, {longest_pattern} "
            "are more"
        )
    elif longest_name > MAX_ENTITY_NAME:
        requirement = (
            f"an entity's name must have at most {MAX_ENTITY_NAME} characters, {longest_name} "
            "are more"
        )
    else:
        return patterns
    raise ValueError(requirement)
