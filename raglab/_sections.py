"""Sections of a policy: each key with its range, unit and rule."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from math import isfinite
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictStr, field_validator, model_validator

from raglab.evidence import Pattern, matches, patterns_hash
from raglab.fusion import SIGNALS

SquaredL2 = Annotated[
    float, Field(ge=0.0, le=4.0, allow_inf_nan=False, description="a squared L2 distance of unit vectors")
]
Cosine = Annotated[float, Field(ge=-1.0, le=1.0, description="a cosine, not a percentage")]
Lead = Annotated[float, Field(ge=0.0, le=2.0, description="a difference of two cosines")]
Points = Annotated[float, Field(ge=0.0, le=100.0, description="a confidence from 0 to 100")]
Share = Annotated[float, Field(ge=0.0, le=1.0, description="a share")]
Count = Annotated[int, Field(ge=1, le=1_000, description="a count")]

Stated = StrictStr | tuple[StrictStr, ...]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Chosen(_Section):
    """Which hits go to the answer (rules S1.2, S1.3)."""

    final_k: Count
    order: Literal["rank", "l2"]


class Switch(_Section):
    """A gate without a threshold (rules S2.1, S2.5)."""

    enabled: bool


class L2(_Section):
    """Rule S2.2."""

    enabled: bool
    max_l2: SquaredL2
    soft_max_l2: SquaredL2 | None


class Density(_Section):
    """Rule S2.3."""

    enabled: bool
    min_keep: Count


class Gap(_Section):
    """Rule S2.4."""

    enabled: bool
    min_gap: SquaredL2 | None


class Similarity(_Section):
    """Rule S2.6."""

    enabled: bool
    min_similarity: Cosine


class Sufficiency(_Section):
    """Rule S2.7."""

    enabled: bool
    min_keyword_share: Share


class Confidence(_Section):
    """Rule S2.8."""

    enabled: bool
    tau_default: Points
    tau_explicit: Points
    blend: Share


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


class Fused(_Section):
    """Rule S2.14."""

    enabled: bool
    min_fused: Share
    bias: Annotated[float, Field(allow_inf_nan=False)]
    fitted_on: StrictStr | None
    parts: dict[StrictStr, Polyline]

    @model_validator(mode="after")
    def _usable(self) -> Self:
        unknown = sorted(set(self.parts) - set(SIGNALS))
        if unknown:
            msg = f"parts must name signals among {', '.join(SIGNALS)}, got {unknown[0]!r}"
            raise ValueError(msg)
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
    """What a generator's own confidence is worth: probability of being right, through knots, flat beyond its ends."""

    fitted_on: StrictStr | None = None

    @model_validator(mode="after")
    def _probability(self) -> Self:
        if not all(0.0 <= value <= 1.0 for value in self.y):
            msg = "y must lie in [0, 1], it is a probability; fit the calibration again"
            raise ValueError(msg)
        return self


class Strategy(_Section):
    """Rules S4.1, S4.5, S4.7: the arm that answers live, or what chooses it; and what makes arms available."""

    arm: Literal["hybrid", "iterative", "graph", "table", "dense", "bm25", "router", "bandit"]
    min_graph: Share
    min_table: Share
    min_complexity: Share


class Generation(_Section):
    """Rule S2.10."""

    enabled: bool
    min_generation_confidence: Share
    calibration: Calibration | None


class Support(_Section):
    """Rule S2.11."""

    enabled: bool
    min_support: Share


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

    @cached_property
    def digest(self) -> str:
        """Hash of the patterns (rule S0.6); a section is replaced as a whole, so that it never goes stale."""
        return patterns_hash(self)

    @field_validator("deny", "allow", "generic", "facet", "compare", "coverage_generic")
    @classmethod
    def _compile(cls, patterns: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
        for pattern in patterns:
            parts = (pattern,) if isinstance(pattern, str) else pattern
            if not parts or not all(parts):
                msg = "a pattern must not be empty, it would match every text; remove it"
                raise ValueError(msg)
            for part in parts:
                matches(part, "")
        return patterns

    @field_validator("entities")
    @classmethod
    def _compile_entities(cls, entities: dict[str, tuple[Pattern, ...]]) -> dict[str, tuple[Pattern, ...]]:
        for aliases in entities.values():
            cls._compile(aliases)
        return entities
