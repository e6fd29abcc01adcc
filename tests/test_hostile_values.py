"""Values of another kind at every door.

Huge integers, signalling NaN, lists, booleans, texts and bytes as numbers.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab
from decided import by_cost
from fuzz.outcomes import is_clear
from raglab.decision import measurement
from raglab.gating.expected_cost import DecisionModel, SignalPart, class_probabilities, least_cost
from raglab.policy import PolicyData
from raglab.policy_parts.own_gates import REGISTERED_GATES
from raglab.signals import NAMES
from raglab.values import Status
from worlds import Hit, ask, policy, trace_of

BIG, SNAN, NAN = 10**400, Decimal("sNaN"), float("nan")
OTHER: tuple[Any, ...] = (
    BIG,
    -BIG,
    SNAN,
    [1],
    [["a"]],
    {"a": ["b"]},
    b"x",
    1 + 1j,
    object(),
    np.array([1, 2]),
    "\ud800",
    True,
    "1",
)


def check_refused(call, error=ValueError):
    """A clear message of one line, whatever the value."""
    with pytest.raises(error) as caught:
        call()
    assert is_clear(caught.value), str(caught.value)


def frame(**cells):
    """Two hits with a cell of the first one changed."""
    hits = pd.DataFrame(
        {"query": ["who?", "what?"], "hit_id": ["a", "b"], "score": [0.5, 0.6], "text": ["x", "y"]}
    )
    hits = hits.astype(object)
    for name, value in cells.items():
        hits[name] = pd.Series([value, hits[name][1] if name in hits else None], dtype=object)
    return hits


@pytest.mark.parametrize(
    "column", ["query", "score", "rank", "depth", "page", "source", "s_rerank", "entities"]
)
@pytest.mark.parametrize("value", [BIG, SNAN, {"a": ["b"]}, b"x"], ids=str)
def test_cells_of_a_frame(column, value):
    """As a cell that breaks the rule of its column."""
    check_refused(lambda: raglab.trace_from_frame(frame(**{column: value})), raglab.InputError)


@pytest.mark.parametrize(
    "column", ["id", "query", "expect_status", "min_sources", "expect_option", "other"]
)
def test_a_signalling_nan_of_a_case(column):
    """It raises where it is compared, and is no missing value."""
    cases = pd.DataFrame({"id": ["a"], "query": ["who?"], "expect_status": ["ok"]}).astype(object)
    cases[column] = pd.Series([SNAN], dtype=object)
    check_refused(lambda: raglab.load_cases(cases), raglab.InputError)


@pytest.mark.parametrize(
    "columns", [{"a": ["b"]}, {"query": {"x": 1}}, {1: "query"}, {"query": None}]
)
def test_nested_declarations_of_columns(columns):
    """Of cases and of chunks."""
    cases = pd.DataFrame({"id": ["a"], "query": ["who?"], "expect_status": ["ok"]})
    check_refused(lambda: raglab.load_cases(cases, columns=columns), raglab.InputError)
    chunks = pd.DataFrame({"id": ["a"], "text": ["x"]})
    check_refused(lambda: raglab.load_corpus(chunks, columns=columns), raglab.InputError)


@pytest.mark.parametrize(
    "index", [[[1], [2]], [{"a": 1}, {"b": 2}], [SNAN, 1], [None, None], [BIG, 1]], ids=str
)
def test_an_index_of_other_values(index):
    """A Series that is indexed by lists, objects, or what cannot be compared."""
    trace = raglab.trace_from_frame(frame())
    series = pd.Series([0.1, 0.2], index=pd.Index(index, dtype=object))
    declared: dict[str, Any] = {"higher": "surer", "unit": "probability"}
    check_refused(lambda: trace.with_signal("own", series, **declared), raglab.InputError)
    check_refused(lambda: trace.with_signal("own", [BIG, 0.2], **declared), raglab.InputError)


@pytest.mark.parametrize("value", OTHER, ids=lambda value: type(value).__name__)
def test_paths_and_values_of_a_policy(value):
    """A path that is no text, a number that is none, a section that is no mapping."""
    policy = raglab.Policy.load()
    check_refused(lambda: policy.value(value))
    check_refused(lambda: policy.replace(value, 1))
    check_refused(lambda: policy.replace("l2.max_l2", value))
    check_refused(lambda: policy.replace("chosen.final_k", value))
    check_refused(lambda: PolicyData.from_mapping({"l2": value}))
    check_refused(lambda: PolicyData.from_mapping({"gates": {"own": {"least": value}}}))
    check_refused(lambda: PolicyData.from_mapping({"fused": {"bias": value}}))
    check_refused(
        lambda: PolicyData.from_mapping({"fused": {"parts": {"gap": {"x": [value], "y": [0]}}}})
    )
    if not isinstance(value, str):
        check_refused(lambda: PolicyData.from_mapping({"notes": value}))


@pytest.mark.parametrize("value", OTHER, ids=lambda value: type(value).__name__)
def test_settings_of_a_trace(value):
    """Hits and refinements are whole numbers; an arm is a text."""
    corpus = raglab.load_corpus(pd.DataFrame({"id": ["a"], "text": ["who pays?"]}))
    cases = raglab.load_cases(
        pd.DataFrame({"id": ["a"], "query": ["who?"], "expect_status": ["ok"]})
    )
    for name in ("fetch_k", "rerank_k", "rrf_k", "max_depth", "dense_weight"):
        check_refused(
            lambda name=name: raglab.build_trace(corpus, cases, cache=None, **{name: value})
        )
    trace = raglab.trace_from_frame(frame())
    check_refused(lambda: raglab.decide(trace, raglab.Policy.load(), arm=value))


def _passes(_read, _limits):
    return 0.0


def register(name="tried", key="least", reads=("signals.confidence",), **stated):
    """Register a gate, and take it away again."""
    rows = {key: {"side": "floor", "default": 0.5, "unit": "probability"} | stated}
    try:
        raglab.register_gate(name, thresholds=rows, reads=reads)(_passes)
    finally:
        REGISTERED_GATES.pop(name, None)


@pytest.mark.parametrize(
    "key", ["class", "lambda", "def", "import", "__class__", "_replace", "on", "enabled", "", 1]
)
def test_names_of_thresholds(key):
    """A keyword of Python cannot be read as `limits.<key>`.

    A dunder name is one of the thresholds' own.
    """
    check_refused(lambda: register(key=key))


@pytest.mark.parametrize("value", OTHER, ids=lambda value: type(value).__name__)
def test_values_of_thresholds(value):
    """A default and the ends of its range are finite numbers.

    What a gate reads is a list of names.
    """
    for name in ("default", "low", "high"):
        check_refused(lambda name=name: register(**{name: value}))
    check_refused(lambda: register(side=value))
    check_refused(lambda: register(reads=value))
    check_refused(lambda: raglab.register_gate("tried", thresholds=value, reads=["words"])(_passes))


def test_weights_of_models_are_bounded():
    """Finite, no larger than any fit makes them, and no more of them."""
    good = {"center": 0.0, "scale": 1.0, "missing": 0.0, "weights": [0.0] * 4}

    def model(**changes):
        part = {name: changes.pop(name, value) for name, value in good.items()}
        stated = {
            "parts": {"gap": part},
            "bias": [0.0] * 4,
            "asked_right": 0.5,
            "structure": "0" * 12,
        } | changes
        PolicyData.from_mapping({"decision": {"model": stated}})

    model()
    for value in (NAN, float("inf"), 1e300, -1e13, True, "1", BIG):
        for name in ("center", "scale", "missing"):
            check_refused(lambda name=name, value=value: model(**{name: value}))
        check_refused(lambda value=value: model(weights=[value, 0.0, 0.0, 0.0]))
        check_refused(lambda value=value: model(bias=[0.0, value, 0.0, 0.0]))
    check_refused(lambda: model(scale=1e-300))
    check_refused(lambda: model(asked_right="0.5"))
    check_refused(lambda: model(parts={f"s{n}": good for n in range(201)}))
    knots = {"x": list(map(float, range(10_001))), "y": [0.0] * 10_001}
    check_refused(lambda: PolicyData.from_mapping({"fused": {"parts": {"gap": knots}}}))
    check_refused(
        lambda: PolicyData.from_mapping(
            {"learned_cases": {f"{n:016x}": "A" * 8 for n in range(101)}}
        )
    )


@pytest.mark.parametrize(
    "costs", [(NAN, 0.1, 0.2), (0.1, NAN, 0.2), (0.1, 0.2, NAN), (NAN, NAN, NAN), (NAN, NAN, 0.1)]
)
def test_a_cost_that_is_not_known_is_no_reason_to_act(costs):
    """NaN never answers and never asks: the case is refused."""
    assert least_cost(*costs, True).item() == Status.refuse
    assert least_cost(*(np.array([cost]) for cost in costs), np.array([True])).tolist() == [
        Status.refuse
    ]


def test_chances_that_are_none_are_refused_by_name(monkeypatch):
    """As of a model that was made in memory with weights that overflow.

    The rule is stated, nothing is decided.
    """
    trace, chosen = (
        trace_of((ask(), [[Hit(0.25), Hit(0.5)]])),
        by_cost(policy(), (0.0, 0.0, 0.0, 0.5), {}),
    )
    raglab.decide(trace, chosen)
    huge = SignalPart("groups", 0.0, 1.0, 0.0, (1.7e308, 1.7e308, 0.0, 0.0))
    model = DecisionModel(
        (huge, huge._replace(signal="gap")), (1.7e308, -1.7e308, 0.0, 0.0), 1.0, ""
    )
    with np.errstate(all="ignore"):
        chances = class_probabilities(np.full((len(NAMES), 2, 1), 9.0), model)
    assert np.isnan(chances).all()
    monkeypatch.setattr(measurement, "class_probabilities", lambda *_: chances)
    with pytest.raises(ValueError, match="must give every case finite chances"):
        raglab.decide(trace, chosen)
