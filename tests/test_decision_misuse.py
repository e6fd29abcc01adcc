"""Swapped arguments, other argument and path names, answered with what was meant.

See `raglab.decision.misuse`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import raglab
from effort import lines_run
from raglab.decision.misuse import takes
from raglab.extension_points import MissingExtensionError
from raglab.values import Case, Chunk, Corpus

POLICY = raglab.Policy.from_mapping({})
FRAME = pd.DataFrame(
    {
        "query": ["What is it?", "Where is it?"],
        "hit_id": ["a#1", "b#1"],
        "text": ["It is a nest.", "It is here."],
        "score": [0.5, 0.9],
        "expect_status": ["ok", "ok"],
    }
)
CORPUS = Corpus("nests", (Chunk("a#1", "It is a nest.", "a.md", 1),))
CASES = [Case("q1", "What is it?", "ok")]
KINDS = {
    "trace": "Trace.load",
    "policy": "Policy.load",
    "policies": "Policy.load",
    "corpus": "load_corpus",
    "cases": "load_cases",
    "frame": "pandas.read_parquet",
}


@pytest.fixture(scope="module")
def trace() -> raglab.Trace:
    """A trace of two cases."""
    return raglab.trace_from_frame(FRAME, score="cosine")


SWAPPED: list[tuple[str, Callable[[Any], object], str]] = [
    ("build_trace", lambda _: raglab.build_trace(CASES, CORPUS), "corpus, cases"),
    ("decide", lambda trace: raglab.decide(POLICY, trace), "trace, policy"),
    ("sweep", lambda trace: raglab.sweep([POLICY], trace), "trace, policies"),
    ("steps", lambda trace: raglab.steps(POLICY, trace), "trace, policy"),  # type: ignore[arg-type]
    ("flips", lambda trace: raglab.flips(POLICY, trace, "q1"), "trace, policy"),
    ("compare", lambda trace: raglab.compare(POLICY, POLICY, trace), "trace, a, b"),
    ("certify_policy", lambda trace: raglab.certify_policy(POLICY, trace), "trace, policy"),
    ("check_policy", lambda trace: raglab.check_policy(POLICY, trace), "trace, policy"),
    ("certify_best", lambda trace: raglab.certify_best(POLICY, trace), "trace, candidates"),
    (
        "write_report",
        lambda trace: raglab.write_report({"defaults": POLICY}, trace, out="a.html"),
        "trace, policies, out",
    ),
    ("save_cases", lambda _: raglab.io.save_cases("cases.jsonl", CASES), "cases, path"),
]


@pytest.mark.parametrize(("name", "call", "order"), SWAPPED, ids=[name for name, _, _ in SWAPPED])
def test_swapped_arguments_are_named_in_their_order(
    name: str, call: Callable[[Any], object], order: str, trace: raglab.Trace
) -> None:
    """Whichever comes first in the function: what came, and the order that is right."""
    with pytest.raises(
        TypeError, match=rf"^{name} takes {order} in this order, got .*; swap them\.$"
    ):
        call(trace)


def public(name: str) -> Any:
    """A public name; None where its extension is not installed."""
    try:
        return getattr(raglab, name)
    except MissingExtensionError:
        return None


def verbs() -> list[tuple[str, str]]:
    """Public functions with each argument that is a trace, policy, corpus, cases or frame."""
    functions = {name: public(name) for name in raglab.__all__}
    return [
        (name, parameter)
        for name, function in functions.items()
        if inspect.isfunction(function)
        for parameter in inspect.signature(function).parameters
        if parameter in KINDS
    ]


@pytest.mark.parametrize(("name", "parameter"), verbs())
def test_a_path_where_a_value_is_meant_is_answered_by_every_verb(name: str, parameter: str) -> None:
    """With the call that opens it: `raglab.Trace.load('out/a.parquet')`."""
    function: Any = getattr(raglab, name)
    for path in ("out/a.parquet", Path("out/a.parquet")):
        with pytest.raises(
            TypeError,
            match=rf"^{name}: {parameter} must be .*{KINDS[parameter]}\('out/a.parquet'\)\.$",
        ):
            _call(function, parameter, path)


@pytest.mark.parametrize(("name", "parameter"), verbs())
def test_no_value_at_all_and_plain_ones_are_answered_by_every_verb(
    name: str, parameter: str
) -> None:
    """None where it is not the default, numbers and lists of them: rule, value, remedy."""
    function: Any = getattr(raglab, name)
    is_default = inspect.signature(function).parameters[parameter].default is None
    for value, shown in (
        (None, "None"),
        (3, "3"),
        (True, "True"),
        (0.5, "0.5"),
        ([1], "a list of int"),
        (b"x", "b'x'"),
    ):
        if not (value is None and is_default):
            with pytest.raises(
                TypeError, match=rf"^{name}: {parameter} must be .*, got {shown}; .+\.$"
            ):
                _call(function, parameter, value)


def _call(function: Any, parameter: str, value: object) -> None:
    """Call with one argument, and an object of no known kind for the others that it needs."""
    needed = [
        name
        for name, one in inspect.signature(function).parameters.items()
        if one.default is one.empty and one.kind is not one.VAR_KEYWORD
    ]
    function(**{**dict.fromkeys(needed, object()), parameter: value})


def test_a_keyword_of_another_library_or_with_a_slip_is_answered(trace: raglab.Trace) -> None:
    """`n_trials` means trials; a slip means its neighbour; workers are named where they are."""
    tune: Any = raglab.tune
    for more, told in (
        ({"n_trials": 100}, r"^tune has no argument n_trials; did you mean trials\?$"),
        ({"triels": 100}, r"did you mean trials\?$"),
        ({"random_state": 0}, r"did you mean seed\?$"),
        (
            {"targets": {}},
            r"^tune has no argument targets; write goal=raglab\.Goal\(targets=…\)\.$",
        ),
        ({"costs": {}}, r"^tune has no argument costs; write goal=raglab\.Goal\(costs=…\)\.$"),
        ({"n_jobs": 4}, r"raglab\.lab\.parallel_workers"),
        ({"quux": 4}, r"^tune has no argument quux; it takes trace, policy, arm, rule, "),
    ):
        with pytest.raises(TypeError, match=told):
            tune(trace, **more)
    with pytest.raises(
        TypeError, match=r"^tune takes trace, policy by position, got 3 arguments; .*arm="
    ):
        tune(trace, POLICY, "hybrid")
    with pytest.raises(
        TypeError, match=r"^tune takes trace, policy in this order, got .*; swap them\.$"
    ):
        tune(POLICY, trace)
    build: Any = raglab.build_trace
    with pytest.raises(
        TypeError, match=r"^build_trace has no argument n_jobs; .*raglab\.lab\.parallel_workers"
    ):
        build(CORPUS, CASES, n_jobs=4)
    with pytest.raises(ValueError, match=r"build_trace has no setting 'fetchk'; it takes arms"):
        build(CORPUS, CASES, fetchk=4)


def test_another_kind_of_value_is_answered_with_what_makes_one_of_it(trace: raglab.Trace) -> None:
    """A frame, a corpus or cases for a trace; a mapping, many or a result for a policy.

    One for many.
    """
    decide: Any = raglab.decide
    sweep: Any = raglab.sweep
    report: Any = raglab.write_report
    fitted = type("Fitted", (), {"policy": POLICY})()
    for call, told in (
        (lambda: decide(FRAME, POLICY), r"got a DataFrame; .*raglab\.trace_from_frame\(frame\)"),
        (lambda: decide(CORPUS, POLICY), r"got a corpus; .*raglab\.build_trace\(corpus, cases\)"),
        (lambda: decide(CASES, POLICY), r"got cases; .*raglab\.build_trace\(corpus, cases\)"),
        (lambda: decide(trace, {}), r"got a mapping; .*raglab\.Policy\.from_mapping\(mapping\)"),
        (lambda: decide(trace, [POLICY]), r"got policies; .*raglab\.sweep"),
        (lambda: decide(trace, fitted), r"got a result; give its \.policy"),
        (lambda: sweep(trace, POLICY), r"got a policy; put it in a list"),
        (
            lambda: sweep(trace, {"a": {}}),
            r"got a mapping; .*raglab\.Policy\.from_mapping\(mapping\)",
        ),
        (
            lambda: decide(trace, {"a": POLICY}),
            r"got a mapping of names to policies; .*raglab\.sweep",
        ),
        (
            lambda: report(trace, [POLICY], out="a.html"),
            r"got policies; name each: \{'defaults': policy",
        ),
        (
            lambda: report(trace, POLICY, out="a.html"),
            r"got a policy; name it: \{'defaults': policy\}",
        ),
        (
            lambda: decide(trace),
            r"policy must be a policy, got nothing; .*raglab\.Policy\.load\(\)",
        ),
        (
            lambda: raglab.ask("What?"),
            (
                r"system must be a System or the folder of an index, got nothing; "
                r".*raglab\.System\.open"
            ),
        ),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=told):
            call()


class System:
    """A system by its name, which is all that its kind is read from."""

    policy = POLICY
    audit = None


SYSTEM = System()
NOT_WHAT_IS_MEANT: list[tuple[str, Callable[[Any, Any], object], str]] = [
    (
        "live_rates",
        lambda door, _: door.live.live_rates(SYSTEM),
        r"log must be an audit log, got a System; give its log: system\.audit",
    ),
    (
        "live_rates",
        lambda door, _: door.live.live_rates("a.db"),
        r"first: raglab\.AuditLog\('a\.db'\), .* file audit\.sqlite in it",
    ),
    (
        "slices",
        lambda door, trace: door.lab.slices(trace),
        r"got a trace; decide first: raglab\.decide\(trace, policy\)",
    ),
    (
        "tune_clarification",
        lambda door, trace: door.tune_clarification(trace, trace),
        r"got a trace; .*default_learner\.world",
    ),
    (
        "explain",
        lambda door, _: door.explain("r1", SYSTEM),
        r"got a System; give its log, system\.audit, or .* system=system",
    ),
    ("explain", lambda door, _: door.explain(SYSTEM), "request_id must be a text, got a System"),
    (
        "add_signals",
        lambda door, trace: door.add_signals(trace, trace),
        "signals must be names of signals .*, got a trace",
    ),
    (
        "fusion_weights",
        lambda door, trace: door.lab.fusion_weights(trace, weights=POLICY),
        "weights must be .*, got a policy",
    ),
    (
        "fusion_weights",
        lambda door, trace: door.lab.fusion_weights(trace, weights=0.5),
        "got 0.5; put them in a list",
    ),
    ("ask", lambda door, _: door.ask("q", system=None), "got None; .*System.open"),
    ("ask", lambda door, _: door.ask("q", systm=SYSTEM), "no argument systm; did you mean system"),
    (
        "reply",
        lambda door, _: door.reply("r1", "yes", system=SYSTEM, questions="q"),
        "did you mean question",
    ),
    (
        "reply",
        lambda door, _: door.reply(type("Response", (), {})(), "yes", system=SYSTEM),
        r"request_id must be a text, got a response; give its id: response\[\"request_id\"\]",
    ),
    (
        "reply",
        lambda door, _: door.reply({}, "yes", system=SYSTEM),
        r"got a mapping; .*response\[\"request_id\"\]",
    ),
    ("feedback", lambda door, _: door.feedback("r1", True, lab=SYSTEM), "did you mean system"),
    (
        "buttons",
        lambda door, trace: door.live.buttons(trace, system=SYSTEM),
        "got a trace; ask first: raglab.ask",
    ),
    ("buttons", lambda door, _: door.live.buttons({}, lab=SYSTEM), "did you mean system"),
    ("load_cases", lambda door, _: door.load_cases("a.csv", column={}), "did you mean columns"),
    ("load_cases", lambda door, _: door.load_cases(CASES), "got cases; they are cases already"),
    ("load_corpus", lambda door, _: door.load_corpus("a", max_words=3), "max_tokens"),
    (
        "load_corpus",
        lambda door, _: door.load_corpus(CORPUS),
        "got a corpus; it is a corpus already",
    ),
    (
        "build_trace",
        lambda door, _: door.build_trace(CORPUS, CASES[0]),
        "got a single case; put it in a list",
    ),
    (
        "build_trace",
        lambda door, _: door.build_trace(CORPUS, ["What?"]),
        r"got a list of str; .*raglab\.load_cases",
    ),
    (
        "build_trace",
        lambda door, _: door.build_trace(CORPUS, FRAME),
        r"got a DataFrame; .*raglab\.load_cases\(frame\)",
    ),
    (
        "build_index",
        lambda door, _: door.build_index(CORPUS, None),
        "folder must be a path, got None",
    ),
    ("decide", lambda door, trace: door.decide([trace], POLICY), "got traces; give one of them"),
    ("decide", lambda door, _: door.decide([], POLICY), "got an empty list; "),
    ("decide", lambda door, trace: door.decide(trace, SYSTEM), r"got a System; give its \.policy"),
    ("sweep", lambda door, trace: door.sweep(trace, [{}]), "got a list of dict; .*from_mapping"),
    (
        "compare",
        lambda door, trace: door.compare(trace, POLICY, None),
        "b must be a policy, got None",
    ),
    ("System.open", lambda door, _: door.System.open(3), r"folder .*got 3; .*raglab\.build_index"),
    (
        "System.open",
        lambda door, _: door.System.open(),
        r"folder .*got nothing; .*raglab\.build_index",
    ),
    (
        "System.open",
        lambda door, _: door.System.open(CORPUS),
        r"got a corpus; .*raglab\.build_index",
    ),
    (
        "System.open",
        lambda door, _: door.System.open("a", policy=3),
        r"policy .*got 3; .*Policy\.load",
    ),
    ("System.open", lambda door, _: door.System.open("a", strategy="hybrid"), "did you mean arm"),
    ("Policy.load", lambda door, _: door.Policy.load(3), "got 3; .*policy.yaml"),
    ("Policy.load", lambda door, _: door.Policy.load({}), r"got a mapping; .*Policy\.from_mapping"),
    ("Policy.load", lambda door, _: door.Policy.load(POLICY), "got a policy; it is loaded"),
    (
        "Trace.with_signal",
        lambda _, trace: trace.with_signal("j", [1.0]),
        "higher .*got nothing; .*surer.*ask",
    ),
    (
        "Trace.with_signal",
        lambda _, trace: trace.with_signal("j", [1.0], higher="surer"),
        r"unit .*got nothing; .*raglab\.signals\.UNITS",
    ),
    (
        "Trace.with_signal",
        lambda _, trace: trace.with_signal("j", higher="ask", unit="share"),
        "got no values",
    ),
    (
        "Trace.with_signal",
        lambda _, trace: trace.with_signal("j", [1.0], higer="ask", unit="x"),
        "did you mean higher",
    ),
]


@pytest.mark.parametrize(("name", "call", "told"), NOT_WHAT_IS_MEANT)
def test_a_value_that_is_not_what_is_meant_is_answered_with_what_is(
    name: str, call: Callable[[Any, Any], object], told: str, trace: raglab.Trace
) -> None:
    """At the door of each verb: rule, value, remedy."""
    with pytest.raises(TypeError, match=rf"^{name}\b.*{told}.*[.?]$"):
        call(raglab, trace)


def test_an_object_of_another_class_passes() -> None:
    """What quacks is for the function to say.

    So are empty lists of many, and None where it is the default.
    """
    taken = takes(trace="trace", cases="cases", policy="policy")(
        lambda trace, cases, policy=None: (trace, cases, policy)
    )
    for value in (object(), np.zeros(2), iter(())):
        assert taken(value, [], None) == (value, [], None)
    assert taken(object(), (object(),), policy=object())
    with pytest.raises(TypeError, match=r"cases must be cases, got nothing; .*load_cases"):
        taken(object())


def test_what_is_right_passes(trace: raglab.Trace) -> None:
    """By position and by name, None where there is a default, and any sequence."""
    assert len(raglab.decide(trace, policy=POLICY).frame()) == 2
    assert len(raglab.sweep(trace, (POLICY, POLICY))) == 2
    by_name = raglab.sweep(trace, {"first": POLICY, "second": POLICY})
    assert (by_name.index.name, [*by_name.index]) == ("policy", ["first", "second"])
    pd.testing.assert_frame_equal(
        by_name.reset_index(drop=True), raglab.sweep(trace, [POLICY, POLICY])
    )
    assert len(raglab.audit_signals(trace, policy=None, repeats=0).table) > 0


def test_signature_and_docstring_stay_and_a_call_costs_little(trace: raglab.Trace) -> None:
    """What an editor shows is the function; a call runs some lines more."""
    assert list(inspect.signature(raglab.tune).parameters)[:3] == ["trace", "policy", "arm"]
    assert str(raglab.tune.__doc__).startswith("Find the policy")
    assert raglab.tune.__module__ == "raglab.lab.study"

    def plain(trace: object, policy: object) -> tuple[object, object]:
        return trace, policy

    marked = takes(trace="trace", policy="policy")(plain)
    assert lines_run(lambda: marked(trace, POLICY)) < lines_run(lambda: plain(trace, POLICY)) + 40


def test_a_warning_points_at_the_call() -> None:
    """Of the user, not of what checks the arguments."""
    with pytest.warns(UserWarning, match="gates") as caught:
        raglab.trace_from_frame(
            FRAME.rename(columns={"score": "bm25"}),
            score=None,
            signals={"bm25": {"higher": "surer", "unit": "score"}},
        )
    assert caught[0].filename == __file__
    wrong = [Case("q1", "What is it?", "ok", expect_sources_any=("a.md", "z.md"))]
    with pytest.warns(UserWarning, match="the corpus has not among") as caught:
        raglab.build_trace(CORPUS, wrong, cache=None)
    assert __file__ in {warning.filename for warning in caught}
