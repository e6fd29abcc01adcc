"""Cases a policy learned from (algebra): whether judged on fitted or tuned ones (S6.4, S6.5).

Cases are known by their questions. A policy names each set that a part of it learned from by one
hash of the whole set as it was written (`fused.fitted_on`, `decision.model.fitted_on`, `tuned_on`)
and keeps a hash of the plain form of each question beside it (`learned_cases`), so that an overlap
is counted case by case, however the questions are written. A file of raglab 0.1.0 keeps hashes of
the questions as they were written, or of the whole set alone.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain, combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np

from raglab.arguments.user_warnings import warn_user
from raglab.decision.trace_view import TraceView, once, trace_parts
from raglab.policy import PolicyData
from raglab.policy_parts.sections import EXPECTED_COST
from raglab.values import BitArray, BoolArray, Case, refuse
from raglab.words.canonical import digest
from raglab.words.characters import plain_question

# of what was fitted or selected on the cases that it is judged on
IN_SAMPLE = "in sample, not comparable"
MOST_CODES = 32_768  # questions of a set that a policy keeps: 256 KiB of a policy file
PLAIN = "A" * 8  # code 0, with which a set of codes of plain forms begins
CODE_BYTES = 6  # of a question: two of 20,000 questions agree by chance once in a million sets
# share of cases up to which equal questions are taken for repeats: users ask some things twice
REPEATED = 0.05
HELD_BACK = ("certify", "report")  # splits that nothing may learn from

Queries = Mapping[str | None, Sequence[str]]  # questions by split, None for cases without one
PolicyKind = TypeVar("PolicyKind", bound=PolicyData)


def queries_hash(cases: Iterable[Case]) -> str:
    """First 16 hex digits of the SHA-256 of the queries in sorted order.

    The same for cases that were labelled anew.
    """
    return hash_queries([case.query for case in cases])


def hash_queries(queries: Iterable[str]) -> str:
    """`queries_hash` of cases, in any order."""
    return digest("\n".join(sorted(queries)), 16)


def union_hashes(by_split: Queries) -> dict[frozenset[str | None], str]:
    """`queries_hash` of the cases of every union of splits, by the names of these."""
    names = list(by_split)
    unions = (
        frozenset(some) for size in range(1, len(names) + 1) for some in combinations(names, size)
    )
    return {
        union: hash_queries(chain.from_iterable(by_split[name] for name in union))
        for union in unions
    }


def trace_queries(trace: TraceView) -> dict[str | None, list[str]]:
    """Questions of a trace by split; of shards the cases alone are read."""
    by_split: dict[str | None, list[str]] = {}
    for case in chain.from_iterable(part.cases for part in trace_parts(trace)):
        by_split.setdefault(case.split, []).append(case.query)
    return by_split


def question_codes(queries: Iterable[str]) -> BitArray:
    """The first 48 bits of the SHA-256 of each question: of its plain form, and as written, [2, Q].

    Files of raglab 0.1.0 hold the latter.
    """
    forms = [(plain_question(query), query) for query in queries]
    codes = [[int(digest(text, 2 * CODE_BYTES), 16) for text in pair] for pair in forms]
    return np.array(codes, dtype=np.uint64).reshape(-1, 2).T


def is_repeated_set(codes: BitArray, text: str) -> bool:
    """Whether a set holds more than `REPEATED` of some questions, in either form.

    Args:
      codes: of the questions, [2, Q].
      text: codes of the set, see `code_text`.
    """
    known = np.isin(codes, text_codes(text)).any(axis=0)
    return int(known.sum()) > REPEATED * codes.shape[1]


def code_text(queries: Iterable[str]) -> str:
    """`PLAIN` and the codes of the distinct plain questions, ascending, in base 64.

    Of more than `MOST_CODES` the least, a fixed sample.

    Example:
      >>> code_text(["b", "a", "B?"])
      'AAAAAAAAPiPoFgA5ypeBEsob'
    """
    return _joined_codes(np.append(text_codes(PLAIN), question_codes(queries)[0]))


def _joined_codes(codes: BitArray) -> str:
    codes = np.unique(codes)[:MOST_CODES]
    raw = codes.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - CODE_BYTES :]
    return b64encode(raw.tobytes()).decode("ascii")


def text_codes(text: str) -> BitArray:
    """Codes of `code_text`, ascending, [N]."""
    raw = np.frombuffer(b64decode(text), dtype=np.uint8).reshape(-1, CODE_BYTES)
    return np.pad(raw, ((0, 0), (8 - CODE_BYTES, 0))).view(">u8").ravel().astype(np.uint64)


def with_learned_cases(policy: PolicyKind, queries: Collection[str]) -> PolicyKind:
    """Policy that keeps the codes of cases that a part of it names by their hash.

    Its policy_id stays.
    """
    sets = {**policy.learned_cases, hash_queries(queries): code_text(queries)}
    return policy.model_copy(update={"learned_cases": sets})


def with_tuned_cases(policy: PolicyKind, queries: Collection[str]) -> PolicyKind:
    """Policy that remembers the cases on which its values were chosen; its policy_id stays."""
    return with_learned_cases(
        policy.model_copy(update={"tuned_on": hash_queries(queries)}), queries
    )


def with_scores_of(policy: PolicyKind, meta: Mapping[str, Any]) -> PolicyKind:
    """Policy that states what scores its values were chosen on; its policy_id stays.

    Args:
      meta: of the trace; one of raglab's own retrieval has no kind of score.
    """
    parameters = meta.get("parameters", {})
    kind = str(parameters["score"] or "unstated") if "score" in parameters else None
    return policy.model_copy(update={"tuned_scores": kind})


def with_further_cases(policy: PolicyKind, queries: Collection[str]) -> PolicyKind:
    """Policy that remembers these cases and those that chose its values, under the old hash.

    The old hash is that of the cases on which its values were chosen before.

    Example:
      >>> from raglab.policy import PolicyData
      >>> policy = with_further_cases(with_tuned_cases(PolicyData.from_mapping(), ["a"]), ["b"])
      >>> [learned_cases([policy], {None: [query]})[0].k for query in "abc"]
      [1, 1, 0]
    """
    if policy.tuned_on is None:
        return with_tuned_cases(policy, queries)
    known = text_codes(policy.learned_cases.get(policy.tuned_on, ""))
    joined = _joined_codes(np.append(known, question_codes(queries)[0]))
    return policy.model_copy(
        update={"learned_cases": {**policy.learned_cases, policy.tuned_on: joined}}
    )


def learning_parts(policy: PolicyData) -> dict[str, str]:
    """What in a policy learned from cases and acts there, and the hash of that set of cases."""
    model = policy.decision.model if policy.decision.rule == EXPECTED_COST else None
    parts = {
        "fused gate": policy.fused.fitted_on if policy.fused.enabled else None,
        "model of the decision": None if model is None else model.fitted_on,
        "policy": policy.tuned_on,
    }
    return {name: fitted_on for name, fitted_on in parts.items() if fitted_on is not None}


class Learned(NamedTuple):
    """What a policy learned from some cases.

    parts: of the policy, that learned from any of them. k: of the `n` cases, from which it learned.
    unknown: parts of which the policy keeps no code of the plain form of each case, so that an
    overlap with a part of their cases is not seen. repeated: cases with a question that it learned
    from where they are at most `REPEATED` of all: they do not count in k, since users ask some
    things twice, and are stated.
    """

    parts: tuple[str, ...]
    k: int
    n: int
    unknown: tuple[str, ...] = ()
    repeated: int = 0

    @property
    def text(self) -> str:
        """How many cases it learned from; '' where none is known."""
        if not self.k:
            return ""
        verb = "was" if len(self.parts) == 1 else "were"
        return (
            f"the {' and the '.join(self.parts)} {verb} fitted or tuned on {self.k:,} of these "
            f"{self.n:,} cases"
        )

    @property
    def doubt(self) -> str:
        """That some questions are repeats, or that an overlap with a part of the cases is not seen.

        '' otherwise.
        """
        if self.repeated:
            rule = f"at most {REPEATED:.0%} are taken for repeats and stay"
            return (
                f"{self.repeated:,} of these {self.n:,} cases have a question that it learned "
                f"from; {rule} (S6.11)."
            )
        if self.k or not self.unknown:
            return ""
        return (
            f"Whether the {' and the '.join(self.unknown)} was fitted on some of these {self.n:,} "
            "cases is not seen; fit it again to count them."
        )


class KnownQuestions(NamedTuple):
    """Questions that a policy is judged on.

    Codes of both forms [2, Q], and by the hash of a union of splits who of them is in it.
    """

    codes: BitArray
    unions: Mapping[str, BoolArray]


def learned_cases(
    policies: Sequence[PolicyData], by_split: Queries, target: Collection[str | None] | None = None
) -> list[Learned]:
    """What each policy learned from some cases.

    A set of which a policy keeps the codes is compared case by case, another as a whole with every
    union of splits.

    Args:
      by_split: questions of a trace by split.
      target: splits that are judged on; all of them where not given.

    Source: rules S6.4, S6.5, S6.11.
    """
    sources = [learning_parts(policy) for policy in policies]
    if not any(sources):
        n = sum(len(by_split[name]) for name in _judged_splits(by_split, target))
        return [Learned((), 0, n)] * len(policies)
    return _learned_rows(policies, sources, _known_questions(by_split, target))


def _judged_splits(
    by_split: Queries, target: Iterable[str | None] | None
) -> Collection[str | None]:
    """Splits of a trace that are judged on."""
    return by_split.keys() if target is None else frozenset(target) & by_split.keys()


def _known_questions(
    by_split: Queries, target: Iterable[str | None] | None = None
) -> KnownQuestions:
    """Codes of the questions that are judged on, and the unions of splits that hold any of them."""
    judged = _judged_splits(by_split, target)
    codes = question_codes(chain.from_iterable(by_split[name] for name in judged))
    # A split of equal questions with another one has both in its hash, so every union that holds
    # judged cases counts.
    of_split = np.repeat(np.arange(len(judged)), [len(by_split[name]) for name in judged])
    places = {name: place for place, name in enumerate(judged)}
    unions = {
        hashed: np.isin(of_split, [places[name] for name in union & places.keys()])
        for union, hashed in union_hashes(by_split).items()
        if union & places.keys()
    }
    return KnownQuestions(codes, unions)


def _learned_rows(
    policies: Sequence[PolicyData], sources: Sequence[Mapping[str, str]], known: KnownQuestions
) -> list[Learned]:
    """What each policy learned from the questions, by its parts and the hashes of their sets."""
    # Policies of one study share their sets, so each set is compared once.
    learned = cache(partial(_learned_row, known=known))
    return [
        learned(tuple((name, of, policy.learned_cases.get(of, "")) for name, of in parts.items()))
        for policy, parts in zip(policies, sources, strict=True)
    ]


def _learned_row(parts: Iterable[tuple[str, str, str]], known: KnownQuestions) -> Learned:
    """What a policy learned from the questions.

    Parts: name, hash of the set, and its codes as text.
    """
    hits, unknown, any_part, is_whole = [], [], np.zeros(known.codes.shape[1], dtype=bool), False
    for name, fitted_on, text in parts:
        is_whole |= fitted_on in known.unions
        mask = np.isin(known.codes, text_codes(text)).any(axis=0)
        mask |= known.unions.get(fitted_on, False)
        if mask.any():
            hits.append(name)
            any_part |= mask
        elif not text.startswith(PLAIN):
            unknown.append(name)
    k, n = int(any_part.sum()), len(any_part)
    if not is_whole and 0 < k <= REPEATED * n:
        return Learned((), 0, n, tuple(unknown), repeated=k)
    return Learned(tuple(hits), k, n, tuple(unknown))


def trace_learned(policies: Sequence[PolicyData], trace: TraceView) -> list[Learned]:
    """`learned_cases` of all cases of a trace, read only where a policy learned from any."""
    sources = [learning_parts(policy) for policy in policies]
    if not any(sources):
        return [Learned((), 0, len(trace))] * len(policies)
    known = once(trace, "questions", lambda: _known_questions(trace_queries(trace)))
    return _learned_rows(policies, sources, known)


def in_sample_note(learned: Learned) -> str:
    """That a policy is judged on what it learned from, with the count.

    '' where it is not known to be.
    """
    return f"{IN_SAMPLE}: {learned.text}" if learned.k else ""


def warn_of_learned(names: Iterable[str], rows: Iterable[Learned]) -> list[str]:
    """Note of each policy that is judged on what it learned from, '' of others.

    Warns of these, and of doubts.
    """
    notes = []
    for name, learned in zip(names, rows, strict=True):
        notes.append(in_sample_note(learned))
        if text := notes[-1] or learned.doubt:
            warn_user(f"{name}: {text}")
    return notes


def check_unlearned(learned: Learned) -> None:
    """Refuse cases from which a policy learned.

    Raises:
      ValueError: it learned from some.

    Source: rule S6.4.
    """
    if learned.k:
        parts = " and the ".join(learned.parts)
        rule = f"cases must not be those that the {parts} was fitted on"
        remedy = "deal them into tune and certify before the fit: trace = raglab.split(trace)"
        refuse(rule, f"{learned.k:,} of {learned.n:,} that are", remedy)


def warn_of_held_back(by_split: Queries, what: str) -> None:
    """Warn if all cases to fit something on are of a split kept to certify or to report on."""
    held = [str(name) for name in by_split if name in HELD_BACK]
    n = sum(map(len, by_split.values()))
    if n and len(held) == len(by_split):
        warn_user(
            f"{what} should be fitted on cases of split tune, got {n:,} of split "
            f"{' and '.join(held)}: there the policy is in sample; fit it on "
            "trace.split('tune')."
        )
