"""The policy (algebra): every threshold, switch and pattern as one validated value with a policy_id (S0.5, S0.8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from importlib.resources import files
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    TypeAdapter,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from raglab import gates
from raglab.arms import ARMS, CHOOSERS
from raglab.canonical import canonical_json, digest
from raglab.characters import visible
from raglab.expected_cost import DecisionModel, SignalPart
from raglab.fusion import Model, Part
from raglab.gate_order import check_order
from raglab.metrics.costs import LABELS, OUTCOMES
from raglab.own_gates import REGISTERED, check_section
from raglab.patterns import Pattern, Patterns, matches, patterns_hash
from raglab.signal_gates import OWN
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

EXPECTED_COST = "expected_cost"


def _unit_field(unit: Unit) -> Any:  # noqa: ANN401 - a field of pydantic
    """Range of a unit, and what a message says of it."""
    return Field(ge=unit.low, le=unit.high, allow_inf_nan=None if unit.whole else False, description=unit.described)


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

Scale = Annotated[float, Field(gt=0.0, le=1_000.0, description="a count that brings others near [0, 1]")]

Stated = StrictStr | tuple[StrictStr, ...]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ContextSection(_Section):
    """Which hits go to the answer (rules S1.2, S1.3)."""

    final_k: Count
    order: Literal["rank", "l2"]


def _section_of(gate: gates.Gate) -> Any:  # noqa: ANN401 - a model
    """Section of a gate: its switch, and a number a threshold within the range of its unit."""
    fields: dict[str, Any] = {"enabled": (bool, ...)}
    for one in gate.thresholds:
        kind: Any = Annotated[int if one.whole else float, _unit_field(one.unit)]
        fields[one.key] = (kind | None if one.nullable else kind, ...)
    return create_model(gate.name.title(), __base__=_Section, __doc__=f"Rule {gate.rule}.", **fields)


class Gap(_section_of(gates.gate_by_name("gap"))):  # type: ignore[misc]
    """Rule S2.4."""

    near_pages: Annotated[int, Field(ge=0, le=1_000)]


class Coverage(_section_of(gates.gate_by_name("coverage"))):  # type: ignore[misc]
    """Rule S2.5. min_hits: chosen hits that must hold each entity."""

    min_hits: Annotated[int, Field(ge=1, le=100)]


class Polyline(_Section):
    """A signal's share of the logit: knots ascending, values never falling."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)  # YAML's lists become tuples

    x: tuple[float, ...]
    y: tuple[float, ...]

    @model_validator(mode="after")
    def _monotone(self) -> Self:
        if not self.x or len(self.x) != len(self.y) or not all(map(isfinite, (*self.x, *self.y))):
            msg = "x and y must be as many finite numbers, at least one; fit the gate again"
            raise ValueError(msg)
        if any(one >= two for one, two in pairwise(self.x)) or any(one > two for one, two in pairwise(self.y)):
            msg = "x must ascend and y must not fall, a surer signal never lowers the probability; fit the gate again"
            raise ValueError(msg)
        return self


class FusionSection(_section_of(gates.gate_by_name("fused"))):  # type: ignore[misc]
    """Rule S2.14."""

    bias: Annotated[float, Field(allow_inf_nan=False)]
    fitted_on: StrictStr | None
    parts: dict[StrictStr, Polyline]

    @model_validator(mode="after")
    def _usable(self) -> Self:
        _check_names(self.parts, "parts must name signals")
        if self.enabled and not self.parts:
            msg = "a fused gate without parts refuses everything; fit one (raglab.fuse) or switch it off"
            raise ValueError(msg)
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
        if not all(0.0 <= value <= 1.0 for value in self.y):
            msg = "y must lie in [0, 1], it is a probability; fit the calibration again"
            raise ValueError(msg)
        return self


class Confidence(_section_of(gates.gate_by_name("confidence"))):  # type: ignore[misc]
    """Rule S2.8."""

    blend: Share
    min_texts: Count
    fallback: Literal["hybrid", "cosine"]
    calibration: Calibration


class StrategySection(_Section):
    """Rules S4.1, S4.5, S4.7: the arm that answers live, or what chooses it; and what makes arms available."""

    arm: ArmName
    min_graph: Share
    min_table: Share
    min_complexity: Share
    words_scale: Scale
    entities_scale: Scale


class GenerationSection(_section_of(gates.gate_by_name("generation"))):  # type: ignore[misc]
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


class SignalSection(_Section):
    """Rule S2.15: bounds of any signal; a value at its bound passes."""

    min: Annotated[float, Field(allow_inf_nan=False)] | None = None
    max: Annotated[float, Field(allow_inf_nan=False)] | None = None
    on_fire: Literal["refuse", "ask", "warn"] = "refuse"
    enabled: bool = True

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            msg = f"min must not be above max, {self.max}; no value would pass"
            raise ValueError(msg)
        return self


UNSTATED = SignalSection(enabled=False)  # of a signal that a policy does not gate


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names of signals, the built-in ones in their order, then those of the user by name."""
    named = set(names)
    return (*(name for name in NAMES if name in named), *sorted(named.difference(NAMES)))


def _check_names(names: Iterable[str], rule: str) -> None:
    """Stop where a text can name no signal; whether there is one of that name, the trace or the machine knows."""
    for name in names:
        if not is_name(name):
            what = "small letters, digits and underscores, at most 40, a letter first"
            msg = f"{rule} ({what}), got {_cut(repr(name))}; correct the name"
            raise ValueError(msg)


def _known_signals(signals: dict[str, SignalSection]) -> dict[str, SignalSection]:
    """Gates on signals, bounds of the built-in ones within the range of their unit."""
    _check_names(signals, "signals must be named")
    for name, section in signals.items():
        if name not in NAMES:
            continue
        unit = signal(name).unit
        for key in ("min", "max"):
            bound = getattr(section, key)
            if bound is not None and not unit.low <= bound <= unit.high:
                within = f"[{unit.low:g}, {unit.high:g}]"
                msg = f"{name}.{key} must lie in {within}, {bound:g} does not; it is {unit.described}"
                raise ValueError(msg)
    return signals


SignalSections = Annotated[dict[StrictStr, SignalSection], AfterValidator(_known_signals)]


def _known_gates(stated: dict[str, dict[str, bool | float]]) -> dict[str, dict[str, bool | float]]:
    """Gates of the user, checked against their registration as far as this process has it (rule S2.18)."""
    for name, section in stated.items():
        if not is_name(name):
            what = "small letters, digits and underscores, at most 40, a letter first"
            msg = f"gates must be named ({what}), got {_cut(repr(name))}; correct the name"
            raise ValueError(msg)
        for key, value in section.items():
            if (key == "enabled") is not isinstance(value, bool) or not isfinite(value):
                msg = f"{name}.{_cut(key)} must be a finite number, of enabled true or false, got {value!r}; correct it"
                raise ValueError(msg)
        if wrong := check_section(name, section):
            raise ValueError(wrong)
    return stated


GateSections = Annotated[
    dict[StrictStr, dict[StrictStr, StrictBool | float]], AfterValidator(_known_gates)
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
    def matrix(self) -> NDArray[np.float64]:
        """Cost by label and outcome, [3, 5]."""
        return np.array([[getattr(getattr(self, label), name) for name in OUTCOMES] for label in LABELS])


Finite = Annotated[float, Field(allow_inf_nan=False)]


class PartSection(_Section):
    """What one signal adds to the logits of the classes (rule S2.17)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)  # YAML's lists become tuples

    center: Finite
    scale: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    missing: Finite
    weights: tuple[Finite, Finite, Finite, Finite]


class ModelSection(_Section):
    """Rule S2.17: the multinomial logistic that `raglab.fit_decision` fits."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)  # YAML's lists become tuples

    parts: dict[StrictStr, PartSection]
    bias: tuple[Finite, Finite, Finite, Finite]
    asked_right: Share
    structure: Annotated[str, Field(pattern="^[0-9a-f]{12}$")]
    fitted_on: StrictStr | None = None

    @field_validator("parts")
    @classmethod
    def _known(cls, parts: dict[str, PartSection]) -> dict[str, PartSection]:
        _check_names(parts, "parts must name signals")
        return parts

    @cached_property
    def model(self) -> DecisionModel:
        """The model as the algebra takes it."""
        parts = (SignalPart(name, p.center, p.scale, p.missing, p.weights) for name, p in sorted(self.parts.items()))
        return DecisionModel(tuple(parts), self.bias, self.asked_right, self.structure)


class DecisionSection(_Section):
    """Rules S2.16, S2.17: what decides; the costs that `expected_cost` minimises; ratio: factor of wrong answers'.

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
            msg = "rule expected_cost needs a model; fit one with raglab.fit_decision"
            raise ValueError(msg)
        return self


MOST_PATTERNS = 5_000  # of a list, and of all entities with their aliases: each is looked for in every chunk
LONGEST_PATTERN = 2_000  # characters
LONGEST_NAME = 200  # characters of an entity's name


class PatternLists(_Section):
    """Case-insensitive linear-time regular expressions (rules S2.1, S2.5, S3.3)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)  # YAML's lists become tuples

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
        """Hash of the patterns (rule S0.6); a section is replaced as a whole, so that it never goes stale."""
        return patterns_hash(self)

    @field_validator("deny", "allow", "generic", "facet", "compare", "coverage_generic")
    @classmethod
    def _compile(cls, patterns: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
        if len(patterns) > MOST_PATTERNS:
            msg = f"a list must hold at most {MOST_PATTERNS} patterns, {len(patterns)} are more; join some by |"
            raise ValueError(msg)
        for pattern in patterns:
            parts = (pattern,) if isinstance(pattern, str) else pattern
            if not parts or not all(parts):
                msg = "a pattern must not be empty, it would match every text; remove it"
                raise ValueError(msg)
            for part in parts:
                if len(part) > LONGEST_PATTERN:
                    msg = f"a pattern must have at most {LONGEST_PATTERN} characters, {len(part)} are more; split it"
                    raise ValueError(msg)
                matches(part, "")
        return patterns

    @field_validator("entities", "document_entities")
    @classmethod
    def _compile_entities(cls, entities: dict[str, tuple[Pattern, ...]]) -> dict[str, tuple[Pattern, ...]]:
        n_aliases = sum(map(len, entities.values()))
        if max(n_aliases, len(entities)) > MOST_PATTERNS:
            msg = (
                f"entities must be at most {MOST_PATTERNS} with all their aliases, {max(n_aliases, len(entities))} are "
                "more; state those of documents in their metadata"
            )
            raise ValueError(msg)
        for name, aliases in entities.items():
            if len(name) > LONGEST_NAME:
                msg = f"an entity's name must have at most {LONGEST_NAME} characters, {len(name)} are more; shorten it"
                raise ValueError(msg)
            cls._compile(aliases)
        return entities

    @model_validator(mode="after")
    def _known_entities(self) -> Self:
        unknown = next((name for name in self.document_entities if name not in self.entities), None)
        if unknown is not None:
            msg = f"document_entities must be among entities, {unknown!r} is not; add it there, or correct the name"
            raise ValueError(msg)
        return self


class Structure(NamedTuple):
    """What decides which hits a group or an option holds: measured tables depend on it, thresholds do not."""

    patterns_hash: str
    final_k: int
    order: str
    strict: bool
    entity_extractor: bool
    max_options: int
    near_pages: int
    min_hits: int
    min_texts: int
    fused: Model | None
    calibration: tuple[tuple[float, ...], tuple[float, ...]] | None
    decision: DecisionModel | None
    fallback: tuple[tuple[float, ...], tuple[float, ...]] | None


@cache
def _stated() -> Mapping[str, Any]:
    return dict(yaml.safe_load(files("raglab").joinpath("defaults.yaml").read_text(encoding="utf-8")))


@cache
def _published_defaults() -> Mapping[str, Any]:
    """Published values: those of `defaults.yaml`; of a gate that has none there, off and as its row says."""
    rows = dict(_stated())
    for gate in gates.GATES:
        if gate.switch and gate.name not in rows:
            rows[gate.name] = {"enabled": False} | {one.key: one.default for one in gate.thresholds}
    return rows


GENERIC = "generic"  # the pack of no trade
_NOT_HASHED = {"certificate", "notes", "pack", "pack_hash"}  # no threshold, switch or pattern

# Keys that came after version 1. Where one stands at its default it is left out of the canonical JSON, so that adding
# a key changes the id of no policy (rule S0.8). A key never leaves this list.
ADDED = (
    "gap.near_pages",
    "confidence.min_texts",
    "confidence.fallback",
    "confidence.calibration",
    "strategy.words_scale",
    "strategy.entities_scale",
    "decision.rule",
    "decision.ratio",
    "decision.costs",
    "decision.model",
    "decision.order",
    "coverage.min_hits",
    "patterns.document_entities",
)
ADDED_SECTIONS = ("decision", "signals", "gates")  # left out where nothing of them is left


def _canonical_rows(rows: dict[str, Any]) -> dict[str, Any]:
    """Sections of a policy without the added keys, and sections of added gates, that stand at their default."""
    published = _published_defaults()
    for name in published.keys() - _stated().keys():
        if rows[name] == published[name]:
            del rows[name]
    for path in ADDED:
        section, _, key = path.partition(".")
        if section in rows and rows[section].get(key) == published[section][key]:
            rows[section].pop(key, None)
    for section in ADDED_SECTIONS:
        if not rows[section]:
            del rows[section]
    return rows


_MORE = {
    "gap": Gap,
    "coverage": Coverage,
    "confidence": Confidence,
    "fused": FusionSection,
    "generation": GenerationSection,
}  # gates with keys that are no thresholds
_SECTIONS = {gate.name: _MORE.get(gate.name) or _section_of(gate) for gate in gates.GATES if gate.switch}
# Sections stand in a written policy as they do in `defaults.yaml`; what they hold is stated below or by the gates.
_fields: dict[str, Any] = {name: (_SECTIONS.get(name, Any), ...) for name in _published_defaults()}
_Sections = create_model("_Sections", **_fields)


class PolicyData(_Sections):  # type: ignore[misc, valid-type]
    """All thresholds, switches and patterns together; frozen, changed by `replace`.

    Beside what is stated here it has a section a gate (`l2`, `similarity`, …): `enabled` and the gate's thresholds.

    pack: what the trade calls things, the name of a bundled pack or a path (rule S5.11). pack_hash: of its content,
    None of the generic pack and where it was not read; a policy file that states it takes no other content.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    chosen: ContextSection
    strategy: StrategySection
    refine: Refine
    resolver: Resolver
    decision: DecisionSection
    signals: SignalSections
    gates: GateSections
    patterns: PatternLists
    refusal_message: Annotated[str, Field(min_length=1)]
    pack: Annotated[str, Field(min_length=1, exclude_if=lambda name: name == GENERIC)] = GENERIC
    pack_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{12}$", exclude_if=lambda stated: stated is None)] = None
    certificate: dict[str, Any] | None = None
    notes: str | None = None

    @field_validator("certificate")
    @classmethod
    def _of_json(cls, certificate: dict[str, Any] | None) -> dict[str, Any] | None:
        if not _is_json(certificate):
            msg = "a certificate must hold texts, finite numbers, lists and mappings of texts to them"
            raise ValueError(msg)
        return certificate

    @classmethod
    def from_mapping(cls, stated: object = None, where: str = "policy") -> Self:
        """Policy of what a file states, the rest filled in from the published defaults.

        Args:
          stated: nested mapping, section -> key -> value. where: named in errors.

        Raises:
          ValueError: an unknown key, a value out of range or a bad pattern; names key, value and rule.
        """
        if stated is not None and not isinstance(stated, Mapping):
            msg = f"{where}: a policy must be a mapping of sections, got {type(stated).__name__}; see `raglab policy`."
            raise ValueError(msg)
        rows = _merge_sections(_published_defaults(), stated or {})
        return _validate_section(lambda: cls.model_validate(rows), where)

    def replace(self, *changes: Any) -> Self:  # noqa: ANN401 - values of any field
        """Policy with some values changed: `policy.replace("l2.max_l2", 0.7, "gap.enabled", False)`.

        Raises:
          ValueError: an odd number of arguments, an unknown path, or a value out of range.

        A change of any threshold, switch or pattern drops the certificate.
        """
        if len(changes) % 2:
            rule = "replace takes pairs of path and value"
            msg = f"{rule}, got {len(changes)} arguments; write replace('l2.max_l2', 0.7)."
            raise ValueError(msg)
        touched: dict[str, dict[str, Any]] = {}
        whole: dict[str, Any] = {}
        for path, value in zip(changes[::2], changes[1::2], strict=True):
            self.value(path)
            name, _, key = path.partition(".")
            if key:
                _set_nested(touched.setdefault(name, _rows_of(getattr(self, name))), key, value)
            else:
                whole[name] = value
        if "pack" in whole:
            whole.setdefault("pack_hash", None)  # it is for the pack that was read
        keeps = "certificate" in whole or touched.keys() | whole.keys() <= {"notes"}
        certificate = {} if keeps else {"certificate": None}  # it is for what it was earned with
        if whole:
            rows = dict(self) | whole | touched | certificate
            return _validate_section(lambda: type(self).model_validate(rows), "replace")
        sections = {
            name: _validate_section(partial(_section_validator(name), rows), "replace", name)
            for name, rows in touched.items()
        }
        return self.model_copy(update=sections | certificate)

    def value(self, path: str) -> Any:  # noqa: ANN401 - values of any field
        """Value at a path such as `l2.max_l2`."""
        found: Any = self
        for part in path.split("."):
            if found is self.signals and is_name(part):  # a signal that the policy does not gate has no bounds
                found = found.get(part, UNSTATED)
                continue
            if found is self.gates:
                return self._own_value(path)
            if part not in getattr(type(found), "model_fields", {}):
                raise ValueError(_no_such_path(path))
            found = getattr(found, part)
        return found

    def _own_value(self, path: str) -> Any:  # noqa: ANN401 - a switch, a number or None
        """Value of a path below `gates`: as stated, else as the gate is registered."""
        name, _, key = path.removeprefix(f"{OWN}.").partition(".")
        if not is_name(name) or (key and not is_name(key)):
            raise ValueError(_no_such_path(path))
        stated = self.gates.get(name)
        if not key:
            return stated or {}
        if key == "enabled":
            return stated is not None and stated.get(key, True)
        rows = {one.key: one.default for one in REGISTERED[name].thresholds} if name in REGISTERED else {}
        return (stated or {}).get(key, rows.get(key))

    @property
    def policy_id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON without certificate, notes, pack (rules S0.5, S0.8).

        The path of a pack is one of a machine; its content is known by its own hash, which trace, index and log keep.
        """
        rows = _canonical_rows(self.model_dump(mode="json", exclude=_NOT_HASHED))
        rows["patterns"]["entities"] = list(rows["patterns"]["entities"].items())  # their order is that of reasons
        return digest(canonical_json(rows), 12)

    @property
    def pattern_lists(self) -> Patterns:
        """The patterns as the measurements take them."""
        return Patterns(**{name: getattr(self.patterns, name) for name in Patterns._fields})

    @property
    def structure(self) -> Structure:
        """What the measured tables depend on."""
        chosen, resolver, knots, confidence = self.chosen, self.resolver, self.generation.calibration, self.confidence
        return Structure(
            self.patterns.digest,
            chosen.final_k,
            chosen.order,
            resolver.strict,
            resolver.entity_extractor,
            resolver.max_options,
            self.gap.near_pages,
            self.coverage.min_hits,
            confidence.min_texts,
            self.fused_model,
            None if knots is None else (knots.x, knots.y),
            self.decision.model.model if self.decision.rule == EXPECTED_COST and self.decision.model else None,
            (confidence.calibration.x, confidence.calibration.y) if confidence.fallback == "cosine" else None,
        )

    @property
    def fused_model(self) -> Model | None:
        """Model of the fused gate, where there is one."""
        parts = tuple(Part(name, line.x, line.y) for name, line in sorted(self.fused.parts.items()))
        return Model(self.fused.bias, parts) if parts else None

    @property
    def manifest(self) -> dict[str, Any]:
        """Path -> value of everything but patterns, fitted curves, certificate and notes, as a log has it."""
        whole = {"patterns": True, **dict.fromkeys(_NOT_HASHED, True)}
        curves = {"fused": {"parts"}, "generation": {"calibration"}, "confidence": {"calibration"}}
        left_out: Any = {**whole, **curves, "decision": {"model"}}
        return dict(_leaves(_canonical_rows(self.model_dump(mode="json", exclude=left_out))))


def check_pack(stored: object, given: str | None, what: str, remedy: str) -> None:
    """Stop where something was made with one pack and is used with another (rule S5.11).

    Args:
      stored, given: hashes; none where no pack is known or named, which fits any. what: was made with `stored`.

    Raises:
      ValueError: two hashes that differ.

    Example:
      >>> check_pack(None, "0c1d2e3f4a5b", "the trace", "build it again")
    """
    if stored and given and stored != given:
        msg = f"{what} must be used with the pack that it was made with, {stored}, got {given}; {remedy}."
        raise ValueError(msg)


def _merge_sections(base: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    rows = dict(base)
    for key, value in stated.items():
        deep = isinstance(value, Mapping) and isinstance(rows.get(key), Mapping)
        deep = deep and key not in {"entities", "document_entities"}
        rows[key] = _merge_sections(rows[key], value) if deep else value
    return rows


def _rows_of(section: Any) -> dict[str, Any]:  # noqa: ANN401 - a model or a mapping
    """Fields of a section; what it has worked out of them is left behind."""
    if isinstance(section, Mapping):
        return dict(section)
    return {key: getattr(section, key) for key in type(section).model_fields}


def _set_nested(rows: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401 - values of any field
    """Set what stands at `key` or `key.key` of a section; sections on the way are copied, the rest is shared."""
    first, _, rest = key.partition(".")
    if not rest:
        rows[first] = value
        return
    inner = _rows_of(rows.get(first, {}))
    _set_nested(inner, rest, value)
    rows[first] = inner


@cache
def _section_validator(name: str) -> Callable[[Any], Any]:
    """What validates a section of a policy."""
    kinds: dict[str, Any] = {"signals": SignalSections, OWN: GateSections}
    kind: Any = kinds[name] if name in kinds else PolicyData.model_fields[name].annotation
    return TypeAdapter(kind).validate_python


def _leaves(rows: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    """Path and value of everything in nested sections."""
    for key, value in rows.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _no_such_path(path: str) -> str:
    section, _, name = path.partition(".")
    if section == OWN and name:
        return f"{_cut(path)!r} is no threshold of a gate; write gates.<name>.<threshold>, as it is registered."
    if section == "signals" and name:
        keys = ", ".join(SignalSection.model_fields)
        if is_name(name.partition(".")[0]):
            return f"{path!r} is no field of a signal's gate; write signals.<name>.<key> with one of {keys}."
        named = f"small letters, digits and underscores for the name, and one of {keys}"
        return f"{_cut(path)!r} names no signal; write signals.<name>.<key> with {named}."
    return f"{path!r} is no field of a policy; write section.key, as in l2.max_l2 (all of them: `Policy.manifest`)."


def _validate_section(make: Callable[[], Any], where: str, section: str | None = None) -> Any:  # noqa: ANN401 - a model
    try:
        return make()
    except ValidationError as error:
        raise ValueError(_message(error, where, section)) from None


def _message(error: ValidationError, where: str, section: str | None = None) -> str:
    def line(problem: Mapping[str, Any]) -> str:
        place = problem["loc"] if section is None else (section, *problem["loc"])
        path = _cut(".".join(str(part) for part in place))
        if problem["type"] == "extra_forbidden":
            return f"{path}: unknown key; write one of defaults.yaml's keys."
        rule = _cut(str(problem["msg"]).removeprefix("Value error, "), 4 * _SHOWN)
        return f"{path}: {rule[0].lower() + rule[1:]}, got {_cut(repr(problem['input']))}{_threshold_unit(place)}."

    problems = error.errors()
    more = f" And {len(problems) - _PROBLEMS} more." if len(problems) > _PROBLEMS else ""
    return visible(f"{where}: " + " ".join(line(problem) for problem in problems[:_PROBLEMS])) + more


def _is_json(value: object) -> bool:
    """Whether a value is the same after it was written and read again."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(key) and _is_json(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, str):
        return not any("\ud800" <= one <= "\udfff" for one in value)  # halves of surrogate pairs
    return value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


_PROBLEMS, _SHOWN = 5, 120  # problems that a message names; characters of a key or a value


def _cut(text: str, most: int = _SHOWN) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


def _threshold_unit(location: Iterable[Any]) -> str:
    section, *rest = location
    model = PolicyData.model_fields.get(str(section))
    fields = getattr(model.annotation, "model_fields", {}) if model else {}
    info = fields.get(str(rest[0])) if rest else None
    if info is None:
        return ""
    text = info.description or next(
        (m.description for m in getattr(info.annotation, "__metadata__", ()) if m.description), None
    )
    return f"; it is {text}" if text else ""
