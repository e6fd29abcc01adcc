"""Signal models (shore): factories of signal functions over models.

Reader, NLI, classifiers, a judge.

Each returns a `SignalFunction` for `raglab.add_signals` and for questions asked live. Its version
holds what the values hang on: the model with the hash of its content or its server, the prompt and
the rubric. So no value of another model or rubric is ever read again.

    trace = raglab.add_signals(trace, [signal_models.reader("models/squad2"),
    signal_models.yes_no(client)])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from raglab.answering.client import ModelClient
from raglab.answering.metered_client import RequestBudget
from raglab.answering.prompts import MAX_PROMPT_TOKENS, Prompt
from raglab.answering.support import NliScorer, answer_support
from raglab.extensions.learned_signals.judging import (
    IS_RIGHT_QUESTION,
    JUDGE_PROMPT,
    MIN_MASS,
    N_ALTERNATIVES,
    RUBRICS,
    SCORE_REMINDER,
    SCORE_SCHEMA,
    SUFFICES_QUESTION,
    YES_NO_PROMPT,
    case_scorer,
    check_text,
    rubric_score,
    yes_probability,
)
from raglab.extensions.learned_signals.readers import (
    Classifier,
    Reader,
    load_classifier,
    load_reader,
)
from raglab.live.signal_functions import RowFunction, SignalFunction
from raglab.models.loaders import Nli, load_nli
from raglab.signals import MAX_TEXT_CHARACTERS
from raglab.values import refuse
from raglab.words.canonical import digest

if TYPE_CHECKING:
    import pandas as pd

Passages = Literal["all", "each"]
Pairs = Sequence[tuple[str, str]]
READ_HITS = 4  # hits that a model reads; as many as an answer rests on by the published policy
UNLIMITED_BUDGET = RequestBudget()
Budget = RequestBudget  # its name before `raglab.bandit.Budget`, which users have in their code


def reader(model: str | Reader, *, name: str = "reader", n_hits: int = READ_HITS) -> SignalFunction:
    """Probability that one of the hits answers the question, by an extractive reader.

    1 - p(no answer) of the best.

    Args:
      model: loaded by `load_reader`, or its name or folder.
      name: of the signal.
      n_hits: hits that are read.

    Source: Rajpurkar et al. 2018 (SQuAD 2.0).
    """
    loaded_reader = load_reader(model) if isinstance(model, str) else model

    def measure(case_rows: pd.DataFrame) -> list[float]:
        cells = zip(case_rows["query"], case_rows["hits.text"], strict=True)
        return _best(
            lambda passage_pairs: [
                1.0 - best_span.no_answer for best_span in loaded_reader.read(passage_pairs)
            ],
            [[(question, passage) for passage in passages] for question, passages in cells],
        )

    return _signal(f"reader-1:{loaded_reader.name}", measure, ("query", "hits.text"), name, n_hits)


def nli(model: str | Nli, *, name: str = "nli", n_hits: int = READ_HITS) -> SignalFunction:
    """Entailment of the recorded answer by its hits: that of its least entailed claim.

    NaN without a claim.

    A claim is held against the runs of three sentences of every hit, of which the best counts.

    Args:
      model: loaded by `raglab.models.loaders.load_nli`, or its name or folder.
      name: of the signal.
      n_hits: hits that are read.

    Source: rule S2.11.
    """
    scorer = NliScorer(load_nli(model) if isinstance(model, str) else model)

    def measure(case_rows: pd.DataFrame) -> list[float]:
        cells = zip(case_rows["answer.text"], case_rows["hits.text"], strict=True)
        return [answer_support(answer, passages, scorer).score for answer, passages in cells]

    columns = ("hits.text", "answer.text")
    return _signal(f"nli-1:{scorer.name}", measure, columns, name, n_hits, batch=16)


def sufficient(
    model: str | Classifier,
    label: str | int = "sufficient",
    *,
    passages: Passages = "all",
    name: str = "sufficient",
    n_hits: int = READ_HITS,
) -> SignalFunction:
    """Probability that the hits suffice to answer, by a classifier over (question, passages).

    Args:
      model: loaded by `load_classifier`, or its name or folder.
      label: of the model, that means yes; a loaded model has it.
      passages: `all` as one text, which a model cuts off at its maximum length; or `each` by
        itself, of which the best counts.
      name: of the signal.
      n_hits: hits that are read.

    Source: Joren et al. 2025, sufficient context.
    """
    return _classified("sufficient", model, label, passages, name, n_hits)


def grounded(
    model: str | Classifier,
    label: str | int = "grounded",
    *,
    passages: Passages = "all",
    name: str = "grounded",
    n_hits: int = READ_HITS,
) -> SignalFunction:
    """Probability that hits support the recorded answer, by a classifier over (passages, answer).

    Args:
      model: as for `sufficient`.
      label: as for `sufficient`.
      passages: as for `sufficient`.
      name: of the signal.
      n_hits: hits that are read.
    """
    return _classified("grounded", model, label, passages, name, n_hits)


def _classified(
    signal_kind: Literal["sufficient", "grounded"],
    model: str | Classifier,
    label: str | int,
    passages: Passages,
    name: str,
    n_hits: int,
) -> SignalFunction:
    """Probability of a label of pairs, in the order that a classifier reads.

    A question before its passages, or passages before the answer to them.
    """
    loaded_classifier = load_classifier(model, label) if isinstance(model, str) else model
    is_grounded = signal_kind == "grounded"

    def measure(case_rows: pd.DataFrame) -> list[float]:
        if passages not in {"all", "each"}:
            refuse("passages must be all or each", repr(passages), "all reads them as one text")
        case_pairs = []
        first_texts = case_rows["answer.text" if is_grounded else "query"]
        for first_text, hit_texts in zip(first_texts, case_rows["hits.text"], strict=True):
            pair_texts = hit_texts if passages == "each" else ["\n\n".join(hit_texts)]
            case_pairs.append(
                [
                    (pair_text, first_text) if is_grounded else (first_text, pair_text)
                    for pair_text in pair_texts
                ]
            )
        return _best(loaded_classifier.probability, case_pairs)

    input_columns = ("hits.text", "answer.text") if is_grounded else ("query", "hits.text")
    return _signal(
        f"{signal_kind}-1:{loaded_classifier.name}:{loaded_classifier.label}:{passages}",
        measure,
        input_columns,
        name,
        n_hits,
    )


def judge(
    client: ModelClient,
    *,
    rubric: str = "sufficient",
    answer: bool | None = None,
    budget: RequestBudget = UNLIMITED_BUDGET,
    prompt: Prompt = JUDGE_PROMPT,
    name: str = "judge",
    n_hits: int = READ_HITS,
    at_once: int = 1,
    max_prompt_tokens: int = MAX_PROMPT_TOKENS,
) -> SignalFunction:
    """Score in [0, 1] by a language model, which grades by a rubric in words.

    The reply must be exactly `{"score": x}`; another reply is requested once more. Then the case is
    missing, which `fn.counts` counts by reason. A wrong key, model or address, and a model that
    fails for five cases in a row, are an error. A run that was stopped, or whose budget is spent,
    continues with the same cache, and requests only the cases that have no score. `yes_no`
    separated answerable questions better than a number in words wherever both were measured.

    Args:
      client: `raglab.OpenAIClient` or `raglab.LocalModel`.
      rubric: `sufficient` (do the passages suffice for an answer), `grounded` (do they support the
        recorded answer), or a text of the user, which defines 0 and 1.
      answer: whether the answer is shown; None for `grounded` alone.
      budget: of calls, tokens, seconds and money.
      prompt: text before the rubric.
      name: of the signal.
      n_hits: passages that are shown.
      at_once: requests at a time; so many may be requested again after a kill.
      max_prompt_tokens: of the whole prompt, as they are estimated; passages are shortened by rule.

    Raises:
      ValueError: the rubric is empty.

    Example:
      >>> client = OpenAIClient("small", "http://127.0.0.1:8000/v1")  # doctest: +SKIP
      >>> signal = judge(client, budget=RequestBudget(tokens=1_000_000))  # doctest: +SKIP
      >>> trace = add_signals(trace, signal)  # doctest: +SKIP
      >>> signal.fn.counts.missing  # doctest: +SKIP
      Counter()
    """
    is_answer_shown = rubric == "grounded" if answer is None else answer
    rubric_text = check_text(RUBRICS.get(rubric, rubric), "a rubric must say what 0 and 1 mean")
    judge_scorer = case_scorer(
        "judge",
        client,
        budget,
        prompt,
        rubric_text,
        with_answer=is_answer_shown,
        max_prompt_tokens=max_prompt_tokens,
        reply_shape="schema",
        closing=SCORE_REMINDER,
        parse=rubric_score,
        max_tokens=24,
        schema=SCORE_SCHEMA,
    )
    return _signal(judge_scorer.name, judge_scorer, judge_scorer.needs, name, n_hits, at_once)


def yes_no(
    client: ModelClient,
    *,
    question: str = SUFFICES_QUESTION,
    answer: bool = False,
    budget: RequestBudget = UNLIMITED_BUDGET,
    prompt: Prompt = YES_NO_PROMPT,
    name: str = "yes_no",
    n_hits: int = READ_HITS,
    at_once: int = 1,
    max_prompt_tokens: int = MAX_PROMPT_TOKENS,
    least_mass: float = MIN_MASS,
) -> SignalFunction:
    """P(yes) of a question about a case, in [0, 1], from the log-probabilities of one token.

    It is a score, not a probability of being right: a small model's P(yes) may never pass one half,
    so calibrate it (`raglab.lab.calibrate_signal`) or tune its threshold.

    Args:
      client: as for `judge`; the backend must give log-probabilities, and a server alternatives
        too, else the first case is a ValueError.
      question: about the case, that the model answers with yes or no.
      answer: whether the recorded answer is shown.
      budget: as for `judge`.
      prompt: as for `judge`.
      name: of the signal.
      n_hits: as for `judge`.
      at_once: as for `judge`.
      max_prompt_tokens: as for `judge`.
      least_mass: least probability of yes and no together, in [0, 1]; a case with less has no
        score, as where a model begins with its thoughts.

    Raises:
      ValueError: the question is empty.

    Source: Kadavath et al. 2022.
    """
    question_text = check_text(question, "a yes or no question must be a text")
    yes_scorer = case_scorer(
        "yes-no",
        client,
        budget,
        prompt,
        f"\nThe question about the case: {question_text}",
        with_answer=answer,
        max_prompt_tokens=max_prompt_tokens,
        reply_shape=f"mass-{least_mass:g}",
        closing=f"{question_text} Reply with yes or no.",
        parse=partial(yes_probability, least_mass),
        max_tokens=1,
        top=N_ALTERNATIVES,
    )
    return _signal(yes_scorer.name, yes_scorer, yes_scorer.needs, name, n_hits, at_once)


def is_true(
    client: ModelClient,
    *,
    question: str = IS_RIGHT_QUESTION,
    name: str = "is_true",
    **settings: Any,  # noqa: ANN401
) -> SignalFunction:
    """P(True) of the recorded answer: P(yes) that it is right, by the passages.

    Args:
      client: as for `yes_no`.
      question: as for `yes_no`.
      name: of the signal.
      **settings: further arguments of `yes_no`.

    Source: Kadavath et al. 2022.
    """
    return yes_no(client, question=question, answer=True, name=name, **settings)


def _signal(
    identity: str,
    measure: RowFunction,
    input_columns: tuple[str, ...],
    signal_name: str,
    n_hits: int,
    batch: int = 64,
) -> SignalFunction:
    """Signal by a model; its version is the identity, a long one with its hash at the end."""
    signal_stage: Literal["hits", "answer"] = "answer" if "answer.text" in input_columns else "hits"
    if len(identity) > MAX_TEXT_CHARACTERS:
        identity = f"{identity[: MAX_TEXT_CHARACTERS - 17]}:{digest(identity, 16)}"
    return SignalFunction(
        signal_name,
        measure,
        input_columns,
        stage=signal_stage,
        version=identity,
        n_hits=n_hits,
        batch=batch,
    )


def _best(score: Callable[[Pairs], Iterable[float]], pair_rows: Sequence[Pairs]) -> list[float]:
    """Highest score of each row's pairs; NaN for a row without a pair."""
    pair_scores = iter(score([text_pair for row_pairs in pair_rows for text_pair in row_pairs]))
    return [
        max((float(next(pair_scores)) for _ in row_pairs), default=float("nan"))
        for row_pairs in pair_rows
    ]
