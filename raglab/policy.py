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
from raglab.gating.own_margins import OWN
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
from raglab.values import SCHEMA_VERSION, refuse
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
    calibration: tuple[tuple[float, ...], tuple[float, ...]] | None
    decision: DecisionModel | None
    fallback: tuple[tuple[float, ...], tuple[float, ...]] | None
    document_identity: str

    def __repr__(self) -> str:
        """Fields by name.

        An identity of documents that is the default is left out, as of a policy_id (rule S0.8).

        Fingerprints of traces with answers are made of this text.
        """
        rows = self._asdict()
        if self.document_identity == DEFAULT_IDENTITY:
            del rows["document_identity"]
        return (
            f"{type(self).__name__}("
            f"{', '.join(f'{name}={value!r}' for name, value in rows.items())})"
        )


DEFAULT_IDENTITY = "path"  # of documents, `resolver.document_identity` of defaults.yaml


@cache
def _stated() -> Mapping[str, Any]:
    return dict(
        yaml.safe_load(files("raglab").joinpath("defaults.yaml").read_text(encoding="utf-8"))
    )


@cache
def _published_defaults() -> Mapping[str, Any]:
    """Published values: those of `defaults.yaml`.

    Of a gate that has none there, off and as its row says.
    """
    rows = dict(_stated())
    for gate in gates.GATES:
        if gate.switch and gate.name not in rows:
            rows[gate.name] = {"enabled": False} | {
                threshold.key: threshold.default for threshold in gate.thresholds
            }
    return rows


GENERIC = "generic"  # the pack of no trade
# nothing that decides
_CASES = {"tuned_on", "tuned_scores", "learned_cases"}  # of the cases that chose its values
_NOT_HASHED = {"certificate", "notes", "pack", "pack_hash", *_CASES}

USER_SECTIONS = ("signals", OWN)  # of gates of the user, by name
# Lists of patterns, fitted curves and models: a difference in them is one difference.
WHOLE = frozenset(
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
    "resolver.document_identity",
)
ADDED_SECTIONS = ("decision", "signals", "gates")  # left out where nothing of them is left


def _canonical_rows(rows: dict[str, Any]) -> dict[str, Any]:
    """Sections of a policy without added keys, and added gates' sections, that are at default."""
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
_SECTIONS = {
    gate.name: _MORE.get(gate.name) or section_of(gate) for gate in gates.GATES if gate.switch
}
# Sections stand in a written policy as they do in `defaults.yaml`; what they hold is stated below
# or by the gates.
_fields: dict[str, Any] = {name: (_SECTIONS.get(name, Any), ...) for name in _published_defaults()}
_Sections = create_model("_Sections", **_fields)


MOST_SETS = 100  # of cases that parts of a policy learned from
_LONGEST_CODES = 2**18  # characters of a set: 32,768 questions


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
    pack: Annotated[StrictStr, Field(min_length=1, exclude_if=lambda name: name == GENERIC)] = (
        GENERIC
    )
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
                StrictStr, Field(pattern="^(?:[A-Za-z0-9+/]{8})+$", max_length=_LONGEST_CODES)
            ],
        ],
        Field(default_factory=dict, exclude_if=not_, max_length=MOST_SETS),
    ]
    certificate: dict[str, Any] | None = None
    notes: StrictStr | None = None

    @field_validator("certificate", "notes")
    @classmethod
    def _of_json(cls, stated: Any) -> Any:  # noqa: ANN401 - of either
        if not _is_json(stated):
            msg = (
                "it must hold Unicode texts, finite numbers of 64 bits, lists and mappings of "
                "texts to them; correct it"
            )
            raise ValueError(msg)
        return stated

    @field_validator("certificate")
    @classmethod
    def _of_known_schema(cls, stated: dict[str, Any] | None) -> dict[str, Any] | None:
        version = (stated or {}).get("schema_version", SCHEMA_VERSION)
        if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
            msg = f"schema_version must be 1 to {SCHEMA_VERSION}, not {version!r}; certify again"
            raise ValueError(msg)
        return stated

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
            rule = f"{where}: a policy must be a mapping of sections"
            remedy = "write section: {key: value}, as `raglab policy` prints one"
            refuse(rule, type(stated).__name__, remedy)
        rows = merged_rows(_published_defaults(), stated or {}, {"entities", "document_entities"})
        policy: Self = _validate_section(lambda: cls.model_validate(rows), where)
        check_order_names(policy, f"{where}: ")
        certified = (policy.certificate or {}).get("policy_id", policy.policy_id)
        if certified == policy.policy_id:
            return policy
        warn_user(
            f"{where}: the certificate of {certified!r:.40} is dropped from policy "
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
            rule = "replace takes pairs of path and value"
            refuse(rule, f"{len(changes)} arguments", "write replace('l2.max_l2', 0.7)")
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
        keeps = "certificate" in whole or touched.keys() | whole.keys() <= {"notes", *_CASES}
        certificate = {} if keeps else {"certificate": None}  # it is for what it was earned with
        if whole:
            rows = (
                {name: getattr(self, name) for name in type(self).model_fields}
                | whole
                | touched
                | certificate
            )
            policy: Self = _validate_section(lambda: type(self).model_validate(rows), "replace")
        else:
            sections = {
                name: _validate_section(partial(_section_validators()[name], rows), "replace", name)
                for name, rows in touched.items()
            }
            policy = self.model_copy(update=sections | certificate)
        check_order_names(policy)
        if not is_called_inside():  # the toolkit tries values of thresholds that are off
            warn_idle((policy, path) for path in changes[::2] if threshold_need(policy, path))
        return policy

    def without_gates(self) -> Self:
        """Policy with every gate off and without `tuned_on`: it answers whenever there is a hit."""
        off: list[Any] = [
            item for gate in gates.GATES if gate.switch for item in (f"{gate.name}.enabled", False)
        ]
        for section in ("signals", "gates"):
            off += [section, {}] if getattr(self, section) else []
        off += ["decision.order", None]  # it may name gates that are gone
        return self.replace("decision.rule", "chain", "tuned_on", None, "tuned_scores", None, *off)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy with an id of its own.

        Made of the fields alone, without what was worked out for this policy.

        Args:
          update: field -> its new value.
          deep: whether the values of the fields are copied too.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        fields = (deepcopy(fields) if deep else fields) | dict(update or {})
        return type(self).model_construct(
            set(self.model_fields_set) | fields.keys() & (update or {}).keys(), **fields
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
        here, there = self.settings, (_published() if baseline is None else baseline).settings
        pairs = {path: (here.get(path), there.get(path)) for path in (here | there)}
        changed = {
            path: pair for path, pair in pairs.items() if _ordered(pair[0]) != _ordered(pair[1])
        }
        ranked = sorted(changed, key=lambda path: _change_rank(path, changed[path][0]))
        return {path: (_plain(changed[path][0]), _plain(changed[path][1])) for path in ranked}

    @property
    def settings(self) -> dict[str, Any]:
        """Path -> value of all that the policy_id hangs on.

        A list of patterns, a curve or a model is one value.
        """
        rows = self.model_dump(exclude=_NOT_HASHED)
        return {
            path: value
            for path, value in _leaves(rows, whole=WHOLE)
            if value or path not in USER_SECTIONS
        }

    def _summary(self) -> Summary:
        """Gates in their order, then the rest; what differs from the published is marked."""
        changed, settings = self.diff(), self.settings
        order = self.gates_in_order()
        sections: dict[str, list[Cell | str]] = {name: [name] for name in order}
        rest: list[tuple[Cell | str, ...]] = []

        # a gate that the published policy states and this one does not stands among the changes; a
        # page is cut after a number of rows: of what is no gate the changes come first
        paths = [*settings, *sorted(changed.keys() - settings.keys())]
        for path in sorted(paths, key=lambda path: path not in changed):
            section, _, key = path.rpartition(".")
            value, was = told_value(settings.get(path)), ""
            if path in changed:
                was = told_value(changed[path][1])
            mark: Literal["", "changed"] = "changed" if was else ""
            if section in sections:
                small = f"published {was}" if was else ""
                sections[section].append(Cell(f"{key} {value}", small, mark))
            else:
                rest.append((path, Cell(value, mark=mark), was))
        texts = [  # what decides stands first, as in `diff`
            f"{path} {told_value(value)}{' (idle)' if threshold_need(self, path) else ''}"
            for path, (value, _) in changed.items()
        ]
        facts = [
            ("policy_id", self.policy_id),
            ("decides by", self.decision.rule),
            ("pack", self.pack),
            ("certificate", "none" if self.certificate is None else "held"),
            (f"{len(changed)} changes:", ", ".join(texts) or "none"),
        ]
        gate_rows = [row for row in sections.values() if len(row) > 1]
        head = ("setting", "value", "published")
        folds = [
            Fold("gates in order", gate_rows, open=True),
            Fold("other settings", rest, None, head),
        ]
        return Summary(facts, {fold.title: fold for fold in folds})

    def gates_in_order(self) -> list[str]:
        """Sections of the gates in the order in which they decide.

        `l2`, …, `signals.<name>`, `gates.<name>`.
        """
        user = (
            *(f"signals.{name}" for name in in_order(self.signals)),
            *(f"{OWN}.{name}" for name in sorted(self.gates)),
        )
        stated = self.decision.order or tuple(gate.name for gate in gates.GATES)
        names: list[str] = []
        for name in (*stated, *_SECTIONS):
            names += [gate for gate in user if gate not in stated] if name == "signals" else [name]
        return list(dict.fromkeys((*names, *user)))

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
        name, _, key = path.removeprefix(f"{OWN}.").partition(".")
        if not is_name(name) or (key and not is_name(key)):
            raise ValueError(_no_such_path(path))
        stated = self.gates.get(name)
        rows = {
            row.key: row.default for row in getattr(REGISTERED_GATES.get(name), "thresholds", ())
        }
        known = rows | {"enabled": stated is not None} | (stated or {})
        return known.get(key) if key else stated or {}

    @cached_property  # a policy is frozen, and a page or a study asks for its id again and again
    def policy_id(self) -> str:
        """First 12 hex digits of SHA-256 of canonical JSON without extras (rules S0.5, S0.8).

        The extras are certificate, notes and pack.

        The path of a pack is one of a machine; its content is known by its own hash, which trace,
        index and log keep.
        """
        rows = _canonical_rows(self.model_dump(mode="json", exclude=_NOT_HASHED))
        # their order is that of reasons
        rows["patterns"]["entities"] = list(rows["patterns"]["entities"].items())
        return digest(canonical_json(rows), 12)

    @property
    def pattern_lists(self) -> Patterns:
        """The patterns as the measurements take them."""
        return Patterns(**{name: getattr(self.patterns, name) for name in Patterns._fields})

    @property
    def structure(self) -> Structure:
        """What the measured tables depend on."""
        chosen, resolver, knots, confidence = (
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
            None if knots is None else (knots.x, knots.y),
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
        """Model of the fused gate, where there is one."""
        parts = tuple(Part(name, line.x, line.y) for name, line in sorted(self.fused.parts.items()))
        return Model(self.fused.bias, parts) if parts else None

    @property
    def manifest(self) -> dict[str, Any]:
        """Path -> value of all but patterns, fitted curves, certificate and notes, as logged."""
        whole = {"patterns": True, **dict.fromkeys(_NOT_HASHED, True)}
        curves = {"fused": {"parts"}, "generation": {"calibration"}, "confidence": {"calibration"}}
        left_out: Any = {**whole, **curves, "decision": {"model"}}
        return dict(_leaves(_canonical_rows(self.model_dump(mode="json", exclude=left_out))))


def check_pack(stored: object, pack: str | None, what: str, remedy: str) -> None:
    """Stop where something was made with one pack and is used with another (rule S5.11).

    Args:
      stored: hash of the pack it was made with; None where no pack is known or named, which fits
        any.
      pack: hash of the pack in use; None likewise.
      what: name of what was made with `stored`, for the message.
      remedy: last part of the message.

    Raises:
      ValueError: two hashes that differ.

    Example:
      >>> check_pack(None, "0c1d2e3f4a5b", "the trace", "build it again")
    """
    if stored and pack and stored != pack:
        refuse(f"{what} must be used with the pack that it was made with, {stored}", pack, remedy)


def _rows_of(section: Any) -> dict[str, Any]:  # noqa: ANN401 - a model or a mapping
    """Fields of a section; what it has worked out of them is left behind."""
    if isinstance(section, Mapping):
        return dict(section)
    return {key: getattr(section, key) for key in type(section).model_fields}


# values of any field
def _set_nested(rows: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401
    """Set what stands at `key` or `key.key` of a section.

    Sections on the way are copied, the rest is shared.
    """
    first, _, rest = key.partition(".")
    if not rest:
        rows[first] = value
        return
    inner = _rows_of(rows.get(first, {}))
    _set_nested(inner, rest, value)
    rows[first] = inner


def idle_reasons(idle: Iterable[tuple[PolicyData, str]]) -> str:
    """Why thresholds cannot act in a policy and what would make them act; '' of none."""
    reasons: dict[str, list[str]] = {}
    for policy, path in idle:
        reason = "on these cases: no value changes a decision; add cases that reach it"
        if need := threshold_need(policy, path):
            now = cut_value(str(policy.value(need.path)), 60)
            reason = f"while {need.path} is {now}; set that to {need.value}"
        reasons.setdefault(reason, []).append(path)
    return " ".join(f"{', '.join(paths)} cannot act {why}." for why, paths in reasons.items())


def warn_idle(idle: Iterable[tuple[PolicyData, str]]) -> None:
    """Warn of thresholds that cannot act in a policy, once for all of them."""
    if text := idle_reasons(idle):
        warn_user(text, IdleThresholdWarning)


@cache
def _section_validators() -> Mapping[str, Callable[[Any], Any]]:
    """What validates each section of a policy, by its name."""
    kinds: dict[str, Any] = {
        name: field.annotation for name, field in PolicyData.model_fields.items()
    }
    kinds |= {"signals": SignalSections, OWN: GateSections}
    return {name: TypeAdapter(kind).validate_python for name, kind in kinds.items()}


def _leaves(
    rows: Mapping[str, Any], before: str = "", whole: Container[str] = frozenset()
) -> Iterable[tuple[str, Any]]:
    """Path and value of everything in nested sections.

    What stands at a path of `whole` is one value.
    """
    for key, value in rows.items():
        path = f"{before}{key}"
        if isinstance(value, Mapping) and value and path not in whole:
            yield from _leaves(value, f"{path}.", whole)
        else:
            yield path, value


@cache
def _published() -> PolicyData:
    return PolicyData.from_mapping()


def _ordered(value: Any) -> Any:  # noqa: ANN401 - a value of any field
    """Value as two are compared: the order of entities is that of reasons."""
    return list(value.items()) if isinstance(value, Mapping) else value


def _change_rank(path: str, value: Any) -> int:  # noqa: ANN401 - a value of any field
    """Place of a change among others.

    What decides, then thresholds, then what is switched off and lists.
    """
    section = path.partition(".")[0]
    if section in USER_SECTIONS or path.startswith("decision."):
        return 0
    return 2 if section == "patterns" or (value is False and path.endswith(".enabled")) else 1


def _plain(value: Any) -> Any:  # noqa: ANN401 - a value of any field
    return dict(value) if isinstance(value, Mapping) else value


def told_value(value: Any) -> str:  # noqa: ANN401 - a value of any field
    """Value of a policy in a few words.

    Numbers to the digits that they have, of a list or curve its length.

    Args:
      value: of a policy's path.

    Example:
      >>> told_value(0.1 + 0.2), told_value(("a", "b")), told_value(None), told_value(False)
      ('0.30000000000000004', '2 entries', 'none', 'off')
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "none"
    if isinstance(value, Mapping | tuple | list):
        if set(value) == {"x", "y", "fitted_on"}:
            return f"{len(value['x'])} knots"  # type: ignore[call-overload]
        return f"{len(value)} entr{'y' if len(value) == 1 else 'ies'}"
    return cut_value(str(value), 60)


def _no_such_path(path: object) -> str:
    return (
        f"{cut_value(str(path))!r} is no field of a policy; write section.key, as in l2.max_l2, "
        "signals.<name>.min or gates.<name>.<threshold> (all of them: `Policy.manifest`)."
    )


# a model
def _validate_section(
    make: Callable[[], Any],
    where: str,
    section: str | None = None,
) -> Any:  # noqa: ANN401
    try:
        return make()
    except ValidationError as error:
        raise ValueError(_message(error, where, section)) from None


def _message(error: ValidationError, where: str, section: str | None = None) -> str:
    def line(problem: Mapping[str, Any]) -> str:
        place = problem["loc"] if section is None else (section, *problem["loc"])
        path = cut_value(".".join(str(part) for part in place))
        if problem["type"] == "extra_forbidden":
            return f"{path}: unknown key; write one of defaults.yaml's keys."
        rule = cut_value(str(problem["msg"]).removeprefix("Value error, "), 4 * SHOWN_CHARACTERS)
        value = cut_value(repr(problem["input"]))
        return f"{path}: {rule[0].lower() + rule[1:]}, got {value}{_threshold_unit(*place)}."

    problems = error.errors()
    more = f" And {len(problems) - _PROBLEMS} more." if len(problems) > _PROBLEMS else ""
    return (
        visible(f"{where}: " + " ".join(line(problem) for problem in problems[:_PROBLEMS])) + more
    )


def _is_json(value: object) -> bool:
    """Whether a value is the same after it was written and read again."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json([key, item]) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, str):
        # halves of surrogate pairs
        return not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63  # a longer one has no text in YAML
    return value is None or (isinstance(value, float) and math.isfinite(value))


_PROBLEMS = 5  # that a message names


def _threshold_unit(section: object = "", key: object = "", *_: object) -> str:
    field = PolicyData.model_fields.get(str(section))
    info = getattr(field and field.annotation, "model_fields", {}).get(str(key))
    # of a section made of the gate table it stands inside the annotation
    stated = (info, *getattr(info and info.annotation, "__metadata__", ()))
    return next((f"; it is {m.description}" for m in stated if m and m.description), "")
