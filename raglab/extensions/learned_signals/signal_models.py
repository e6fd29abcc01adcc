"""Signal models (shore): factories of signal functions over models: reader, NLI, classifiers, a judge, log-probability.

Each returns a `SignalFunction` for `raglab.add_signals` and for questions asked live. Its version holds what the values
hang on: the model with the hash of its content or its server, the prompt and the rubric. So no value of another model
or rubric is ever read again.

    trace = raglab.add_signals(trace, [signal_models.reader("models/squad2"), signal_models.judge("small", url)])
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from raglab.answering.server import OpenAIGenerator
from raglab.answering.support import NliScorer, answer_support
from raglab.canonical import digest
from raglab.extensions.learned_signals.judging import RUBRICS, Budget, ServerScorer, judge_scorer, likelihood_scorer
from raglab.extensions.learned_signals.readers import Classifier, Reader, load_classifier, load_reader
from raglab.live.signal_functions import SignalFunction
from raglab.models import Nli, load_nli
from raglab.signals import LONGEST_TEXT

if TYPE_CHECKING:
    import pandas as pd

Passages = Literal["all", "each"]
N_HITS = 4  # hits that a model reads; as many as an answer rests on by the published policy
BUDGET = Budget()


def reader(model: str | Reader, *, name: str = "reader", n_hits: int = N_HITS) -> SignalFunction:
    """Probability that one of the hits answers the question, by an extractive reader: 1 - p(no answer) of the best.

    Args:
      model: loaded by `load_reader`, or its name or folder. name: of the signal. n_hits: that are read.

    Source: Rajpurkar et al. 2018 (SQuAD 2.0).
    """
    loaded = load_reader(model) if isinstance(model, str) else model

    def measure(rows: pd.DataFrame) -> list[float]:
        spans = loaded.read(_pairs(rows["query"], rows["hits.text"]))
        return _best(rows["hits.text"], [1.0 - span.no_answer for span in spans])

    version = _version(f"reader-1:{loaded.name}")
    return SignalFunction(name, measure, ("query", "hits.text"), version=version, n_hits=n_hits)


def spans(model: str | Reader, questions: Iterable[str], passages: Iterable[Sequence[str]]) -> pd.DataFrame:
    """What a reader takes from the passages of each question: the span of the passage that answers it best.

    Args:
      model: as for `reader`. questions, passages: of each case, its question and texts.

    Returns: one row a question: `span` (a text), `passage` (its position, -1 without passages), `probability` that it
      answers, NaN without passages.
    """
    import pandas as pd

    loaded = load_reader(model) if isinstance(model, str) else model
    texts = [tuple(one) for one in passages]
    found = iter(loaded.read(_pairs(questions, texts)))
    rows = []
    for one in texts:
        read = [next(found) for _ in one]
        at = min(range(len(read)), key=lambda place: read[place].no_answer, default=-1)
        rows.append((read[at].text, at, 1.0 - read[at].no_answer) if read else ("", -1, float("nan")))
    return pd.DataFrame(rows, columns=["span", "passage", "probability"])


def nli(model: str | Nli, *, name: str = "nli", n_hits: int = N_HITS) -> SignalFunction:
    """Entailment of the recorded answer by its hits: that of its least entailed claim; NaN without a claim.

    A claim is held against the runs of three sentences of every hit, of which the best counts.

    Args:
      model: loaded by `raglab.models.load_nli`, or its name or folder. name: of the signal. n_hits: that are read.

    Source: rule S2.11.
    """
    scorer = NliScorer(load_nli(model) if isinstance(model, str) else model)

    def measure(rows: pd.DataFrame) -> list[float]:
        cells = zip(rows["answer.text"], rows["hits.text"], strict=True)
        return [answer_support(answer, texts, scorer).score for answer, texts in cells]

    needs, version = ("hits.text", "answer.text"), _version(f"nli-1:{scorer.name}")
    return SignalFunction(name, measure, needs, stage="answer", version=version, n_hits=n_hits, batch=16)


def sufficient(
    model: str | Classifier,
    label: str | int = "sufficient",
    *,
    passages: Passages = "all",
    name: str = "sufficient",
    n_hits: int = N_HITS,
) -> SignalFunction:
    """Probability that the hits suffice to answer the question, by a classifier over (question, passages).

    Args:
      model: loaded by `load_classifier`, or its name or folder. label: of the model, that means yes; a
        loaded one has it. passages: `all` as one text, which a model cuts off at its own length; or `each` by itself,
        of which the best counts. name: of the signal. n_hits: that are read.

    Source: Joren et al. 2025, sufficient context.
    """
    return _classified("query", model, label, passages, name, n_hits)


def grounded(
    model: str | Classifier,
    label: str | int = "grounded",
    *,
    passages: Passages = "all",
    name: str = "grounded",
    n_hits: int = N_HITS,
) -> SignalFunction:
    """Probability that the hits bear out the recorded answer, by a classifier over (passages, answer).

    Args:
      model, label, passages, name, n_hits: as for `sufficient`.
    """
    return _classified("answer.text", model, label, passages, name, n_hits)


def _classified(
    beside: Literal["query", "answer.text"],
    model: str | Classifier,
    label: str | int,
    passages: Passages,
    name: str,
    n_hits: int,
) -> SignalFunction:
    """Probability of a label of pairs: of the question and its passages, or of passages and the answer to them."""
    loaded = load_classifier(model, label) if isinstance(model, str) else model
    answered = beside == "answer.text"

    def measure(rows: pd.DataFrame) -> list[float]:
        texts = _read_texts(rows["hits.text"], passages)
        pairs = _pairs(rows[beside], texts)
        return _best(texts, loaded.probability([(text, first) for first, text in pairs] if answered else pairs))

    kind, needs = ("grounded", ("hits.text", beside)) if answered else ("sufficient", (beside, "hits.text"))
    version = _version(f"{kind}-1:{loaded.name}:{loaded.label}:{passages}")
    stage: Literal["hits", "answer"] = "answer" if answered else "hits"
    return SignalFunction(name, measure, needs, stage=stage, version=version, n_hits=n_hits)


def judge(
    model: str,
    base_url: str,
    *,
    rubric: str = "sufficient",
    answer: bool | None = None,
    budget: Budget = BUDGET,
    name: str = "judge",
    n_hits: int = N_HITS,
    at_once: int = 1,
    sleep: Callable[[float], object] = time.sleep,
    **settings: Any,  # noqa: ANN401 - those of OpenAIGenerator, which checks them
) -> SignalFunction:
    """Score in [0, 1] by a language model behind an OpenAI-compatible server, which grades by a rubric.

    The reply must be exactly `{"score": x}`. What fails for a moment (a 429, 408, 409 or 5xx, no reply in time, a
    broken connection, another reply) is tried again after 0.5, 1, 2, … seconds, or as long as the server asks in
    Retry-After, up to two minutes. Then the case is missing, which `fn.counts` counts by reason. A 401, 403, 404 or a
    redirect, and a server that fails for five cases in a row, are an error. A run that was stopped, or whose budget is
    spent, goes on with the same cache, and asks only for the cases that have no score.

    Args:
      model, base_url: as the server has them. rubric: `sufficient` (do the passages suffice for an answer),
        `grounded` (do they bear out the recorded answer), or a text of one's own, which says what 0 and 1 mean.
      answer: whether the answer is shown; None for `grounded` alone. budget: of tokens and money; see
        `raglab.signal_models.Budget`. name: of the signal. n_hits: passages that are shown. at_once: requests at a
        time, so many of which may be asked again after a kill. sleep: waits so many seconds.
      settings: further fields of `raglab.answering.server.OpenAIGenerator`: key_env, timeout (of each attempt),
        max_retries, temperature, seed, max_tokens, max_passage_chars. The key stands in the environment alone.

    Raises:
      ImportError, ValueError: see `OpenAIGenerator`.

    Example:
      >>> signal = judge("small", "http://127.0.0.1:8000/v1", budget=Budget(tokens=1_000_000))  # doctest: +SKIP
      >>> trace = add_signals(trace, signal)  # doctest: +SKIP
      >>> signal.fn.counts.missing  # doctest: +SKIP
      Counter()
    """
    shown = rubric == "grounded" if answer is None else answer
    asked = OpenAIGenerator(model, base_url, **{"max_tokens": 24, **settings})
    made = judge_scorer(asked, budget, RUBRICS.get(rubric, rubric), with_answer=shown, sleep=sleep)
    return _by_server(made, name, n_hits, at_once)


def logprob(
    model: str,
    base_url: str,
    *,
    budget: Budget = BUDGET,
    name: str = "logprob",
    n_hits: int = N_HITS,
    at_once: int = 1,
    sleep: Callable[[float], object] = time.sleep,
    **settings: Any,  # noqa: ANN401 - as for `judge`
) -> SignalFunction:
    """Geometric mean of the probabilities that a language model gives the tokens of the recorded answer, in [0, 1].

    The model reads passages, question and answer, and writes nothing: the server must echo a completion's prompt with
    its log-probabilities, as vLLM and llama.cpp do; where it gives none, the signal is missing. What the generator that
    wrote the answer said of its own tokens stands in `answer.confidence` already.

    Args, errors and what is tried again: see `judge`.
    """
    made = likelihood_scorer(OpenAIGenerator(model, base_url, **settings), budget, sleep)
    return _by_server(made, name, n_hits, at_once)


def _by_server(made: ServerScorer, name: str, n_hits: int, at_once: int) -> SignalFunction:
    stage: Literal["hits", "answer"] = "answer" if "answer.text" in made.needs else "hits"
    version = _version(made.name)
    return SignalFunction(name, made, made.needs, stage=stage, version=version, n_hits=n_hits, batch=at_once)


def _pairs(firsts: Iterable[str], texts: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """Each first text with each of its texts, in order."""
    return [(first, text) for first, some in zip(firsts, texts, strict=True) for text in some]


def _best(texts: Iterable[Sequence[str]], values: Iterable[float]) -> list[float]:
    """Highest of the values of each row's texts, in their order; NaN for a row without texts."""
    left = iter(values)
    return [max((float(next(left)) for _ in some), default=float("nan")) for some in texts]


def _read_texts(texts: Iterable[Sequence[str]], passages: Passages) -> list[tuple[str, ...]]:
    """Texts that a classifier reads of each row's hits.

    Raises:
      ValueError: `passages` is neither.
    """
    if passages not in {"all", "each"}:
        msg = f"passages must be all or each, got {passages!r}; all reads them as one text."
        raise ValueError(msg)
    return [tuple(some) if passages == "each" else ("\n\n".join(some),) for some in texts]


def _version(name: str) -> str:
    """Version of a signal by the name of its model; a long one has its hash at the end."""
    return name if len(name) <= LONGEST_TEXT else f"{name[: LONGEST_TEXT - 17]}:{digest(name, 16)}"
