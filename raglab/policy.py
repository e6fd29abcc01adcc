"""The policy (algebra): thresholds, switches and patterns as a validated value (S0.5, S0.8).

It holds every one of them, and has a policy_id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from copy import deepcopy
from functools import cache, cached_property, partial
from importlib.resources import files
from operator import not_
from typing import Annotated, Any, Literal, NamedTuple, Self

import yaml
from pydantic import (
    ConfigDict,
    Field,
    StrictStr,
    TypeAdapter,
    ValidationError,
    create_model,
    field_validator,
)

from raglab import gates
from raglab.arguments.user_warnings import IdleThresholdWarning, is_called_inside, warn_user
from raglab.gating.expected_cost import DecisionModel
from raglab.gating.fused_gate import Model, Part
from raglab.gating.own_margins import USER_GATES_SECTION
from raglab.policy_parts.acting import check_order_names, threshold_need
from raglab.policy_parts.own_gates import REGISTERED_GATES
from raglab.policy_parts.patterns import Patterns
from raglab.policy_parts.sections import (
    EXPECTED_COST,
    SHOWN_CHARACTERS,
    UNGATED_SIGNAL,
    Confidence,
    ContextSection,
    Coverage,
    DecisionSection,
    FusionSection,
    Gap,
    GateSections,
    GenerationSection,
    PatternLists,
    Refine,
    Resolver,
    SignalSections,
    StrategySection,
    cut_value,
    in_order,
    section_of,
)
from raglab.signals import (
    is_name,
)
from raglab.values import SCHEMA_VERSION, Knots, refuse
from raglab.words.canonical import canonical_json, digest, merged_rows
from raglab.words.characters import visible
from raglab.words.html_display import Cell, Fold
from raglab.words.results import Shown, Summary


class Structure(NamedTuple):
    """Settings that determine which hits a group or an option holds.

    Measured tables depend on them, not on thresholds.

    Attributes:
      patterns_hash: of the policy's patterns.
      final_k: hits that an answer rests on.
      order: of the hits.
      strict: whether vendor and version count in a signature.
      entity_extractor: whether the resolver uses the entities of the query.
      max_options: most options to ask back with.
      near_pages: pages that count as near.
      min_hits: chosen hits that must hold each entity (rule S2.5).
      min_texts: different texts over which equal raw scores say nothing (rule S2.8).
      fused: model of the fused gate, or None.
      calibration: knots of the generator's calibrated confidence, or None.
      decision: model of the decision by expected cost, or None.
      fallback: knots of the calibrated cosine, or None.
      document_identity: name of a document in a signature.
    """

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
    calibration: Knots | None
    decision: DecisionModel | None
    fallback: Knots | None
    document_identity: str

    def __repr__(self) -> str:
        """Fields by name.

        An identity of documents that is the default is left out, as of a policy_id (rule S0.8).

        Fingerprints of traces with answers are made of this text.
        """
        field_values = self._asdict()
        if self.document_identity == DEFAULT_IDENTITY:
            del field_values["document_identity"]
        return (
            f"{type(self).__name__}("
            f"{', '.join(f'{field_name}={value!r}' for field_name, value in field_values.items())})"
        )


DEFAULT_IDENTITY = "path"  # of documents, `resolver.document_identity` of defaults.yaml


@cache
def _bundled_defaults() -> Mapping[str, Any]:
    return dict(
        yaml.safe_load(files("raglab").joinpath("defaults.yaml").read_text(encoding="utf-8"))
    )


@cache
def _published_defaults() -> Mapping[str, Any]:
    """Published values: those of `defaults.yaml`.

    Of a gate that has none there, off and as its row says.
    """
    published_sections = dict(_bundled_defaults())
    for gate in gates.GATES:
        if gate.switch and gate.name not in published_sections:
            published_sections[gate.name] = {"enabled": False} | {
                threshold.key: threshold.default for threshold in gate.thresholds
            }
    return published_sections


GENERIC_PACK = "generic"  # the pack of no trade
# nothing that decides
_LEARNED_FIELDS = {
    "tuned_on",
    "tuned_scores",
    "learned_cases",
}  # of the cases that chose its values
_NOT_HASHED = {"certificate", "notes", "pack", "pack_hash", *_LEARNED_FIELDS}

USER_SECTIONS = ("signals", USER_GATES_SECTION)  # of gates of the user, by name
# Lists of patterns, fitted curves and models: a difference in them is one difference.
WHOLE_VALUES = frozenset(
    {
        *(f"patterns.{name}" for name in PatternLists.model_fields),
        "fused.parts",
        "decision.model",
        "generation.calibration",
        "confidence.calibration",
    }
)

# Keys that came after version 1. Where one stands at its default it is left out of the canonical
# JSON, so that adding a key changes the id of no policy (rule S0.8). A key never leaves this list.
ADDED_KEYS = (
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
    "resolver.document_identity",
)
ADDED_SECTIONS = ("decision", "signals", "gates")  # left out where nothing of them is left


def _canonical_rows(sections: dict[str, Any]) -> dict[str, Any]:
    """Sections of a policy without added keys, and added gates' sections, that are at default."""
    published_sections = _published_defaults()
    for added_gate in published_sections.keys() - _bundled_defaults().keys():
        if sections[added_gate] == published_sections[added_gate]:
            del sections[added_gate]
    for added_path in ADDED_KEYS:
        section_name, _, field_key = added_path.partition(".")
        if (
            section_name in sections
            and sections[section_name].get(field_key) == published_sections[section_name][field_key]
        ):
            sections[section_name].pop(field_key, None)
    for section_name in ADDED_SECTIONS:
        if not sections[section_name]:
            del sections[section_name]
    return sections


_CUSTOM_SECTIONS = {
    "gap": Gap,
    "coverage": Coverage,
    "confidence": Confidence,
    "fused": FusionSection,
    "generation": GenerationSection,
}  # gates with keys that are no thresholds
_GATE_SECTIONS = {
    gate.name: _CUSTOM_SECTIONS.get(gate.name) or section_of(gate)
    for gate in gates.GATES
    if gate.switch
}
# Sections stand in a written policy as they do in `defaults.yaml`; what they hold is stated below
# or by the gates.
_section_fields: dict[str, Any] = {
    name: (_GATE_SECTIONS.get(name, Any), ...) for name in _published_defaults()
}
_Sections = create_model("_Sections", **_section_fields)


MAX_LEARNED_SETS = 100  # of cases that parts of a policy learned from
_MAX_CODE_CHARACTERS = 2**18  # characters of a set: 32,768 questions


class PolicyData(Shown, _Sections):  # type: ignore[misc, valid-type]
    """All thresholds, switches and patterns together; frozen, changed by `replace`.

    It also has a section a gate (`l2`, `similarity`, …): `enabled` and the gate's thresholds.

    Attributes:
      pack: words of the trade: the name of a bundled pack or a path (rule S5.11).
      chosen: hits that are chosen.
      strategy: arm that answers.
      refine: loop of refinements.
      resolver: rules and thresholds of the resolver.
      decision: decision by expected cost.
      signals: gates on signals, by name.
      gates: gates of the user, by name.
      patterns: lists of patterns.
      refusal_message: text of a refusal.
      pack_hash: of its content, None of the generic pack and where it was not read; a policy file
        that states it accepts no other content.
      tuned_on: hash of the cases on which its values were chosen by a study.
      tuned_scores: kind of the scores that these cases had where they are of another system than
        raglab's retrieval (`trace_from_frame`); such a policy opens no `System`.
      learned_cases: codes of the questions that a part of it learned from, by the hash of the set,
        see `raglab.decision.learned_cases`. None of the three is part of the id.
      certificate: of this policy, or None.
      notes: of the user.
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
    refusal_message: Annotated[StrictStr, Field(min_length=1)]
    pack: Annotated[
        StrictStr, Field(min_length=1, exclude_if=lambda name: name == GENERIC_PACK)
    ] = GENERIC_PACK
    pack_hash: Annotated[str | None, Field(pattern="^[0-9a-f]{12}$", exclude_if=not_)] = None
    tuned_on: Annotated[str | None, Field(pattern="^[0-9a-f]{16}$", exclude_if=not_)] = None
    tuned_scores: Annotated[
        str | None,
        Field(min_length=1, max_length=80, exclude_if=not_),
    ] = None
    learned_cases: Annotated[
        dict[
            Annotated[StrictStr, Field(pattern="^[0-9a-f]{16}$")],
            Annotated[
                StrictStr, Field(pattern="^(?:[A-Za-z0-9+/]{8})+$", max_length=_MAX_CODE_CHARACTERS)
            ],
        ],
        Field(default_factory=dict, exclude_if=not_, max_length=MAX_LEARNED_SETS),
    ]
    certificate: dict[str, Any] | None = None
    notes: StrictStr | None = None

    @field_validator("certificate", "notes")
    @classmethod
    def _of_json(cls, json_value: Any) -> Any:  # noqa: ANN401 - of either
        if not _is_json(json_value):
            message = (
                "it must hold Unicode texts, finite numbers of 64 bits, lists and mappings of "
                "texts to them; correct it"
            )
            raise ValueError(message)
        return json_value

    @field_validator("certificate")
    @classmethod
    def _of_known_schema(cls, certificate: dict[str, Any] | None) -> dict[str, Any] | None:
        schema_version = (certificate or {}).get("schema_version", SCHEMA_VERSION)
        if type(schema_version) is not int or not 1 <= schema_version <= SCHEMA_VERSION:
            message = (
                f"schema_version must be 1 to {SCHEMA_VERSION}, not "
                f"{schema_version!r}; certify again"
            )
            raise ValueError(message)
        return certificate

    @classmethod
    def from_mapping(cls, stated: object = None, where: str = "policy") -> Self:
        """Policy of what a file states, the rest filled in from the published defaults.

        Args:
          stated: nested mapping, section -> key -> value.
          where: named in errors.

        Raises:
          ValueError: an unknown key, a value out of range, a bad pattern, or an order that names a
            gate which the policy has not; names key, value and rule.

        Warns:
          UserWarning: the certificate is of another policy, and is dropped (rule S6.10).
        """
        if stated is not None and not isinstance(stated, Mapping):
            refuse(
                f"{where}: a policy must be a mapping of sections",
                type(stated).__name__,
                "write section: {key: value}, as `raglab policy` prints one",
            )
        merged_sections = merged_rows(
            _published_defaults(), stated or {}, {"entities", "document_entities"}
        )
        policy: Self = _validate_section(lambda: cls.model_validate(merged_sections), where)
        check_order_names(policy, f"{where}: ")
        certified_id = (policy.certificate or {}).get("policy_id", policy.policy_id)
        if certified_id == policy.policy_id:
            return policy
        warn_user(
            f"{where}: the certificate of {certified_id!r:.40} is dropped from policy "
            f"{policy.policy_id}; certify again."
        )
        return policy.replace("certificate", None)

    def replace(self, *changes: Any) -> Self:  # noqa: ANN401 - values of any field
        """Policy with some values changed.

        `policy.replace("l2.max_l2", 0.7, "gap.enabled", False)`.

        Args:
          *changes: paths and values by turns.

        Raises:
          ValueError: an odd number of arguments, an unknown path, a value out of range, or an order
            that names a gate which the policy has not.

        Warns:
          IdleThresholdWarning: a changed threshold cannot act in the policy that results.

        A change of any threshold, switch or pattern drops the certificate.
        """
        if len(changes) % 2:
            refuse(
                "replace takes pairs of path and value",
                f"{len(changes)} arguments",
                "write replace('l2.max_l2', 0.7)",
            )
        changed_sections: dict[str, dict[str, Any]] = {}
        changed_fields: dict[str, Any] = {}
        for field_path, value in zip(changes[::2], changes[1::2], strict=True):
            self.value(field_path)
            section_name, _, field_key = field_path.partition(".")
            if field_key:
                _set_nested(
                    changed_sections.setdefault(
                        section_name, _rows_of(getattr(self, section_name))
                    ),
                    field_key,
                    value,
                )
            else:
                changed_fields[section_name] = value
        if "pack" in changed_fields:
            changed_fields.setdefault("pack_hash", None)  # it is for the pack that was read
        keeps_certificate = (
            "certificate" in changed_fields
            or changed_sections.keys() | changed_fields.keys()
            <= {
                "notes",
                *_LEARNED_FIELDS,
            }
        )
        certificate_change = (
            {} if keeps_certificate else {"certificate": None}
        )  # it is for what it was earned with
        if changed_fields:
            section_rows = (
                {
                    section_name: getattr(self, section_name)
                    for section_name in type(self).model_fields
                }
                | changed_fields
                | changed_sections
                | certificate_change
            )
            policy: Self = _validate_section(
                lambda: type(self).model_validate(section_rows), "replace"
            )
        else:
            validated_sections = {
                section_name: _validate_section(
                    partial(_section_validators()[section_name], section_rows),
                    "replace",
                    section_name,
                )
                for section_name, section_rows in changed_sections.items()
            }
            policy = self.model_copy(update=validated_sections | certificate_change)
        check_order_names(policy)
        if not is_called_inside():  # the toolkit tries values of thresholds that are off
            warn_idle(
                (policy, field_path)
                for field_path in changes[::2]
                if threshold_need(policy, field_path)
            )
        return policy

    def without_gates(self) -> Self:
        """Policy with every gate off and without `tuned_on`: it answers whenever there is a hit."""
        changes: list[Any] = [
            path_or_value
            for gate in gates.GATES
            if gate.switch
            for path_or_value in (f"{gate.name}.enabled", False)
        ]
        for section_name in ("signals", "gates"):
            changes += [section_name, {}] if getattr(self, section_name) else []
        changes += ["decision.order", None]  # it may name gates that are gone
        return self.replace(
            "decision.rule", "chain", "tuned_on", None, "tuned_scores", None, *changes
        )

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy with an id of its own.

        Made of the fields alone, without what was worked out for this policy.

        Args:
          update: field -> its new value.
          deep: whether the values of the fields are copied too.
        """
        values = {field_name: getattr(self, field_name) for field_name in type(self).model_fields}
        values = (deepcopy(values) if deep else values) | dict(update or {})
        return type(self).model_construct(
            set(self.model_fields_set) | values.keys() & (update or {}).keys(), **values
        )

    def diff(self, baseline: PolicyData | None = None) -> dict[str, tuple[Any, Any]]:
        """Differences from another policy: path -> (value here, value there).

        Nothing where the ids are the same.

        The first of each pair is of this policy, the second of the baseline: of a tuned policy
        (tuned, published). Deciding parts are first: gates on signals and of the user, the
        decision; gates that are off and patterns are last. A list of patterns, a fitted curve or
        model is one value. None is also the value of a gate that one policy does not state.

        Args:
          baseline: the published policy where not given.

        Example:
          >>> PolicyData.from_mapping({"l2": {"max_l2": 0.7}}).diff()
          {'l2.max_l2': (0.7, 0.8)}
        """
        settings = self.settings
        baseline_settings = (_published() if baseline is None else baseline).settings
        value_pairs = {
            setting_path: (settings.get(setting_path), baseline_settings.get(setting_path))
            for setting_path in (settings | baseline_settings)
        }
        changed_pairs = {
            setting_path: value_pair
            for setting_path, value_pair in value_pairs.items()
            if _ordered(value_pair[0]) != _ordered(value_pair[1])
        }
        ranked_paths = sorted(
            changed_pairs,
            key=lambda setting_path: _change_rank(setting_path, changed_pairs[setting_path][0]),
        )
        return {
            setting_path: (
                _plain(changed_pairs[setting_path][0]),
                _plain(changed_pairs[setting_path][1]),
            )
            for setting_path in ranked_paths
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Path -> value of all that the policy_id depends on.

        A list of patterns, a curve or a model is one value.
        """
        sections = self.model_dump(exclude=_NOT_HASHED)
        return {
            path: value
            for path, value in _leaves(sections, whole_paths=WHOLE_VALUES)
            if value or path not in USER_SECTIONS
        }

    def _summary(self) -> Summary:
        """Gates in their order, then the rest; what differs from the published is marked."""
        changes = self.diff()
        settings = self.settings
        gate_names = self.gates_in_order()
        gate_cells: dict[str, list[Cell | str]] = {
            gate_name: [gate_name] for gate_name in gate_names
        }
        other_rows: list[tuple[Cell | str, ...]] = []

        # a gate that the published policy states and this one does not stands among the changes; a
        # page is cut after a number of rows: of what is no gate the changes come first
        setting_paths = [*settings, *sorted(changes.keys() - settings.keys())]
        for setting_path in sorted(
            setting_paths, key=lambda setting_path: setting_path not in changes
        ):
            section_name, _, field_key = setting_path.rpartition(".")
            setting_value = told_value(settings.get(setting_path))
            published_text = ""
            if setting_path in changes:
                published_text = told_value(changes[setting_path][1])
            change_mark: Literal["", "changed"] = "changed" if published_text else ""
            if section_name in gate_cells:
                published_note = f"published {published_text}" if published_text else ""
                gate_cells[section_name].append(
                    Cell(f"{field_key} {setting_value}", published_note, change_mark)
                )
            else:
                other_rows.append(
                    (setting_path, Cell(setting_value, mark=change_mark), published_text)
                )
        change_texts = [  # what decides stands first, as in `diff`
            f"{setting_path} "
            f"{told_value(setting_value)}{' (idle)' if threshold_need(self, setting_path) else ''}"
            for setting_path, (setting_value, _) in changes.items()
        ]
        policy_facts = [
            ("policy_id", self.policy_id),
            ("decides by", self.decision.rule),
            ("pack", self.pack),
            ("certificate", "none" if self.certificate is None else "held"),
            (f"{len(changes)} changes:", ", ".join(change_texts) or "none"),
        ]
        gate_rows = [gate_row for gate_row in gate_cells.values() if len(gate_row) > 1]
        column_titles = ("setting", "value", "published")
        table_folds = [
            Fold("gates in order", gate_rows, open=True),
            Fold("other settings", other_rows, None, column_titles),
        ]
        return Summary(policy_facts, {table_fold.title: table_fold for table_fold in table_folds})

    def gates_in_order(self) -> list[str]:
        """Sections of the gates in the order in which they decide.

        `l2`, …, `signals.<name>`, `gates.<name>`.
        """
        user_gates = (
            *(f"signals.{gate_name}" for gate_name in in_order(self.signals)),
            *(f"{USER_GATES_SECTION}.{gate_name}" for gate_name in sorted(self.gates)),
        )
        declared_order = self.decision.order or tuple(gate.name for gate in gates.GATES)
        gate_names: list[str] = []
        for gate_name in (*declared_order, *_GATE_SECTIONS):
            gate_names += (
                [gate for gate in user_gates if gate not in declared_order]
                if gate_name == "signals"
                else [gate_name]
            )
        return list(dict.fromkeys((*gate_names, *user_gates)))

    def value(self, path: str) -> Any:  # noqa: ANN401 - values of any field
        """Value at a path such as `l2.max_l2`.

        Args:
          path: `section.key`.
        """
        value: Any = self
        for part in str(path).split("."):
            # a signal that the policy does not gate has no bounds
            if value is self.signals and is_name(part):
                value = value.get(part, UNGATED_SIGNAL)
                continue
            if value is self.gates:
                return self._own_value(path)
            if part not in getattr(type(value), "model_fields", {}):
                raise ValueError(_no_such_path(path))
            value = getattr(value, part)
        return value

    def _own_value(self, path: str) -> Any:  # noqa: ANN401 - a switch, a number or None
        """Value of a path below `gates`: as stated, else as the gate is registered."""
        gate_name, _, field_key = path.removeprefix(f"{USER_GATES_SECTION}.").partition(".")
        if not is_name(gate_name) or (field_key and not is_name(field_key)):
            raise ValueError(_no_such_path(path))
        declared_values = self.gates.get(gate_name)
        default_values = {
            threshold.key: threshold.default
            for threshold in getattr(REGISTERED_GATES.get(gate_name), "thresholds", ())
        }
        known_values = (
            default_values | {"enabled": declared_values is not None} | (declared_values or {})
        )
        return known_values.get(field_key) if field_key else declared_values or {}

    @cached_property  # a policy is frozen, and a page or a study asks for its id again and again
    def policy_id(self) -> str:
        """First 12 hex digits of SHA-256 of canonical JSON without extras (rules S0.5, S0.8).

        The extras are certificate, notes and pack.

        The path of a pack is one of a machine; its content is known by its own hash, which trace,
        index and log keep.
        """
        canonical_sections = _canonical_rows(self.model_dump(mode="json", exclude=_NOT_HASHED))
        # their order is that of reasons
        canonical_sections["patterns"]["entities"] = list(
            canonical_sections["patterns"]["entities"].items()
        )
        return digest(canonical_json(canonical_sections), 12)

    @property
    def pattern_lists(self) -> Patterns:
        """The patterns as the measurements take them."""
        return Patterns(
            **{list_name: getattr(self.patterns, list_name) for list_name in Patterns._fields}
        )

    @property
    def structure(self) -> Structure:
        """What the measured tables depend on."""
        chosen, resolver, calibration, confidence = (
            self.chosen,
            self.resolver,
            self.generation.calibration,
            self.confidence,
        )
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
            None if calibration is None else (calibration.x, calibration.y),
            self.decision.model.model
            if self.decision.rule == EXPECTED_COST and self.decision.model
            else None,
            (confidence.calibration.x, confidence.calibration.y)
            if confidence.fallback == "cosine"
            else None,
            resolver.document_identity,
        )

    @property
    def fused_model(self) -> Model | None:
        """Model of the fused gate, or None."""
        parts = tuple(
            Part(signal_name, curve.x, curve.y)
            for signal_name, curve in sorted(self.fused.parts.items())
        )
        return Model(self.fused.bias, parts) if parts else None

    @property
    def manifest(self) -> dict[str, Any]:
        """Path -> value of all but patterns, fitted curves, certificate and notes, as logged."""
        excluded_sections = {"patterns": True, **dict.fromkeys(_NOT_HASHED, True)}
        excluded_curves = {
            "fused": {"parts"},
            "generation": {"calibration"},
            "confidence": {"calibration"},
        }
        excluded: Any = {**excluded_sections, **excluded_curves, "decision": {"model"}}
        return dict(_leaves(_canonical_rows(self.model_dump(mode="json", exclude=excluded))))


def check_pack(stored: object, pack: str | None, artefact: str, remedy: str) -> None:
    """Stop where something was made with one pack and is used with another (rule S5.11).

    Args:
      stored: hash of the pack it was made with; None where no pack is known or named, which fits
        any.
      pack: hash of the pack in use; None likewise.
      artefact: name of what was made with `stored`, for the message.
      remedy: last part of the message.

    Raises:
      ValueError: two hashes that differ.

    Example:
      >>> check_pack(None, "0c1d2e3f4a5b", "the trace", "build it again")
    """
    if stored and pack and stored != pack:
        refuse(
            f"{artefact} must be used with the pack that it was made with, {stored}", pack, remedy
        )


def _rows_of(section: Any) -> dict[str, Any]:  # noqa: ANN401 - a model or a mapping
    """Fields of a section; what it has worked out of them is left behind."""
    if isinstance(section, Mapping):
        return dict(section)
    return {key: getattr(section, key) for key in type(section).model_fields}


# values of any field
def _set_nested(section_rows: dict[str, Any], key_path: str, new_value: Any) -> None:  # noqa: ANN401
    """Set what stands at `key_path` or `key.key` of a section.

    Sections on the way are copied, the rest is shared.
    """
    first_key, _, remaining_path = key_path.partition(".")
    if not remaining_path:
        section_rows[first_key] = new_value
        return
    inner_rows = _rows_of(section_rows.get(first_key, {}))
    _set_nested(inner_rows, remaining_path, new_value)
    section_rows[first_key] = inner_rows


def idle_reasons(idle_thresholds: Iterable[tuple[PolicyData, str]]) -> str:
    """Why thresholds cannot act in a policy and what would make them act; '' of none."""
    paths_by_reason: dict[str, list[str]] = {}
    for policy, threshold_path in idle_thresholds:
        reason = "on these cases: no value changes a decision; add cases that reach it"
        if missing_need := threshold_need(policy, threshold_path):
            current_text = cut_value(str(policy.value(missing_need.path)), 60)
            reason = (
                f"while {missing_need.path} is {current_text}; set that to {missing_need.value}"
            )
        paths_by_reason.setdefault(reason, []).append(threshold_path)
    return " ".join(
        f"{', '.join(threshold_paths)} cannot act {idle_reason}."
        for idle_reason, threshold_paths in paths_by_reason.items()
    )


def warn_idle(idle_thresholds: Iterable[tuple[PolicyData, str]]) -> None:
    """Warn of thresholds that cannot act in a policy, once for all of them."""
    if text := idle_reasons(idle_thresholds):
        warn_user(text, IdleThresholdWarning)


@cache
def _section_validators() -> Mapping[str, Callable[[Any], Any]]:
    """What validates each section of a policy, by its name."""
    section_types: dict[str, Any] = {
        section_name: model_field.annotation
        for section_name, model_field in PolicyData.model_fields.items()
    }
    section_types |= {"signals": SignalSections, USER_GATES_SECTION: GateSections}
    return {
        section_name: TypeAdapter(section_type).validate_python
        for section_name, section_type in section_types.items()
    }


def _leaves(
    sections: Mapping[str, Any], path_prefix: str = "", whole_paths: Container[str] = frozenset()
) -> Iterable[tuple[str, Any]]:
    """Path and value of everything in nested sections.

    What stands at a path of `whole_paths` is one value.
    """
    for key, value in sections.items():
        field_path = f"{path_prefix}{key}"
        if isinstance(value, Mapping) and value and field_path not in whole_paths:
            yield from _leaves(value, f"{field_path}.", whole_paths)
        else:
            yield field_path, value


@cache
def _published() -> PolicyData:
    return PolicyData.from_mapping()


def _ordered(field_value: Any) -> Any:  # noqa: ANN401 - a value of any field
    """Value as two are compared: the order of entities is that of reasons."""
    return list(field_value.items()) if isinstance(field_value, Mapping) else field_value


def _change_rank(setting_path: str, setting_value: Any) -> int:  # noqa: ANN401 - a value of any field
    """Place of a change among others.

    What decides, then thresholds, then what is switched off and lists.
    """
    section_name = setting_path.partition(".")[0]
    if section_name in USER_SECTIONS or setting_path.startswith("decision."):
        return 0
    return (
        2
        if section_name == "patterns"
        or (setting_value is False and setting_path.endswith(".enabled"))
        else 1
    )


def _plain(field_value: Any) -> Any:  # noqa: ANN401 - a value of any field
    return dict(field_value) if isinstance(field_value, Mapping) else field_value


def told_value(setting_value: Any) -> str:  # noqa: ANN401 - a value of any field
    """Value of a policy in a few words.

    Numbers to the digits that they have, of a list or curve its length.

    Args:
      setting_value: of a policy's path.

    Example:
      >>> told_value(0.1 + 0.2), told_value(("a", "b")), told_value(None), told_value(False)
      ('0.30000000000000004', '2 entries', 'none', 'off')
    """
    if isinstance(setting_value, bool):
        return "on" if setting_value else "off"
    if setting_value is None:
        return "none"
    if isinstance(setting_value, Mapping | tuple | list):
        if set(setting_value) == {"x", "y", "fitted_on"}:
            return f"{len(setting_value['x'])} knots"  # type: ignore[call-overload]
        return f"{len(setting_value)} entr{'y' if len(setting_value) == 1 else 'ies'}"
    return cut_value(str(setting_value), 60)


def _no_such_path(unknown_path: object) -> str:
    return (
        f"{cut_value(str(unknown_path))!r} is no field of a policy; "
        "write section.key, as in l2.max_l2, "
        "signals.<name>.min or gates.<name>.<threshold> (all of them: `Policy.manifest`)."
    )


# a model
def _validate_section(
    validate: Callable[[], Any],
    source_name: str,
    section_name: str | None = None,
) -> Any:  # noqa: ANN401
    try:
        return validate()
    except ValidationError as error:
        raise ValueError(_message(error, source_name, section_name)) from None


def _message(
    validation_error: ValidationError, source_name: str, section_name: str | None = None
) -> str:
    def line(problem: Mapping[str, Any]) -> str:
        location = problem["loc"] if section_name is None else (section_name, *problem["loc"])
        field_path = cut_value(".".join(str(location_part) for location_part in location))
        if problem["type"] == "extra_forbidden":
            return f"{field_path}: unknown key; write one of defaults.yaml's keys."
        rule = cut_value(str(problem["msg"]).removeprefix("Value error, "), 4 * SHOWN_CHARACTERS)
        input_text = cut_value(repr(problem["input"]))
        return (
            f"{field_path}: {rule[0].lower() + rule[1:]}, got "
            f"{input_text}{_threshold_unit(*location)}."
        )

    problems = validation_error.errors()
    remaining_text = (
        f" And {len(problems) - _MAX_PROBLEMS} more." if len(problems) > _MAX_PROBLEMS else ""
    )
    return (
        visible(
            f"{source_name}: " + " ".join(line(problem) for problem in problems[:_MAX_PROBLEMS])
        )
        + remaining_text
    )


def _is_json(candidate: object) -> bool:
    """Whether a value is the same after it was written and read again."""
    if isinstance(candidate, Mapping):
        return all(
            isinstance(entry_key, str) and _is_json([entry_key, entry])
            for entry_key, entry in candidate.items()
        )
    if isinstance(candidate, list | tuple):
        return all(map(_is_json, candidate))
    if isinstance(candidate, str):
        # halves of surrogate pairs
        return not any("\ud800" <= character <= "\udfff" for character in candidate)
    if isinstance(candidate, int):
        return -(2**63) <= candidate < 2**63  # a longer one has no text in YAML
    return candidate is None or (isinstance(candidate, float) and math.isfinite(candidate))


_MAX_PROBLEMS = 5  # that a message names


def _threshold_unit(section_name: object = "", field_key: object = "", *_: object) -> str:
    section_field = PolicyData.model_fields.get(str(section_name))
    key_field = getattr(section_field and section_field.annotation, "model_fields", {}).get(
        str(field_key)
    )
    # of a section made of the gate table it stands inside the annotation
    descriptions = (key_field, *getattr(key_field and key_field.annotation, "__metadata__", ()))
    return next(
        (
            f"; it is {metadata.description}"
            for metadata in descriptions
            if metadata and metadata.description
        ),
        "",
    )
