"""Answers by task: a part quoted, summarised, its conditions, its steps, two sides of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raglab.answering.extractive import Extractive
from raglab.extensions.clarification.task_answers import LONGEST, MOST, TASKS, TaskAnswers
from raglab.values import Chunk

HIRE = Chunk(
    "hire.md#2-1",
    "Boat hire > Returns\nBring the boat back by noon. You must rinse the hull. Lifejackets are blue. "
    "A late return costs £12 unless the river is closed.",
    "hire.md",
    2,
)
STEPS = Chunk("hire.md#3-2", "Boat hire > Starting\n1. Check the fuel.\n2. Untie the rope.\n3. Push off.", "hire.md", 3)
OLD = Chunk("old.md#1-1", "Prices 2024 > Day\nA day on the river costs £30.", "old.md", 1)
NEW = Chunk("new.md#1-1", "Prices 2025 > Day\nA day on the river costs £35.", "new.md", 1)
TABLE = Chunk("t.md#1-1", "Prices > Rates\n| Boat | Day |\n|---|---|\n| Canoe | £30 |\n| Skiff | £45 |", "t.md", 1)


def answered(task: str, *passages: Chunk, topic: tuple[str, ...] = (), question: str = "what?", **more: object) -> str:
    """Text of the answer."""
    rows: tuple[tuple[str, str], ...] = more.get("rows", ())  # type: ignore[assignment]
    return TaskAnswers(task, question, topic=topic, rows=rows, base=Extractive()).answer("x", passages).text


class TestTasks:
    """One passage, several answers."""

    def test_the_tasks_differ(self) -> None:
        """A page, its beginning, its conditions."""
        page = answered("page", HIRE)
        assert page.startswith("Bring the boat back by noon. You must rinse the hull.")
        assert answered("extract_conditions", HIRE) == (
            "You must rinse the hull. A late return costs £12 unless the river is closed."
        )
        assert answered("summarise", HIRE, STEPS).splitlines() == ["Bring the boat back by noon.", "Check the fuel."]

    def test_a_topic(self) -> None:
        """Only lines that name it, where no heading does; all lines of a section that is on it."""
        assert answered("page", HIRE, STEPS, topic=("lifej",)) == "Lifejackets are blue."
        assert answered("cite", HIRE, STEPS, topic=("start",)) == "Check the fuel. Untie the rope. Push off."

    def test_steps_keep_their_order(self) -> None:
        """Those of the passage that speaks of it, whatever its rank."""
        assert answered("procedure", HIRE, STEPS, topic=("fuel",)).splitlines() == [
            "Check the fuel.",
            "Untie the rope.",
            "Push off.",
        ]

    def test_both_sides(self) -> None:
        """The line of each document."""
        text = answered("compare", OLD, NEW, question="How did the cost of a day change?")
        assert "£30" in text
        assert "£35" in text

    def test_rows(self) -> None:
        """The row that is named, and no other."""
        made = TaskAnswers("figures", "how much?", topic=(), rows=(("Skiff", "£45"),), base=Extractive())
        said = made.answer("x", [TABLE])
        assert (said.text, said.confidence, said.cited) == ("Skiff - Day: £45", 1.0, (0,))

    def test_no_task_is_the_base(self) -> None:
        """The narrower question, whatever is asked of it."""
        made = TaskAnswers("", "What costs £12?", topic=(), rows=(), base=Extractive())
        assert made.answer("x", [HIRE]) == Extractive().answer("What costs £12?", [HIRE])
        assert made.name == Extractive().name

    def test_confidence_is_the_share_of_the_topic(self) -> None:
        """Half of it named is a half."""
        made = TaskAnswers("page", "?", topic=("lifej", "tiger"), rows=(), base=Extractive())
        assert made.answer("x", [HIRE]).confidence == pytest.approx(0.5)

    def test_nothing_to_say(self) -> None:
        """A passage without a sentence."""
        said = TaskAnswers("page", "?", topic=(), rows=(), base=Extractive()).answer("x", [])
        assert (said.text, bool(said.reason)) == ("", True)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    st.sampled_from(TASKS),
    st.lists(st.sampled_from([HIRE, STEPS, OLD, NEW, TABLE]), min_size=1, max_size=4, unique_by=id),
    st.lists(st.sampled_from(["boat", "river", "fuel", "canoe"]), max_size=2, unique=True),
)
def test_every_line_is_verbatim_and_bounded(task: str, passages: list[Chunk], topic: list[str]) -> None:
    """Nothing is said that no passage says, in any order of the passages."""
    said = TaskAnswers(task, "what of it?", topic=tuple(topic), rows=(), base=Extractive()).answer("x", passages)
    assert len(said.text) <= 2 * LONGEST
    assert len(said.text.splitlines()) <= 2 * MOST
    words = set(" ".join(passage.text for passage in passages).replace("|", " ").split())
    assert all(word.strip(":;-") in words or word in words or not word.strip(":;-") for word in said.text.split()) or (
        task in {"compare", "figures"}
    )
    if task not in {"compare", "procedure", "figures"}:
        turned = TaskAnswers(task, "what of it?", topic=tuple(topic), rows=(), base=Extractive())
        assert turned.answer("x", passages[::-1]).text == said.text
