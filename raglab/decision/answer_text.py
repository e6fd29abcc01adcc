"""Text of recorded answers (algebra): which is right, on what basis a trace is judged (S6.3).

A case labelled ok that has a gold answer, in a trace that holds recorded answers, is judged by text
as well as by its sources. Every other case is judged by its sources alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.values import Answers, Case, Status, TraceData
from raglab.words.text import answer_recall, exact_match

MIN_RECALL = 0.5  # share of the gold answer's words and numbers that a right answer holds
# share of the answered cases with a gold answer that may lack a recorded answer in a comparison
MAX_MISSING = 0.05
SOURCES, TEXT, MIXED = "sources", "text", "mixed"  # kinds of basis


class AnswerCheck(IntEnum):
    """What a decision's recorded answer says of one case.

    by_sources: the case is not judged by text. not_answered: it is, but retrieval answers nothing.
    recorded: an answer is recorded. wrong_text: one is recorded from the expected sources, and it
    is not the expected one. unrecorded: none is recorded for the chosen hits. unearned: the case is
    labelled refuse, retrieval answers it, and it is refused only since no answer is recorded; it is
    not judged by text either.
    """

    by_sources = 0
    not_answered = 1
    recorded = 2
    wrong_text = 3
    unrecorded = 4
    unearned = 5


ANSWERS = "answers"  # key of `Case.extra` that holds several gold answers
ANSWERS_RULE = "answers must be a text, a list of texts, or an object whose text is one"
ANSWERS_REMEDY = (
    'write ["Ann", "Anna"], as JSON in a file, or {"text": ["Ann"], "answer_start": [5]}'
)
# how a list or an object of texts begins where it was written as a text
_PRINTED = re.compile(r"\s*[\[{]\s*[\[{'\"]")


def listed_answers(value: object) -> tuple[str, ...] | None:
    """Texts of `answers`: of a text, a list of texts, or an object whose `text` is one of these.

    None of all else.

    A text that is a JSON list or object is read as that; one that only looks like it, as Python
    prints a list, is none.

    Source: rule S6.3.

    Example:
      >>> (
      ...     listed_answers({"text": ["Ann"], "answer_start": [5]}),
      ...     listed_answers('["Ann", "Anna"]'),
      ...     listed_answers(7),
      ... )
      (('Ann',), ('Ann', 'Anna'), None)
    """
    plain = _parsed(value) if isinstance(value, str) else value
    plain = plain.get("text") if isinstance(plain, Mapping) else plain
    # as Hugging Face has them in a frame
    plain = plain.tolist() if isinstance(plain, np.ndarray) else plain
    if isinstance(plain, str):
        return (plain,)
    if not isinstance(plain, list | tuple) or not all(isinstance(text, str) for text in plain):
        return None
    return tuple(plain)


def _parsed(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """JSON list or object of a text, the text if it is neither, None if it only looks like one."""
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None if _PRINTED.match(text) else text


def gold_answers(case: Case) -> tuple[str, ...]:
    """Gold answers of a case: its `answer`, and those of `answers` among its further keys.

    Blank ones are none.

    Raises:
      ValueError: `answers` are no texts, see `listed_answers`.

    Source: rule S6.3.

    Example:
      >>> gold_answers(Case("a", "who?", "ok", answer="Ann", extra={"answers": ["Anna", " "]}))
      ('Anna', 'Ann')
    """
    further = case.extra.get(ANSWERS)
    listed = () if further is None else listed_answers(further)
    if listed is None:
        msg = f"{ANSWERS_RULE}, got {str(further)[:80]!r} in case {case.id!r}; {ANSWERS_REMEDY}."
        raise ValueError(msg)
    return tuple(gold for gold in (*listed, case.answer) if gold is not None and gold.strip())


def is_right_answer(answer: str, golds: Sequence[str], min_recall: float = MIN_RECALL) -> bool:
    """Whether an answer says what one of the gold answers says.

    It must hold at least `min_recall` of the distinct content words and numbers of one gold answer,
    without regard to case, accents, function words and the spelling of numbers (`answer_recall`).
    What it says beside them is not judged. A gold answer of function words alone must be the answer
    itself, normalised (`exact_match`). An empty answer is never right.

    Args:
      answer: text as it leaves the system.
      golds: gold answers, any of which will do.
      min_recall: in [0, 1].

    Source: rule S6.3.

    Example:
      >>> is_right_answer("The storm excess is GBP 1,200.", ["an excess of 1200 pounds"])
      True
      >>> is_right_answer("Glass is covered.", ["an excess of 1200 pounds"])
      False
    """
    if not answer.strip():
        return False
    recalls = ((answer_recall(answer, gold), gold) for gold in golds)
    return any(
        exact_match(answer, [gold]) if np.isnan(share) else share >= min_recall
        for share, gold in recalls
    )


def text_cases(trace: TraceData) -> NDArray[np.bool_]:
    """Which cases are judged by text, [Q].

    Labelled ok, with a gold answer, in a trace that holds recorded answers.

    Source: rule S6.3.
    """
    if trace.answers is None:
        return np.zeros(len(trace.cases), dtype=bool)
    return has_gold_answer(trace.cases)


def has_gold_answer(cases: Sequence[Case]) -> NDArray[np.bool_]:
    """Which cases are labelled ok and have a gold answer, [Q]."""
    ok = Status.ok.name
    return np.array(
        [case.expect_status == ok and bool(gold_answers(case)) for case in cases], dtype=bool
    )


def right_answers(
    answers: Answers, cases: Sequence[Case], by_text: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which recorded answers are right, [N].

    False for those that hygiene refused and cases not judged by text.

    Args:
      by_text: of `text_cases`, [Q].
    """
    known: dict[tuple[int, str], bool] = {}  # the same text mostly stands for many sets of hits
    right = np.zeros(len(answers.text), dtype=bool)
    for number, (row, text, refused) in enumerate(
        zip(answers.row.tolist(), answers.text, answers.refused, strict=True)
    ):
        if not by_text[row] or refused:
            continue
        if (row, text) not in known:
            known[row, text] = is_right_answer(text, gold_answers(cases[row]))
        right[number] = known[row, text]
    return right


class Basis(NamedTuple):
    """What *correct* means of some cases: by the text of the answer, or by its sources (rule S6.3).

    text: cases judged by text. ok: cases labelled ok.

    Example:
      >>> str(Basis(40, 60)), str(Basis(0, 60)), str(Basis(60, 60))
      ('text for 40 of 60 cases labelled ok, sources for the rest', 'sources', 'text')
    """

    text: int
    ok: int

    @property
    def kind(self) -> str:
        """`sources`, `text`, or `mixed` where text judges only some of the cases labelled ok."""
        return SOURCES if not self.text else TEXT if self.text == self.ok else MIXED

    def __str__(self) -> str:
        if self.kind != MIXED:
            return self.kind
        return f"text for {self.text:,} of {self.ok:,} cases labelled ok, sources for the rest"

    @classmethod
    def of(cls, by_text: NDArray[np.bool_], label_code: NDArray[np.int8]) -> Basis:
        """Basis of cases by their masks, [Q] each."""
        return cls(int(by_text.sum()), int((label_code == Status.ok).sum()))

    @classmethod
    def joined(cls, parts: Iterable[Basis]) -> Basis:
        """Basis of the cases of all parts."""
        every = list(parts)
        return cls(sum(part.text for part in every), sum(part.ok for part in every))


class MissingAnswers(NamedTuple):
    """Answers that were not recorded for the hits that a policy answers from.

    k: of n answered cases that are judged by text.
    """

    k: int
    n: int

    @property
    def is_compared(self) -> bool:
        """Whether a policy that lacks so many may be compared with others (rule S6.3)."""
        return self.k <= MAX_MISSING * self.n

    def __str__(self) -> str:
        return (
            f"no answer is recorded for {self.k:,} of {self.n:,} answered cases with a gold answer"
        )


REMEDY = "record them for this policy: raglab.record_answers(trace, policy, generator, scorer)"


def missing_text(name: str, missing: MissingAnswers) -> str:
    """That a policy is not compared, why, and the remedy.

    Example:
      >>> missing_text("tuned", MissingAnswers(3, 20))[:72]
      'tuned is not compared: no answer is recorded for 3 of 20 answered cases '
    """
    limit = f"at most {100 * MAX_MISSING:g} % may be missing"
    return f"{name} is not compared: {missing} ({limit}, rule S6.3); {REMEDY}."
