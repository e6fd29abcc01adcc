"""Policy: every threshold, switch and pattern of a system in one validated value (rule S0.5)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Annotated, Any, NamedTuple, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raglab._limits import Thresholds, intent_thresholds, thresholds
from raglab._sections import (
    L2,
    Chosen,
    Confidence,
    Density,
    Fused,
    Gap,
    Generation,
    PatternLists,
    Refine,
    Resolver,
    Similarity,
    Strategy,
    Sufficiency,
    Support,
    Switch,
)
from raglab.evidence import Patterns
from raglab.fusion import Model, Part

__all__ = ["Policy", "Structure", "Thresholds", "intent_thresholds", "thresholds"]


class Structure(NamedTuple):
    """What decides which hits a group or an option holds: measured tables depend on it, thresholds do not."""

    patterns_hash: str
    final_k: int
    order: str
    strict: bool
    entity_extractor: bool
    max_options: int
    fused: Model | None
    calibration: tuple[tuple[float, ...], tuple[float, ...]] | None


class Policy(BaseModel):
    """All thresholds, switches and patterns together; frozen, changed by `replace`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    chosen: Chosen
    domain: Switch
    l2: L2
    density: Density
    gap: Gap
    coverage: Switch
    similarity: Similarity
    sufficiency: Sufficiency
    confidence: Confidence
    fused: Fused
    strategy: Strategy
    refine: Refine
    generation: Generation
    support: Support
    resolver: Resolver
    patterns: PatternLists
    refusal_message: Annotated[str, Field(min_length=1)]
    certificate: dict[str, Any] | None = None
    notes: str | None = None

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
        rows = _merged(_published(), stated or {})
        return _validated(lambda: cls.model_validate(rows), where)

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
                touched.setdefault(name, getattr(self, name).model_dump())[key] = value
            else:
                whole[name] = value
        keeps = "certificate" in whole or touched.keys() | whole.keys() <= {"notes"}
        certificate = {} if keeps else {"certificate": None}  # it is for what it was earned with
        if whole:
            rows = dict(self) | whole | touched | certificate
            return _validated(lambda: type(self).model_validate(rows), "replace")
        sections = {
            name: _validated(partial(type(getattr(self, name)).model_validate, rows), "replace", name)
            for name, rows in touched.items()
        }
        return self.model_copy(update=sections | certificate)

    def value(self, path: str) -> Any:  # noqa: ANN401 - values of any field
        """Value at a path such as `l2.max_l2`."""
        found: Any = self
        for part in path.split("."):
            if part not in getattr(type(found), "model_fields", {}):
                raise ValueError(_no_such_path(path))
            found = getattr(found, part)
        return found

    @property
    def policy_id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON, without certificate and notes."""
        rows = self.model_dump(mode="json", exclude={"certificate", "notes"})
        rows["patterns"]["entities"] = list(rows["patterns"]["entities"].items())  # their order is that of reasons
        text = json.dumps(rows, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
        return hashlib.sha256(text).hexdigest()[:12]

    @property
    def pattern_lists(self) -> Patterns:
        """The patterns as the measurements take them."""
        return Patterns(**{name: getattr(self.patterns, name) for name in Patterns._fields})

    @property
    def structure(self) -> Structure:
        """What the measured tables depend on."""
        chosen, resolver, knots = self.chosen, self.resolver, self.generation.calibration
        return Structure(
            self.patterns.digest,
            chosen.final_k,
            chosen.order,
            resolver.strict,
            resolver.entity_extractor,
            resolver.max_options,
            self.fused_model,
            None if knots is None else (knots.x, knots.y),
        )

    @property
    def fused_model(self) -> Model | None:
        """Model of the fused gate, where there is one."""
        parts = tuple(Part(name, line.x, line.y) for name, line in sorted(self.fused.parts.items()))
        return Model(self.fused.bias, parts) if parts else None

    @property
    def manifest(self) -> dict[str, Any]:
        """Path -> value of everything but patterns, fitted curves, certificate and notes, as a log has it."""
        whole = {"patterns": True, "certificate": True, "notes": True}
        left_out: Any = {**whole, "fused": {"parts"}, "generation": {"calibration"}}
        rows = self.model_dump(mode="json", exclude=left_out)
        return {
            path: value
            for section, content in rows.items()
            for path, value in (
                [(f"{section}.{key}", item) for key, item in content.items()]
                if isinstance(content, dict)
                else [(section, content)]
            )
        }


@cache
def _published() -> Mapping[str, Any]:
    return dict(yaml.safe_load(files("raglab").joinpath("defaults.yaml").read_text(encoding="utf-8")))


def _merged(base: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    rows = dict(base)
    for key, value in stated.items():
        deep = isinstance(value, Mapping) and isinstance(rows.get(key), Mapping) and key != "entities"
        rows[key] = _merged(rows[key], value) if deep else value
    return rows


def _no_such_path(path: str) -> str:
    return f"{path!r} is no field of a policy; write section.key, as in l2.max_l2 (all of them: `Policy.manifest`)."


def _validated(make: Callable[[], Any], where: str, section: str | None = None) -> Any:  # noqa: ANN401 - a model
    try:
        return make()
    except ValidationError as error:
        raise ValueError(_message(error, where, section)) from None


def _message(error: ValidationError, where: str, section: str | None = None) -> str:
    def line(problem: Mapping[str, Any]) -> str:
        place = problem["loc"] if section is None else (section, *problem["loc"])
        path = ".".join(str(part) for part in place)
        if problem["type"] == "extra_forbidden":
            return f"{path}: unknown key; write one of defaults.yaml's keys."
        rule = str(problem["msg"]).removeprefix("Value error, ")
        return f"{path}: {rule[0].lower() + rule[1:]}, got {problem['input']!r}{_unit(place)}."

    return f"{where}: " + " ".join(line(problem) for problem in error.errors())


def _unit(location: Iterable[Any]) -> str:
    section, *rest = location
    model = Policy.model_fields.get(str(section))
    fields = getattr(model.annotation, "model_fields", {}) if model else {}
    info = fields.get(str(rest[0])) if rest else None
    if info is None:
        return ""
    text = info.description or next(
        (m.description for m in getattr(info.annotation, "__metadata__", ()) if m.description), None
    )
    return f"; it is {text}" if text else ""
