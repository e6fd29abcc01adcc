"""Signals (algebra): name, unit, direction, what missing means; retrieval confidence (S2.8, S2.15).

A signal is a named number a case, measured once and free of thresholds. Gates compare one with a
threshold, the fused gate puts several into one probability. One more built-in signal is a row of
`BUILT_IN` and its measurement in `raglab.decision.signal_values`. A user's own is a column of the
trace with its declaration, an `own_signal`; a `SignalSet` holds the built-in ones and those of one
trace together: what reads one reads the other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray


class Unit(NamedTuple):
    """Unit and range of a number.

    Attributes:
      name: in words.
      low: least value it may take.
      high: largest value it may take.
      whole: integers only.
      note: warning of a common mistake, such as "not a percentage".
    """

    name: str
    low: float
    high: float
    whole: bool = False
    note: str = ""

    @property
    def described(self) -> str:
        """The unit in a sentence: `it is …`."""
        return f"a {self.name}, {self.note}" if self.note else f"a {self.name}"


DOUBLE = 0.9  # rank correlation from which a signal repeats another
SQUARED_L2 = Unit("squared L2 distance of unit vectors", 0.0, 4.0)
COSINE = Unit("cosine", -1.0, 1.0, note="not a percentage")
LEAD = Unit("difference of two cosines", 0.0, 2.0)
SCORE_LEAD = Unit("difference of two scores", -1.0, 1.0)
POINTS = Unit("confidence from 0 to 100", 0.0, 100.0)
SHARE = Unit("share", 0.0, 1.0)
COUNT = Unit("count", 1.0, 1_000.0, whole=True)
RATIO = Unit("ratio", 0.0, 1_000.0)
COST = Unit("cost", 0.0, 1e9, note="of which a failed contract is 1")

NUMBER = Unit("count", 0.0, 10_000.0, whole=True)

Direction = Literal["surer", "ask", "either"]
Higher = Literal["surer", "ask"]
Stage = Literal["query", "hits", "answer"]
Missing = Literal["fires", "passes"]
Firing = Literal["refuse", "ask", "warn"]


class Signal(NamedTuple):
    """A named number of a case.

    Attributes:
      name: in policies and columns.
      unit: with its range.
      direction: `surer` where more of it speaks for an answer, `ask` where more of it speaks for
        asking back, `either` where it says nothing alone.
      stage: the stage after which it is measured.
      meaning: in words.
      missing: effect of a NaN on a gate; `fires` by default.
      stored: whether the trace holds it as a column, since it needs more than the hits.
      alone: whether one arm is enough to measure it; live only one answers, so nothing is fitted on
        others unasked.
      version: of its origin.
      source: its origin, in words.
    """

    name: str
    unit: Unit
    direction: Direction
    stage: Stage
    meaning: str
    missing: Missing = "fires"
    stored: bool = False
    alone: bool = True
    version: str = ""
    source: str = ""


# Measured when the trace is built: the question parser reads the documents of the first hits, which
# a trace has not.
PARSED: tuple[Signal, ...] = (
    Signal(
        "gaps",
        NUMBER,
        "ask",
        "hits",
        "things that the question leaves out (rule S5.1)",
        stored=True,
    ),
    Signal(
        "gap_options",
        NUMBER,
        "ask",
        "hits",
        "values that could fill in the first of them",
        stored=True,
    ),
    Signal(
        "empty_slots",
        NUMBER,
        "ask",
        "query",
        "slots that the question says nothing of (rule S5.1)",
        stored=True,
    ),
)
BUILT_IN: tuple[Signal, ...] = (
    Signal(
        "confidence",
        POINTS,
        "surer",
        "hits",
        "retrieval confidence by the reranker alone (rule S2.8)",
    ),
    Signal("top1_cosine", COSINE, "surer", "hits", "cosine of the query and the nearest hit"),
    Signal(
        "mean_cosine", COSINE, "surer", "hits", "mean cosine of the first hits in the arm's order"
    ),
    Signal("gap", SQUARED_L2, "surer", "hits", "distance between the two nearest hits (rule S2.4)"),
    Signal("hybrid", SHARE, "surer", "hits", "best hybrid score of the first hits"),
    Signal(
        "rerank_margin",
        SCORE_LEAD,
        "surer",
        "hits",
        "reranked score of the first hit above that of the second",
    ),
    Signal(
        "keyword_share",
        SHARE,
        "surer",
        "hits",
        "share of the query's content words in the first hits",
    ),
    Signal(
        "anchor_similarity",
        COSINE,
        "surer",
        "hits",
        "best cosine of the query and the text of a group's best hit",
    ),
    Signal(
        "signature_similarity",
        COSINE,
        "surer",
        "hits",
        "best cosine of the query and a group's signature",
    ),
    Signal("groups", NUMBER, "ask", "hits", "groups of hits with one signature (rule S3.2)"),
    Signal(
        "options",
        NUMBER,
        "ask",
        "hits",
        "options that could be offered, whatever the gap says (rule S3.5)",
    ),
    Signal(
        "group_gap",
        SQUARED_L2,
        "surer",
        "hits",
        "distance between the two nearest groups (rule S3.3)",
    ),
    Signal("score_scale", COSINE, "surer", "hits", "mean cosine of all hits"),
    Signal("score_spread", LEAD, "surer", "hits", "standard deviation of the ten best cosines"),
    Signal(
        "nqc",
        RATIO,
        "surer",
        "hits",
        "that spread over the mean cosine of all hits (NQC: Shtok et al. 2012)",
    ),
    Signal(
        "arms_first",
        SHARE,
        "surer",
        "hits",
        "share of the pairs of arms with the same first hit",
        alone=False,
    ),
    Signal(
        "arms_overlap",
        SHARE,
        "surer",
        "hits",
        "mean overlap of the pairs of arms among the first five hits",
        alone=False,
    ),
    Signal("words", NUMBER, "either", "query", "words of the query"),
    Signal("entities", NUMBER, "surer", "query", "entities that the query names (rule S2.5)"),
    Signal("documents", NUMBER, "surer", "query", "documents that the user named"),
    Signal("intent_graph", SHARE, "either", "query", "how much it asks for relations (rule S4.1)"),
    Signal(
        "intent_table",
        SHARE,
        "either",
        "query",
        "how much it asks for figures of a table (rule S4.1)",
    ),
    Signal(
        "complexity", SHARE, "either", "query", "how many steps and conditions it has (rule S4.1)"
    ),
    *PARSED,
    Signal(
        "generation",
        SHARE,
        "surer",
        "answer",
        "the generator's confidence, calibrated (rule S2.10)",
    ),
    Signal(
        "support", SHARE, "surer", "answer", "support of the answer's weakest claim (rule S2.11)"
    ),
)
NAMES = tuple(signal.name for signal in BUILT_IN)  # rows of `Evidence.signals`; policies use them
SIGNALS = NAMES[:9]  # those of retrieval that the fused gate is fitted on (rule S2.14)


@dataclass(frozen=True)
class SignalSet:
    """Signals in the order of their rows: the built-in ones, then a trace's own by name.

    It is no sequence, so that NumPy takes it for one thing among the fields of evidence.

    Attributes:
      rows: the signals.
    """

    rows: tuple[Signal, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the rows."""
        return tuple(signal_row.name for signal_row in self.rows)

    def place(self, name: str) -> int:
        """Row of a signal.

        Args:
          name: of the signal.

        Raises:
          KeyError: no signal has that name; the message lists the names.
        """
        if name in self.names:
            return self.names.index(name)
        message = f"signal must be one of {', '.join(self.names)}, got {name!r}."
        raise KeyError(message)

    def signal(self, name: str) -> Signal:
        """A signal by its name.

        Args:
          name: of the signal.

        Raises:
          KeyError: no signal has that name.
        """
        return self.rows[self.place(name)]


BUILT_IN_SET = SignalSet(BUILT_IN)
SIGNAL_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
SIGNAL_NAME_RULE = "a small letter, then up to 39 small letters, digits or underscores"
WIDEST_RANGE = 1e12  # a number without a unit that is known may be this large, either way
# Units of a user's signal that are known by name, with their ranges. Any other text is a unit
# without a range.
UNITS: Mapping[str, Unit] = {
    "probability": Unit("probability", 0.0, 1.0),
    "share": SHARE,
    "cosine": COSINE,
    "squared_l2": SQUARED_L2,
    "points": POINTS,
    "count": Unit("count", 0.0, 1e9),
    "milliseconds": Unit("number of milliseconds", 0.0, 1e9),
    "logit": Unit("logit", -1e6, 1e6),
    "log_probability": Unit("logarithm of a probability", -1e6, 0.0),
}
DECLARED_KEYS = frozenset({"higher", "unit", "stage", "missing", "source", "version"})
MAX_TEXT_CHARACTERS = 200  # characters of a unit, a version and a source


def signal(name: str) -> Signal:
    """A built-in signal by its name.

    Args:
      name: of the signal.

    Raises:
      KeyError: no signal has that name.

    Example:
      >>> signal("top1_cosine").unit.described
      'a cosine, not a percentage'
    """
    return BUILT_IN_SET.signal(name)


def is_name(name: object) -> bool:
    """Whether a text can name a signal.

    Small letters, digits and underscores, at most 40, a letter first.

    Args:
      name: anything; what is not a text is no name.
    """
    return isinstance(name, str) and SIGNAL_NAME.fullmatch(name) is not None


def check_name(name: object) -> str:
    """Name of a user's own signal.

    Args:
      name: to check.

    Raises:
      ValueError: it is no name, or that of a built-in signal.

    Example:
      >>> check_name("judge")
      'judge'
    """
    if not isinstance(name, str) or not is_name(name):
        name_text = repr(name)
        shown_text = (
            name_text
            if len(name_text) <= 80
            else f"{name_text[:80]}... ({len(name_text):,} characters)"
        )
        message = (
            f"a signal's name must be {SIGNAL_NAME_RULE}, got {shown_text}; "
            "rename it, as in no_answer_score."
        )
        raise ValueError(message)
    if name in NAMES:
        message = f"a signal must not have the name of a built-in one, got {name!r}; rename it."
        raise ValueError(message)
    return name


def unit_of(unit: str | Unit) -> Unit:
    """Unit by its name; a text that is none of `UNITS` is a unit without a range.

    Args:
      unit: a unit as it is, the name of one of `UNITS`, or a text.

    Raises:
      ValueError: it is empty or too long.

    Example:
      >>> unit_of("probability").high, unit_of("clicks a day").described
      (1.0, 'a clicks a day')
    """
    if isinstance(unit, Unit):
        return unit
    if not _is_line(unit) or not unit.strip():
        rule = f"a unit must be a text of 1 to {MAX_TEXT_CHARACTERS} characters on one line"
        known_units = ", ".join(UNITS)
        message = (
            f"{rule}, got {str(unit)[:80]!r}; name one of {known_units}, or say what is measured."
        )
        raise ValueError(message)
    return UNITS.get(unit, Unit(unit, -WIDEST_RANGE, WIDEST_RANGE))


def _is_line(line_text: object) -> bool:
    """Whether a value is a text that tables and messages have room for."""
    return (
        isinstance(line_text, str)
        and len(line_text) <= MAX_TEXT_CHARACTERS
        and line_text.isprintable()
    )


DECLARATION_REMEDIES = {  # of declarations that are none
    "higher": "surer is where more of it speaks for an answer, ask where it speaks for asking back",
    "stage": "it is measured from the query alone, from its hits, or from the answer",
    "missing": "a case without a value is stopped by its gate, or passes it",
}


def own_signal(
    name: str,
    *,
    higher: str,
    unit: str | Unit,
    stage: str = "hits",
    missing: str = "fires",
    source: str = "",
    version: str = "",
) -> Signal:
    """Declaration of a user's own signal.

    Args:
      name: of the signal.
      higher: `surer` where more of it speaks for an answer, `ask` where it speaks for asking back.
      unit: one of `UNITS` or any words.
      stage: the stage after which it is measured.
      missing: effect of a NaN on a gate, `fires` or `passes`.
      source: its origin, in words.
      version: of its origin.

    Raises:
      ValueError: an argument that is none of those; names it and what it may be.

    Source: rule S2.15.
    """
    # Refused where it is declared, since a policy or trace with it would fail far from the cause.
    for argument_name, argument, allowed_values in (
        ("higher", higher, get_args(Higher)),
        ("stage", stage, get_args(Stage)),
        ("missing", missing, get_args(Missing)),
    ):
        if not isinstance(argument, str) or argument not in allowed_values:
            rule = (
                f"{argument_name} of signal {check_name(name)} must be "
                f"one of {', '.join(allowed_values)}"
            )
            message = f"{rule}, got {str(argument)[:80]!r}; {DECLARATION_REMEDIES[argument_name]}."
            raise ValueError(message)
    for argument_name, origin_text in (("source", source), ("version", version)):
        if not _is_line(origin_text):
            rule = (
                f"{argument_name} of signal {check_name(name)} must be one "
                f"line of at most {MAX_TEXT_CHARACTERS}"
            )
            message = f"{rule} characters, got {str(origin_text)[:80]!r}; shorten it."
            raise ValueError(message)
    meaning = f"your own: {source}" if source else "your own"
    signal_kinds: Any = {"direction": higher, "stage": stage, "missing": missing}
    # Stored: raglab cannot measure it from the hits, so that a trace has to hold its column.
    return Signal(
        check_name(name),
        unit_of(unit),
        meaning=meaning,
        **signal_kinds,
        stored=True,
        version=version,
        source=source,
    )


def declaration(declared: Signal) -> dict[str, Any]:
    """Declaration of a user's own signal as a trace's meta holds it; `declared_signal` reads it.

    Args:
      declared: signal of the user.
    """
    signal_unit = declared.unit
    unit_name = next(
        (known_name for known_name, known_unit in UNITS.items() if known_unit == signal_unit), None
    )
    unit_fields = {
        "name": signal_unit.name,
        "low": signal_unit.low,
        "high": signal_unit.high,
        "whole": signal_unit.whole,
    }
    return {
        "higher": declared.direction,
        "unit": unit_name
        or (signal_unit.name if unit_of(signal_unit.name) == signal_unit else unit_fields),
        "stage": declared.stage,
        "missing": declared.missing,
        "source": declared.source,
        "version": declared.version,
    }


def declared_signal(name: str, stated: object) -> Signal:
    """A user's own signal as a trace's meta declares it.

    Args:
      name: of the signal.
      stated: declaration in the trace's meta.

    Raises:
      ValueError: it is no declaration.
    """
    if not isinstance(stated, Mapping) or set(stated) != DECLARED_KEYS:
        rule = f"signal {str(name)[:80]!r} must be declared by {', '.join(sorted(DECLARED_KEYS))}"
        message = f"{rule}, got {str(stated)[:80]!r}; add it again by with_signal."
        raise ValueError(message)
    declared_unit = stated["unit"]
    if isinstance(declared_unit, Mapping):
        declared_unit = _stated_unit(name, declared_unit)
    return own_signal(check_name(name), **{**stated, "unit": declared_unit})


def _stated_unit(signal_name: str, unit_fields: Mapping[str, Any]) -> Unit:
    """Unit of a user's own signal that a declaration states with its range."""
    unit_name, range_low, range_high, is_whole = map(
        unit_fields.get, ("name", "low", "high", "whole")
    )
    range_ends = [
        float(range_end)
        for range_end in (range_low, range_high)
        if isinstance(range_end, int | float)
    ]
    is_range = len(range_ends) == 2 and -math.inf < range_ends[0] < range_ends[1] < math.inf
    if not (is_range and isinstance(is_whole, bool) and len(unit_fields) == 4):
        rule = f"the unit of signal {str(signal_name)[:80]!r} must state name, low, high and whole"
        message = (
            f"{rule}, and be a range, got {str(dict(unit_fields))[:80]!r}; add it by with_signal."
        )
        raise ValueError(message)
    return Unit(unit_of(unit_name).name, range_ends[0], range_ends[1], is_whole)  # type: ignore[arg-type]


def degenerate_scores(
    s_rerank: NDArray[np.float64],
    s_raw: NDArray[np.float64],
    text: NDArray[np.integer[Any]],
    reranked: NDArray[np.bool_],
    min_texts: int = 3,
) -> NDArray[np.bool_]:
    """Whether a reranker output says nothing, so another score replaces it for the whole query.

    Args:
      s_rerank: reranker's score, [..., K].
      s_raw: reranker's raw score, [..., K].
      text: number of the hit's text, [..., K].
      reranked: whether the hit was reranked, [..., K].
      min_texts: different texts over which equal raw scores say nothing.

    Returns:
      bool [...]: nothing was reranked, a score is NaN or outside [0, 1], or all raw scores are
        equal over `min_texts` or more different texts.

    Source: rule S2.8.
    """
    is_invalid = reranked & ~((s_rerank >= 0.0) & (s_rerank <= 1.0))
    lowest_raw = np.where(reranked, s_raw, np.inf).min(axis=-1, initial=np.inf)
    highest_raw = np.where(reranked, s_raw, -np.inf).max(axis=-1, initial=-np.inf)
    sorted_texts = np.sort(np.where(reranked, text, -1), axis=-1)
    n_texts = (np.diff(sorted_texts, axis=-1, prepend=-1) != 0).sum(axis=-1)
    return (
        ~reranked.any(axis=-1)
        | is_invalid.any(axis=-1)
        | ((lowest_raw == highest_raw) & (n_texts >= min_texts))
    )


def retrieval_confidence(
    s_rerank: NDArray[np.float64],
    s_hybrid: NDArray[np.float64],
    degenerate: NDArray[np.bool_],
    blend: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Retrieval confidence, 0 to 100: a hundred times the best final score among the top hits.

    0 without hits.

    Args:
      s_rerank: of the first `final_k` hits in the arm's order, [K, ...]; NaN for no hit.
      s_hybrid: score of the same hits that replaces it where the reranker says nothing, [K, ...]:
        the hybrid score, or the calibrated cosine.
      degenerate: whether the reranker says nothing, [...].
      blend: share of the reranker in the final score, in [0, 1], broadcast against [...].

    Source: confidence heuristics, section 3 (rule S2.8).

    Example:
      >>> float(
      ...     retrieval_confidence(
      ...         np.array([0.25, 0.5]), np.array([1.0, 0.5]), np.array(False), 1.0
      ...     )
      ... )
      50.0
    """
    is_pure = np.equal(blend, 1.0)
    mixed_scores = (
        s_rerank
        if np.all(is_pure)
        else np.where(is_pure, s_rerank, blend * s_rerank + (1.0 - blend) * s_hybrid)
    )
    final_scores = np.where(degenerate, s_hybrid, mixed_scores)
    best_score = (
        np.fmax.reduce(final_scores, axis=0)
        if len(final_scores)
        else np.full(final_scores.shape[1:], np.nan)
    )
    return np.where(np.isnan(best_score), 0.0, 100.0 * best_score)
