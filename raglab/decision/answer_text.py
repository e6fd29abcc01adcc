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


ANSWERS_KEY = "answers"  # key of `Case.extra` that holds several gold answers
ANSWERS_RULE = "answers must be a text, a list of texts, or an object whose text is one"
ANSWERS_REMEDY = (
    'write ["Ann", "Anna"], as JSON in a file, or {"text": ["Ann"], "answer_start": [5]}'
)
# how a list or an object of texts begins where it was written as a text
_PRINTED_LIST = re.compile(r"\s*[\[{]\s*[\[{'\"]")


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
    parsed_value = _parsed(value) if isinstance(value, str) else value
    parsed_value = parsed_value.get("text") if isinstance(parsed_value, Mapping) else parsed_value
    # as Hugging Face has them in a frame
    parsed_value = parsed_value.tolist() if isinstance(parsed_value, np.ndarray) else parsed_value
    if isinstance(parsed_value, str):
        return (parsed_value,)
    if not isinstance(parsed_value, list | tuple) or not all(
        isinstance(text, str) for text in parsed_value
    ):
        return None
    return tuple(parsed_value)


def _parsed(answer_text: str) -> Any:  # noqa: ANN401 - any JSON value
    """JSON list or object of a text, the text if it is neither, None if it only looks like one."""
    if not answer_text.lstrip().startswith(("[", "{")):
        return answer_text
    try:
        return json.loads(answer_text)
    except (ValueError, RecursionError):
        return None if _PRINTED_LIST.match(answer_text) else answer_text


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
    further_answers = case.extra.get(ANSWERS_KEY)
    listed = () if further_answers is None else listed_answers(further_answers)
    if listed is None:
        refuse(ANSWERS_RULE, f"{str(further_answers)[:80]!r} in case {case.id!r}", ANSWERS_REMEDY)
    return tuple(
        gold_answer
        for gold_answer in (*listed, case.answer)
        if gold_answer is not None and gold_answer.strip()
    )


ANSWER_RIGHT, JUDGE_RIGHT = "answer_right", "judge_right"  # keys of `Case.extra`: 0, 1 or empty
BASIS_KEY = "answer_basis"  # key of `Case.extra` that chooses between these and `text`
ANSWER_BASES = (ANSWER_RIGHT, JUDGE_RIGHT, TEXT)
_STATED_VERDICTS = {
    "": AnswerMatch.undecided,
    **dict.fromkeys(("0", "0.0", "false"), AnswerMatch.wrong),
    **dict.fromkeys(("1", "1.0", "true"), AnswerMatch.right),
}


def answer_basis(cases: Sequence[Case]) -> str:
    """What says whether the recorded answers of cases are right: one of `ANSWER_BASES`.

    What the cases state as `answer_basis`, else the first known: the user's `answer_right`, a
    judge's `judge_right`, the text of the answer against the gold answers.

    Raises:
      ValueError: the cases state several, or one that is none.

    Source: rule S6.3.

    Example:
      >>> case = Case("a", "who?", "ok", answer="Ann", extra={"answer_right": 1})
      >>> answer_basis([case]), answer_basis([case._replace(extra={})])
      ('answer_right', 'text')
    """
    stated_bases = {str(case.extra[BASIS_KEY]) for case in cases if BASIS_KEY in case.extra}
    if len(stated_bases) > 1 or not stated_bases <= set(ANSWER_BASES):
        refuse(
            f"a basis must be one of {', '.join(ANSWER_BASES)}, for all cases",
            sorted(stated_bases),
            "state one",
        )
    basis_columns = [
        column_name
        for column_name in (ANSWER_RIGHT, JUDGE_RIGHT)
        if any(column_name in labelled_case.extra for labelled_case in cases)
    ]
    if not stated_bases <= {TEXT, *basis_columns}:
        refuse(f"a basis must be a column of the cases or {TEXT}", sorted(stated_bases), "add it")
    return stated_bases.pop() if stated_bases else next(iter(basis_columns), TEXT)


def _stated_verdict(case: Case, column_name: str) -> AnswerMatch:
    """What a column says of the answer to a case.

    Raises:
      ValueError: neither 0, 1, true, false nor empty.
    """
    stated_value = case.extra.get(column_name)
    is_missing = stated_value is None or stated_value != stated_value  # noqa: PLR0124 - NaN
    verdict = _STATED_VERDICTS.get("" if is_missing else str(stated_value).strip().lower())
    if verdict is None:
        refuse(
            f"{column_name} must be 0, 1 or empty (rule S6.3)",
            f"{stated_value!r} in case {case.id!r}",
            "correct it",
        )
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
    text = answer_basis(cases) == TEXT
    name = Status.ok.name
    return np.array(
        [case.expect_status == name and (not text or bool(gold_answers(case))) for case in cases],
        dtype=bool,
    )


def answer_verdicts(trace: TraceData, basis: str | None = None) -> CodeArray:
    """Whether each recorded answer is right, [N].

    0 wrong, also where hygiene refused it or the case is not judged by it; 1 right; undecided: 2
    for the first such answer of a case, 3 for another one. A column speaks of the one answer to its
    case: where several texts are recorded, they are undecided.

    Args:
      trace: with recorded answers.
      basis: one of `ANSWER_BASES`; of `answer_basis` where not given.

    Source: rule S6.3.
    """
    answers = cast("Answers", trace.answers)
    cases = trace.cases
    basis = basis or answer_basis(cases)
    is_judged = judged_cases(trace)
    known_verdicts: dict[
        tuple[int, str], AnswerMatch
    ] = {}  # the same text mostly stands for many sets
    texts_of_case: dict[int, set[str]] = {}
    case_texts = list(zip(answers.row.tolist(), answers.text, strict=True))
    for case_index, answer_text in case_texts:
        texts_of_case.setdefault(case_index, set()).add(answer_text)
    verdicts = np.zeros(len(case_texts), dtype=np.int8)
    first_texts: dict[int, str] = {}
    for answer_index, (case_index, answer_text) in enumerate(case_texts):
        if not is_judged[case_index] or answers.refused[answer_index]:
            continue
        if basis != TEXT:
            is_single = len(texts_of_case[case_index]) == 1
            verdict = (
                _stated_verdict(cases[case_index], basis) if is_single else AnswerMatch.undecided
            )
        elif (case_index, answer_text) in known_verdicts:
            verdict = known_verdicts[case_index, answer_text]
        else:
            chunk_numbers = answers.chunks[answer_index]
            headings = {
                heading
                for chunk_number in chunk_numbers[chunk_numbers >= 0]
                for heading in trace.chunks[chunk_number].section
            }
            gold_texts = gold_answers(cases[case_index])
            question = cases[case_index].query
            verdict = answer_match(answer_text, gold_texts, question, " ".join(sorted(headings)))
            known_verdicts[case_index, answer_text] = verdict
        is_other = (
            verdict == AnswerMatch.undecided
            and first_texts.setdefault(case_index, answer_text) != answer_text
        )
        verdicts[answer_index] = verdict + is_other
    return verdicts


class Basis(NamedTuple):
    """What *correct* means of some cases: by the answer, or by its sources (rule S6.3).

    text: cases judged by their answer. ok: cases labelled ok. by: what says whether it is right,
    one of `ANSWER_BASES`. differ: answers of which the text says otherwise than the column, of
    compared.
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
        text = f"{self.differ:,} of {self.compared:,} answers"
        return f"the text says otherwise in {text}" if self.compared else ""

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
        cases = trace.cases
        basis_column = answer_basis(trace.cases)
        n_ok = sum(case.expect_status == Status.ok.name for case in cases)
        text_basis = cls(int(judged_cases(trace).sum()), n_ok, basis_column)
        if basis_column == TEXT:
            return text_basis
        if trace.answers is None:
            return text_basis._replace(unused=sum(basis_column in case.extra for case in cases))
        column_verdicts = answer_verdicts(trace)
        text_verdicts = answer_verdicts(trace, TEXT)
        has_gold = np.array([bool(gold_answers(case)) for case in cases], dtype=bool)
        is_compared = has_gold[trace.answers.row] & judged_cases(trace)[trace.answers.row]
        is_compared &= (column_verdicts <= AnswerMatch.right) & (text_verdicts <= AnswerMatch.right)
        case_indices = trace.answers.row
        differing_cases = np.unique(case_indices[is_compared & (column_verdicts != text_verdicts)])
        return text_basis._replace(
            differ=len(differing_cases), compared=len(np.unique(case_indices[is_compared]))
        )

    @classmethod
    def joined(cls, parts: Iterable[Basis]) -> Basis:
        """Basis of the cases of all parts.

        Raises:
          ValueError: the parts have several.
        """
        all_parts = list(parts)
        if len({part_basis.by for part_basis in all_parts}) > 1:
            basis_names = sorted({part_basis.by for part_basis in all_parts})
            refuse(
                "shards must have one basis (rule S6.3)", basis_names, "see raglab.lab.with_basis"
            )
        counts = {
            field_name: sum(getattr(part_basis, field_name) for part_basis in all_parts)
            for field_name in ("text", "ok", "differ", "compared", "unused")
        }
        return cls(**counts, by=all_parts[0].by if all_parts else TEXT)


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


RECORDING_REMEDY = (
    "record them for this policy: raglab.record_answers(trace, policy, generator, scorer)"
)


def missing_text(policy_name: str, missing_answers: MissingAnswers) -> str:
    """That a policy is not compared, why, and the remedy.

    Example:
      >>> missing_text("tuned", MissingAnswers(3, 20))[:72]
      'tuned is not compared: no answer is recorded for 3 of 20 answered cases '
    """
    text = f"at most {100 * MAX_MISSING:g} % may be missing"
    return (
        f"{policy_name} is not compared: {missing_answers} ({text}, rule S6.3); {RECORDING_REMEDY}."
    )
