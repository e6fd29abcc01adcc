"""Questions, documents and ids that are none, through `ask` and the graph.

Both answer alike, or both refuse.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fuzz.mutation import hostile_value, pick, shown
from fuzz.outcomes import CASES, Trial, fuzz, report
from fuzz.shop import QUESTIONS, words_for_models
from labelled import free_policy
from live_worlds import CORPUS, SMALL
from raglab.live.ask import ask
from raglab.live.langgraph_chain import build_graph
from raglab.live.system import System, build_index

pytest.importorskip("langgraph")

ALIKE = ("status", "refused", "confidence", "route", "options", "policy_id")
DOCUMENTS = (
    "motor.md",
    "motor.md#1",
    "faq.txt",
    "absent.md",
    "motor.md#99",
    "motor.md#x",
    "",
    "#",
    "docs/../motor.md",
)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """Return a system that keeps nothing."""
    place = tmp_path_factory.mktemp("graph") / "i"
    with words_for_models(place.parent / "kept"):
        build_index(CORPUS, place, cache=None, **SMALL)
        yield System.open(place, policy=free_policy(), arm="hybrid", cache=False, audit=False)


def state(rng):
    """What is asked, with one or two parts that may be none."""
    asked: dict[str, Any] = {"question": pick(rng, QUESTIONS)}
    for _ in range(int(rng.integers(1, 3))):
        kind = int(rng.integers(4))
        if kind == 0:
            asked["question"] = (
                hostile_value(rng)
                if rng.random() < 0.5
                else f"{QUESTIONS[0]} {hostile_value(rng)!s:.300}"
            )
        elif kind == 1:
            named = [pick(rng, DOCUMENTS) for _ in range(int(rng.integers(3)))]
            asked["documents"] = (
                named
                if rng.random() < 0.6
                else pick(rng, (hostile_value(rng), [hostile_value(rng)]))
            )
        elif kind == 2:
            asked["selected_option"] = pick(
                rng, (0, 1, 2, -1, 10**30, True, 1.0, "1", None, float("nan"))
            )
        else:
            asked["request_id"] = hostile_value(rng)
    return asked


def both(system, graph, asked):
    """Responses of `ask` and of the graph; where one refuses, so does the other."""
    more = {name: value for name, value in asked.items() if name != "question"}
    try:
        said = dict(ask(asked["question"], system=system, **more))
    except (ValueError, TypeError) as error:
        try:
            graph.invoke(asked)
        except type(error):
            raise error from None
        msg = f"the graph answers what ask refuses: {error}"
        raise AssertionError(msg) from error
    return said, graph.invoke(asked)["response"]


def unlike(found):
    """In what the two responses differ."""
    said, drawn = found
    return ", ".join(name for name in ALIKE if repr(said[name]) != repr(drawn[name]))


def test_what_is_no_question(system):
    """A tenth of the cases, since each runs the whole chain twice."""
    graph = build_graph(system)

    def draw(rng):
        asked = state(rng)
        return Trial(shown(asked, 500), partial(both, system, graph, asked), unlike)

    failures = fuzz("ask and LangGraph", draw, None, -(-CASES // 20))
    assert not failures, report(failures)


def test_the_sample_is_answered(system, tmp_path):
    """Without a change both answer."""
    del tmp_path
    assert not unlike(both(system, build_graph(system), {"question": QUESTIONS[0]}))
