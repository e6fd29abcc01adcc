"""The page of recipes.

Its blocks run in order on samples of each form, print what it says, and decide rightly.
"""

from __future__ import annotations

import re
import shutil
import uuid
import warnings
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import raglab

PAGE = Path(__file__).parents[1] / "docs" / "recipes.md"
SAMPLES = Path(__file__).parent / "data" / "recipes"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
MOST_LINES, MOST_BLOCK_LINES, MOST_BYTES = 220, 20, 6_000

QUESTIONS = [
    "When does the tool library open?",
    "What is the deposit for a drill?",
    "Who won the cup final?",
]
QUESTIONS.append("Do you lend boats?")
OPENING, DEPOSIT, LATE = (uuid.UUID(int=number) for number in (7, 8, 9))
TEXTS = {
    OPENING: "The tool library opens on Tuesdays and Saturdays.",
    DEPOSIT: "A drill needs a deposit of 40 EUR.",
    LATE: "A late tool costs 2 EUR a day.",
}
SIMILARITIES = {
    QUESTIONS[0]: {OPENING: 0.81, LATE: 0.35},
    QUESTIONS[1]: {DEPOSIT: 0.74, LATE: 0.52},
    QUESTIONS[2]: {LATE: 0.12, OPENING: 0.11},
    QUESTIONS[3]: {},
}


def nodes_of(question):
    """Hits with the attributes of LlamaIndex's `NodeWithScore`."""
    return [
        SimpleNamespace(
            node_id=str(name),
            score=score,
            text=TEXTS[name],
            metadata={"file_path": f"{name.int}.md"},
        )
        for name, score in SIMILARITIES[question].items()
    ]


def database_rows():
    """Rows as a driver of PostgreSQL gives them.

    UUIDs, floats, None where a left join found nothing.
    """
    rows: list[tuple[Any, ...]] = []
    for number, (question, hits) in enumerate(SIMILARITIES.items(), start=1):
        rows += [(number, question, name, TEXTS[name], 1.0 - score) for name, score in hits.items()]
        rows += [] if hits else [(number, question, None, None, None)]
    return rows


def chroma_result():
    """What `collection.query` of Chroma gives for several texts, squared L2 distances."""
    return {
        "ids": [[str(name) for name in hits] for hits in SIMILARITIES.values()],
        "documents": [[TEXTS[name] for name in hits] for hits in SIMILARITIES.values()],
        "distances": [
            [2.0 - 2.0 * score for score in hits.values()] for hits in SIMILARITIES.values()
        ],
    }


class PageRun(NamedTuple):
    """The page after a run: what its blocks define, print, and warn of."""

    names: dict[str, Any]
    printed: list[list[str]]
    messages: list[str]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Blocks run one after another in a fresh folder that holds the samples alone."""
    folder = tmp_path_factory.mktemp("recipes") / "page"
    shutil.copytree(SAMPLES, folder)
    names: dict[str, Any] = {
        "questions": QUESTIONS,
        "retriever": SimpleNamespace(retrieve=nodes_of),
        "rows": database_rows(),
        "result": chroma_result(),
    }
    printed = []
    with chdir(folder), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for block in BLOCKS:
            with redirect_stdout(StringIO()) as stream:
                # the project's own page
                exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102
            printed.append(stream.getvalue().splitlines())
    return PageRun(names, printed, [str(warning.message) for warning in caught])


# name of the trace on the page -> signal that it has, and whether distances are measured
SOURCES = {
    "langfuse": "similarity",
    "llamaindex": "node_score",
    "haystack": None,
    "pgvector": None,
    "by_distance": "distance",
    "opensearch": "bm25",
    "chroma": None,
}


def test_the_page_prints_what_it_says(page):
    """Each `# ->` of a block is what the block prints."""
    for block, printed in zip(BLOCKS, page.printed, strict=True):
        assert re.findall(r"# -> (.*)", block) == printed
        assert printed


@pytest.mark.parametrize("source", SOURCES)
def test_four_questions_and_the_best_hit_first(page, source):
    """Each source gives the same four cases.

    The hit that answers a question is the first, whichever way it counts.
    """
    trace = page.names[source]
    assert [case.query for case in trace.cases] == QUESTIONS
    chunk, rank = trace.hits.chunk[:, 0, 0], trace.hits.rank[:, 0, 0]
    firsts = [
        [trace.chunks[number].text for number in chunk[row, rank[row] == 0]] for row in range(4)
    ]
    assert firsts[:2] == [[TEXTS[OPENING]], [TEXTS[DEPOSIT]]]
    assert firsts[3] == []
    assert (rank[3] == -1).all()


@pytest.mark.parametrize(
    ("source", "signal"), [(source, signal) for source, signal in SOURCES.items() if signal]
)
def test_a_gate_on_a_signal_has_the_right_direction(page, source, signal):
    """A gate between the good and the bad first hit refuses the bad one alone.

    A stricter one refuses both.
    """
    trace = page.names[source]
    higher = "ask" if signal == "distance" else "surer"
    values = trace.signal(signal).to_numpy()
    assert np.isnan(values[3])
    good, bad = values[[0, 1]], values[2]
    assert (good < bad).all() if higher == "ask" else (good > bad).all()
    bound = "max" if higher == "ask" else "min"
    between, beyond = (good.min() + bad) / 2, good.max() + (-1.0 if higher == "ask" else 1.0)
    for threshold, statuses in (
        (between, ["ok", "ok", "refuse", "refuse"]),
        (beyond, ["refuse"] * 4),
    ):
        policy = raglab.Policy.load().replace(f"signals.{signal}.{bound}", float(threshold))
        assert raglab.decide(trace, policy).frame()["status"].tolist() == statuses


def test_feedback_of_langfuse(page):
    """The last thumb of a whole trace is the label; a judge's score is none.

    Ids of digits keep their zeros.
    """
    cases = page.names["langfuse"].cases
    assert [case.expect_status for case in cases] == ["ok", None, "refuse", None]
    assert cases[0].id == "0" * 31 + "1"
    assert cases[0].extra == {"at": "2026-03-02T09:00:00+00:00"}
