"""Text of recorded answers (algebra): which is right, on what basis a trace is judged (S6.3).

A case labelled ok, in a trace that holds recorded answers, is judged by its answer as well as by
its sources: by the user's column, a judge's, or its text where it has a gold answer. Every other
case is judged by its sources alone. What nobody can tell is undecided, and never right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, cast

import numpy as np

from raglab.values import Answers, BoolArray, Case, CodeArray, Status, TraceData, refuse
from raglab.words.answer_match import AnswerMatch, answer_match

# share of the answered cases with a gold answer that may lack a recorded answer in a comparison
MAX_MISSING = 0.05
SOURCES, TEXT, MIXED = "sources", "text", "mixed"  # kinds of basis, beside the columns


class AnswerCheck(IntEnum):
    """What a decision's recorded answer says of one case.

    by_sources: the case is not judged by its answer. not_answered: it is, but retrieval answers
    nothing. recorded: an answer is recorded. wrong_text: one is recorded from the expected sources,
    and it is wrong. unrecorded: none is recorded for the chosen hits. unearned: the case is
    labelled refuse, retrieval answers it, and it is refused only since no answer is recorded; it is
    not judged by an answer either. undecided, undecided_other: one is recorded from the expected
    sources, and nobody can tell whether it is right: the first such answer of the case, another.
    """

    by_sources = 0
    not_answered = 1
    recorded = 2
    wrong_text = 3
    unrecorded = 4
    unearned = 5
    undecided = 6
    undecided_other = 7


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
        refuse(ANSWERS_RULE, f"{str(further)[:80]!r} in case {case.id!r}", ANSWERS_REMEDY)
    return tuple(gold for gold in (*listed, case.answer) if gold is not None and gold.strip())


ANSWER_RIGHT, JUDGE_RIGHT = "answer_right", "judge_right"  # keys of `Case.extra`: 0, 1 or empty
BASIS = "answer_basis"  # key of `Case.extra` that chooses between these and `text`
BASES = (ANSWER_RIGHT, JUDGE_RIGHT, TEXT)
_VERDICTS = {
    "": AnswerMatch.undecided,
    **dict.fromkeys(("0", "0.0", "false"), AnswerMatch.wrong),
    **dict.fromkeys(("1", "1.0", "true"), AnswerMatch.right),
}


def answer_basis(cases: Sequence[Case]) -> str:
    """What says whether the recorded answers of cases are right: one of `BASES`.

    What the cases state as `answer_basis`, else the first at hand: the user's `answer_right`, a
    judge's `judge_right`, the text of the answer against the gold answers.

    Raises:
      ValueError: the cases state several, or one that is none.

    Source: rule S6.3.

    Example:
      >>> case = Case("a", "who?", "ok", answer="Ann", extra={"answer_right": 1})
      >>> answer_basis([case]), answer_basis([case._replace(extra={})])
      ('answer_right', 'text')
    """
    stated = {str(case.extra[BASIS]) for case in cases if BASIS in case.extra}
    if len(stated) > 1 or not stated <= set(BASES):
        rule = f"a basis must be one of {', '.join(BASES)}, for all cases"
        refuse(rule, sorted(stated), "state one")
    columns = [key for key in (ANSWER_RIGHT, JUDGE_RIGHT) if any(key in c.extra for c in cases)]
    if not stated <= {TEXT, *columns}:
        refuse(f"a basis must be a column of the cases or {TEXT}", sorted(stated), "add it")
    return stated.pop() if stated else next(iter(columns), TEXT)


def _stated_verdict(case: Case, key: str) -> AnswerMatch:
    """What a column says of the answer to a case.

    Raises:
      ValueError: neither 0, 1, true, false nor empty.
    """
    value = case.extra.get(key)
    is_missing = value is None or value != value  # noqa: PLR0124 - NaN
    verdict = _VERDICTS.get("" if is_missing else str(value).strip().lower())
    if verdict is None:
        rule = f"{key} must be 0, 1 or empty (rule S6.3)"
        refuse(rule, f"{value!r} in case {case.id!r}", "correct it")
    return verdict


def judged_cases(trace: TraceData) -> BoolArray:
    """Which cases are judged by their recorded answer too, [Q]; none without recorded answers.

    Source: rule S6.3.
    """
    if trace.answers is None:
        return np.zeros(len(trace.cases), dtype=bool)
    return may_be_judged(trace.cases)


def may_be_judged(cases: Sequence[Case]) -> BoolArray:
    """Which cases an answer to them is judged of, [Q].

    Labelled ok and, where the text is the basis, with a gold answer.
    """
    by_text = answer_basis(cases) == TEXT
    ok = Status.ok.name
    return np.array(
        [case.expect_status == ok and (not by_text or bool(gold_answers(case))) for case in cases],
        dtype=bool,
    )


def answer_verdicts(trace: TraceData, basis: str | None = None) -> CodeArray:
    """Whether each recorded answer is right, [N].

    0 wrong, also where hygiene refused it or the case is not judged by it; 1 right; undecided: 2
    for the first such answer of a case, 3 for another one. A column speaks of the one answer to its
    case: where several texts are recorded, they are undecided.

    Args:
      trace: with recorded answers.
      basis: one of `BASES`; of `answer_basis` where not given.

    Source: rule S6.3.
    """
    answers, cases = cast("Answers", trace.answers), trace.cases
    basis, judged = basis or answer_basis(cases), judged_cases(trace)
    known: dict[tuple[int, str], AnswerMatch] = {}  # the same text mostly stands for many sets
    texts: dict[int, set[str]] = {}
    rows = list(zip(answers.row.tolist(), answers.text, strict=True))
    for row, text in rows:
        texts.setdefault(row, set()).add(text)
    verdicts = np.zeros(len(rows), dtype=np.int8)
    first: dict[int, str] = {}
    for number, (row, text) in enumerate(rows):
        if not judged[row] or answers.refused[number]:
            continue
        if basis != TEXT:
            is_one = len(texts[row]) == 1
            verdict = _stated_verdict(cases[row], basis) if is_one else AnswerMatch.undecided
        elif (row, text) in known:
            verdict = known[row, text]
        else:
            chunks = answers.chunks[number]
            heads = {head for at in chunks[chunks >= 0] for head in trace.chunks[at].section}
            golds, question = gold_answers(cases[row]), cases[row].query
            verdict = answer_match(text, golds, question, " ".join(sorted(heads)))
            known[row, text] = verdict
        is_other = verdict == AnswerMatch.undecided and first.setdefault(row, text) != text
        verdicts[number] = verdict + is_other
    return verdicts


class Basis(NamedTuple):
    """What *correct* means of some cases: by the answer, or by its sources (rule S6.3).

    text: cases judged by their answer. ok: cases labelled ok. by: what says whether it is right,
    one of `BASES`. differ: answers of which the text says otherwise than the column, of compared.
    unused: cases with a column and no recorded answer.

    Example:
      >>> (
      ...     str(Basis(40, 60)),
      ...     str(Basis(0, 60)),
      ...     str(Basis(60, 60, "judge_right")),
      ... )
      ('text for 40 of 60 cases labelled ok, sources for the rest', 'sources', 'judge_right')
    """

    text: int
    ok: int
    by: str = TEXT
    differ: int = 0
    compared: int = 0
    unused: int = 0

    @property
    def kind(self) -> str:
        """`sources`, a column, `text`, or `mixed` where text judges some of the cases."""
        if not self.text:
            return SOURCES
        return MIXED if self.by == TEXT and self.text < self.ok else self.by

    @property
    def note(self) -> str:
        """How far the text says otherwise than the column, or that the column is not used."""
        if self.unused:
            return f"{self.by} of {self.unused:,} cases is not used: no answers are recorded"
        pair = f"{self.differ:,} of {self.compared:,} answers"
        return f"the text says otherwise in {pair}" if self.compared else ""

    @property
    def described(self) -> str:
        """The basis and its note."""
        return "; ".join(filter(None, [str(self), self.note]))

    def __str__(self) -> str:
        if self.kind != MIXED:
            return self.kind
        return f"text for {self.text:,} of {self.ok:,} cases labelled ok, sources for the rest"

    @classmethod
    def of(cls, trace: TraceData) -> Basis:
        """Basis of the cases of a trace."""
        cases, by = trace.cases, answer_basis(trace.cases)
        ok = sum(case.expect_status == Status.ok.name for case in cases)
        basis = cls(int(judged_cases(trace).sum()), ok, by)
        if by == TEXT:
            return basis
        if trace.answers is None:
            return basis._replace(unused=sum(by in case.extra for case in cases))
        by_column, by_text = answer_verdicts(trace), answer_verdicts(trace, TEXT)
        has_gold = np.array([bool(gold_answers(case)) for case in cases], dtype=bool)
        both = has_gold[trace.answers.row] & judged_cases(trace)[trace.answers.row]
        both &= (by_column <= AnswerMatch.right) & (by_text <= AnswerMatch.right)
        rows = trace.answers.row
        differ = np.unique(rows[both & (by_column != by_text)])
        return basis._replace(differ=len(differ), compared=len(np.unique(rows[both])))

    @classmethod
    def joined(cls, parts: Iterable[Basis]) -> Basis:
        """Basis of the cases of all parts.

        Raises:
          ValueError: the parts have several.
        """
        every = list(parts)
        if len({part.by for part in every}) > 1:
            bases = sorted({part.by for part in every})
            refuse("shards must have one basis (rule S6.3)", bases, "see raglab.lab.with_basis")
        counts = {
            name: sum(getattr(part, name) for part in every)
            for name in ("text", "ok", "differ", "compared", "unused")
        }
        return cls(**counts, by=every[0].by if every else TEXT)


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
