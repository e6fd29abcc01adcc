"""Answers recorded once for every set of hits that a decision may rest on, so that their gates replay as well."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from raglab import values
from raglab._recorded import slot_sets
from raglab.answering.hygiene import clean
from raglab.answering.support import Support
from raglab.chain import FIRST_OK, ON_ANSWER, STAGE
from raglab.policy import Policy
from raglab.replay import decide, tables_of
from raglab.store.traces import Trace
from raglab.values import Answers, Chunk, Generation

Set = tuple[int, int, int, tuple[int, ...]]


class Generator(Protocol):
    """What writes answers."""

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints and cache keys."""

    def answer(self, question: str, passages: Sequence[Chunk]) -> Generation:
        """Answer from the passages alone, or none with the reason."""


class Scorer(Protocol):
    """What checks answers."""

    @property
    def name(self) -> str:
        """Stable identifier; belongs into fingerprints and cache keys."""

    def support(self, answer: str, passages: Sequence[str]) -> Support:
        """Least support of a claim of the answer by the passages, and that claim."""


class Checked(NamedTuple):
    """An answer as it leaves the system, with what its gates read; see `Answers`. cited: positions of passages."""

    text: str
    confidence: float
    support: float
    claim: str
    cited: tuple[int, ...]
    refused: str


def checked(
    question: str,
    passages: Sequence[Chunk],
    generator: Generator,
    scorer: Scorer,
    *,
    ms: dict[str, float] | None = None,
) -> Checked:
    """Answer a question from passages: generation, hygiene, support.

    Args:
      ms: takes the milliseconds of `generate`, and of `support` with hygiene.

    Source: rules S2.10, S2.11, S2.13.
    """
    start = perf_counter()
    said = generator.answer(question, passages)
    between = perf_counter()
    cleaned = clean(said.text)
    refused = said.reason if said.reason and not said.text.strip() else cleaned.refused or ""
    support = Support(np.nan, "", ()) if refused else scorer.support(cleaned.text, [one.text for one in passages])
    cited = tuple(place for place in said.cited if 0 <= place < len(passages))
    text = "" if refused else cleaned.text
    if ms is not None:
        ms |= {"generate": 1e3 * (between - start), "support": 1e3 * (perf_counter() - between)}
    return Checked(text, float(said.confidence), float(support.score), support.claim, cited, refused)


def record_answers(
    trace: values.Trace,
    policy: Policy,
    generator: Generator,
    scorer: Scorer,
    *,
    arms: Sequence[str] | None = None,
    decided_only: bool = False,
    progress: bool = False,
) -> Trace:
    """Trace with an answer for every set of hits that a policy of this structure may choose, whatever its thresholds.

    The gates of generation, support and hygiene are then part of every replay. An answer depends on the question and
    the hits alone, so that the same set at another depth or arm is answered once.

    Args:
      policy: whose final_k, order and patterns say which sets there are. arms: those that are answered; all.
      decided_only: only the sets that this very policy chooses; for a generator that costs.
      progress: whether a bar counts the answers.

    Raises:
      ValueError: an arm that the trace lacks.
    """
    named = trace.arms if arms is None else tuple(arms)
    sets = [
        one for arm in named for one in (_chosen(trace, policy, arm) if decided_only else _every(trace, policy, arm))
    ]
    known: dict[tuple[int, tuple[int, ...]], Checked] = {}
    for row, _, _, chunks in tqdm(sets, desc="answer", unit="set", disable=not progress):
        if (row, chunks) not in known:
            passages = [trace.chunks[number] for number in chunks]
            known[row, chunks] = checked(trace.cases[row].query, passages, generator, scorer)
    answers = answers_of(sets, [known[row, chunks] for row, _, _, chunks in sets], generator.name, scorer.name)
    meta = dict(trace.meta)
    if "fingerprint" in meta:
        made_of = f"{meta['fingerprint']} {generator.name} {scorer.name} {policy.structure} {named} {decided_only}"
        meta |= {"fingerprint": hashlib.sha256(made_of.encode()).hexdigest()[:16]}
    meta |= {"generator": generator.name, "scorer": scorer.name}
    parts = (trace.cases, trace.chunks, trace.arms, trace.hits, trace.pattern_hits)
    return Trace(*parts, meta, trace.queries, answers, trace.latency, trace.vectors)


def _every(trace: values.Trace, policy: Policy, arm: str) -> list[Set]:
    """Sets of hits of every slot: the first relevant ones, the resolver's winners, an only option."""
    found = tables_of(trace, policy, arm)
    at, places = trace.arm(arm), found.chosen.places
    n_cases = len(trace)
    keep = np.ones(places.shape[:2], dtype=bool)
    for slot, options in ((-2, found.chosen.options_all), (-1, found.chosen.options_tied)):
        keep[:, slot] = [len(shown) == 1 for shown in options]
    chunk = np.moveaxis(trace.hits.chunk[:, at], 1, 0).reshape(-1, trace.hits.chunk.shape[3])
    rows = slot_sets(places, chunk, keep)
    return list(dict.fromkeys((batch % n_cases, at, batch // n_cases, chunks) for batch, _, chunks in rows))


def _chosen(trace: values.Trace, policy: Policy, arm: str) -> list[Set]:
    """Sets of hits that a policy answers from."""
    said = decide(trace, policy, arm)
    ready = [*range(FIRST_OK, len(STAGE)), *(STAGE[name] for name in ON_ANSWER)]
    rows = np.flatnonzero(np.isin(said.outcome.stage, ready))
    return [(int(row), trace.arm(arm), int(said.outcome.depth[row]), said.in_slot(int(row))) for row in rows]


def answers_of(sets: Sequence[Set], found: Sequence[Checked], generator: str, scorer: str) -> Answers:
    """Checked answers of sets of hits, as a trace holds them."""
    width = max((len(chunks) for *_, chunks in sets), default=0)
    padded = np.full((len(sets), width), -1, dtype=np.int32)
    for number, (*_, chunks) in enumerate(sets):
        padded[number, : len(chunks)] = chunks

    def ints(values_: Sequence[int]) -> NDArray[np.int32]:
        return np.array(values_, dtype=np.int32)

    def floats(name: str) -> Any:  # noqa: ANN401 - an array
        return np.array([getattr(one, name) for one in found], dtype=np.float64)

    pairs = zip(sets, found, strict=True)
    cited = tuple(tuple(chunks[place] for place in one.cited) for (*_, chunks), one in pairs)
    return Answers(
        generator,
        scorer,
        ints([one[0] for one in sets]),
        ints([one[1] for one in sets]),
        ints([one[2] for one in sets]),
        padded,
        tuple(one.text for one in found),
        floats("confidence"),
        floats("support"),
        tuple(one.claim for one in found),
        cited,
        tuple(one.refused for one in found),
    )
