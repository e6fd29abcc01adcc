"""Cases a policy learned from (algebra): whether judged on fitted or tuned ones (S6.4, S6.5).

Cases are known by their questions. A policy names each set that a part of it learned from by one
hash of the whole set as it was written (`fused.fitted_on`, `decision.model.fitted_on`, `tuned_on`)
and keeps a hash of the plain form of each question with it (`learned_cases`), so that an overlap
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
MAX_LEARNED_CODES = 32_768  # questions of a set that a policy keeps: 256 KiB of a policy file
PLAIN_FORM_CODE = "A" * 8  # code 0, with which a set of codes of plain forms begins
CODE_BYTES = 6  # of a question: two of 20,000 questions agree by chance once in a million sets
# share of cases up to which equal questions are taken for repeats: users ask some things twice
REPEATED_SHARE = 0.05
HELD_BACK_SPLITS = ("certify", "report")  # splits that nothing may learn from

Queries = Mapping[str | None, Sequence[str]]  # questions by split, None for cases without one
PolicyKind = TypeVar("PolicyKind", bound=PolicyData)


def queries_hash(cases: Iterable[Case]) -> str:
    """First 16 hex digits of the SHA-256 of the queries in sorted order.

    The same for cases that were labelled anew.
    """
    return hash_queries([case.query for case in cases])


def hash_queries(query_texts: Iterable[str]) -> str:
    """`queries_hash` of cases, in any order."""
    return digest("\n".join(sorted(query_texts)), 16)


def union_hashes(split_queries: Queries) -> dict[frozenset[str | None], str]:
    """`queries_hash` of the cases of every union of splits, by the names of these."""
    split_names = list(split_queries)
    split_unions = (
        frozenset(chosen_splits)
        for n_splits in range(1, len(split_names) + 1)
        for chosen_splits in combinations(split_names, n_splits)
    )
    return {
        split_union: hash_queries(
            chain.from_iterable(split_queries[split_name] for split_name in split_union)
        )
        for split_union in split_unions
    }


def trace_queries(trace: TraceView) -> dict[str | None, list[str]]:
    """Questions of a trace by split; of shards the cases alone are read."""
    split_queries: dict[str | None, list[str]] = {}
    for case in chain.from_iterable(trace_part.cases for trace_part in trace_parts(trace)):
        split_queries.setdefault(case.split, []).append(case.query)
    return split_queries


def question_codes(queries: Iterable[str]) -> BitArray:
    """The first 48 bits of the SHA-256 of each question: of its plain form, and as written, [2, Q].

    Files of raglab 0.1.0 hold the latter.
    """
    question_forms = [(plain_question(question), question) for question in queries]
    form_codes = [
        [int(digest(text, 2 * CODE_BYTES), 16) for text in form_pair]
        for form_pair in question_forms
    ]
    return np.array(form_codes, dtype=np.uint64).reshape(-1, 2).T


def is_repeated_set(query_codes: BitArray, stored_codes: str) -> bool:
    """Whether a set holds more than `REPEATED_SHARE` of some questions, in either form.

    Args:
      query_codes: of the questions, [2, Q].
      stored_codes: codes of the set, see `code_text`.
    """
    is_known = np.isin(query_codes, text_codes(stored_codes)).any(axis=0)
    return int(is_known.sum()) > REPEATED_SHARE * query_codes.shape[1]


def code_text(queries: Iterable[str]) -> str:
    """`PLAIN_FORM_CODE` and the codes of the distinct plain questions, ascending, in base 64.

    Of more than `MAX_LEARNED_CODES` the least, a fixed sample.

    Example:
      >>> code_text(["b", "a", "B?"])
      'AAAAAAAAPiPoFgA5ypeBEsob'
    """
    return _joined_codes(np.append(text_codes(PLAIN_FORM_CODE), question_codes(queries)[0]))


def _joined_codes(query_codes: BitArray) -> str:
    query_codes = np.unique(query_codes)[:MAX_LEARNED_CODES]
    code_bytes = query_codes.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - CODE_BYTES :]
    return b64encode(code_bytes.tobytes()).decode("ascii")


def text_codes(stored_codes: str) -> BitArray:
    """Codes of `code_text`, ascending, [N]."""
    code_bytes = np.frombuffer(b64decode(stored_codes), dtype=np.uint8).reshape(-1, CODE_BYTES)
    return np.pad(code_bytes, ((0, 0), (8 - CODE_BYTES, 0))).view(">u8").ravel().astype(np.uint64)


def with_learned_cases(policy: PolicyKind, queries: Collection[str]) -> PolicyKind:
    """Policy that keeps the codes of cases that a part of it names by their hash.

    Its policy_id stays.
    """
    learned_sets = {**policy.learned_cases, hash_queries(queries): code_text(queries)}
    return policy.model_copy(update={"learned_cases": learned_sets})


def with_tuned_cases(policy: PolicyKind, queries: Collection[str]) -> PolicyKind:
    """Policy that remembers the cases on which its values were chosen; its policy_id stays."""
    return with_learned_cases(
        policy.model_copy(update={"tuned_on": hash_queries(queries)}), queries
    )


def with_scores_of(policy: PolicyKind, trace_meta: Mapping[str, Any]) -> PolicyKind:
    """Policy that states what scores its values were chosen on; its policy_id stays.

    Args:
      trace_meta: of the trace; one of raglab's own retrieval has no kind of score.
    """
    parameters = trace_meta.get("parameters", {})
    score_kind = str(parameters["score"] or "unstated") if "score" in parameters else None
    return policy.model_copy(update={"tuned_scores": score_kind})


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
    known_codes = text_codes(policy.learned_cases.get(policy.tuned_on, ""))
    joined_codes = _joined_codes(np.append(known_codes, question_codes(queries)[0]))
    return policy.model_copy(
        update={"learned_cases": {**policy.learned_cases, policy.tuned_on: joined_codes}}
    )


def learning_parts(policy: PolicyData) -> dict[str, str]:
    """What in a policy learned from cases and acts there, and the hash of that set of cases."""
    decision_model = policy.decision.model if policy.decision.rule == EXPECTED_COST else None
    fitted_parts = {
        "fused gate": policy.fused.fitted_on if policy.fused.enabled else None,
        "model of the decision": None if decision_model is None else decision_model.fitted_on,
        "policy": policy.tuned_on,
    }
    return {name: fitted_on for name, fitted_on in fitted_parts.items() if fitted_on is not None}


class Learned(NamedTuple):
    """What a policy learned from some cases.

    parts: of the policy, that learned from any of them. k: of the `n` cases, from which it learned.
    unknown: parts of which the policy keeps no code of the plain form of each case, so that an
    overlap with a part of their cases is not seen. repeated: cases with a question that it learned
    from where they are at most `REPEATED_SHARE` of all: they do not count in k, since users ask
    some things twice, and are stated.
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
            repeat_rule = f"at most {REPEATED_SHARE:.0%} are taken for repeats and stay"
            return (
                f"{self.repeated:,} of these {self.n:,} cases have a question that it learned "
                f"from; {repeat_rule} (S6.11)."
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
    policy_parts = [learning_parts(policy) for policy in policies]
    if not any(policy_parts):
        n_judged = sum(len(by_split[name]) for name in _judged_splits(by_split, target))
        return [Learned((), 0, n_judged)] * len(policies)
    return _learned_rows(policies, policy_parts, _known_questions(by_split, target))


def _judged_splits(
    split_queries: Queries, target_splits: Iterable[str | None] | None
) -> Collection[str | None]:
    """Splits of a trace that are judged on."""
    return (
        split_queries.keys()
        if target_splits is None
        else frozenset(target_splits) & split_queries.keys()
    )


def _known_questions(
    split_queries: Queries, target_splits: Iterable[str | None] | None = None
) -> KnownQuestions:
    """Codes of the questions that are judged on, and the unions of splits that hold any of them."""
    judged_names = _judged_splits(split_queries, target_splits)
    query_codes = question_codes(
        chain.from_iterable(split_queries[split_name] for split_name in judged_names)
    )
    # A split of equal questions with another one has both in its hash, so every union that holds
    # judged cases counts.
    split_indices = np.repeat(
        np.arange(len(judged_names)),
        [len(split_queries[split_name]) for split_name in judged_names],
    )
    index_of_split = {
        split_name: split_index for split_index, split_name in enumerate(judged_names)
    }
    union_masks = {
        union_hash: np.isin(
            split_indices,
            [index_of_split[split_name] for split_name in split_union & index_of_split.keys()],
        )
        for split_union, union_hash in union_hashes(split_queries).items()
        if split_union & index_of_split.keys()
    }
    return KnownQuestions(query_codes, union_masks)


def _learned_rows(
    policies: Sequence[PolicyData],
    policy_parts: Sequence[Mapping[str, str]],
    known_questions: KnownQuestions,
) -> list[Learned]:
    """What each policy learned from the questions, by its parts and the hashes of their sets."""
    # Policies of one study share their sets, so each set is compared once.
    learned_from = cache(partial(_learned_row, known_questions=known_questions))
    return [
        learned_from(
            tuple(
                (name, cases_hash, policy.learned_cases.get(cases_hash, ""))
                for name, cases_hash in fitted_parts.items()
            )
        )
        for policy, fitted_parts in zip(policies, policy_parts, strict=True)
    ]


def _learned_row(
    fitted_parts: Iterable[tuple[str, str, str]], known_questions: KnownQuestions
) -> Learned:
    """What a policy learned from the questions.

    Parts: name, hash of the set, and its codes as text.
    """
    learned_parts, unknown_parts, is_learned, is_whole = (
        [],
        [],
        np.zeros(known_questions.codes.shape[1], dtype=bool),
        False,
    )
    for part_name, fitted_on, stored_codes in fitted_parts:
        is_whole |= fitted_on in known_questions.unions
        part_mask = np.isin(known_questions.codes, text_codes(stored_codes)).any(axis=0)
        part_mask |= known_questions.unions.get(fitted_on, False)
        if part_mask.any():
            learned_parts.append(part_name)
            is_learned |= part_mask
        elif not stored_codes.startswith(PLAIN_FORM_CODE):
            unknown_parts.append(part_name)
    n_learned = int(is_learned.sum())
    n_questions = len(is_learned)
    if not is_whole and 0 < n_learned <= REPEATED_SHARE * n_questions:
        return Learned((), 0, n_questions, tuple(unknown_parts), repeated=n_learned)
    return Learned(tuple(learned_parts), n_learned, n_questions, tuple(unknown_parts))


def trace_learned(policies: Sequence[PolicyData], trace: TraceView) -> list[Learned]:
    """`learned_cases` of all cases of a trace, read only where a policy learned from any."""
    policy_parts = [learning_parts(policy) for policy in policies]
    if not any(policy_parts):
        return [Learned((), 0, len(trace))] * len(policies)
    known_questions = once(trace, "questions", lambda: _known_questions(trace_queries(trace)))
    return _learned_rows(policies, policy_parts, known_questions)


def in_sample_note(learned_row: Learned) -> str:
    """That a policy is judged on what it learned from, with the count.

    '' where it is not known to be.
    """
    return f"{IN_SAMPLE}: {learned_row.text}" if learned_row.k else ""


def warn_of_learned(policy_names: Iterable[str], learned_rows: Iterable[Learned]) -> list[str]:
    """Note of each policy that is judged on what it learned from, '' of others.

    Warns of these, and of doubts.
    """
    sample_notes = []
    for policy_name, learned_row in zip(policy_names, learned_rows, strict=True):
        sample_notes.append(in_sample_note(learned_row))
        if text := sample_notes[-1] or learned_row.doubt:
            warn_user(f"{policy_name}: {text}")
    return sample_notes


def check_unlearned(learned_row: Learned) -> None:
    """Refuse cases from which a policy learned.

    Raises:
      ValueError: it learned from some.

    Source: rule S6.4.
    """
    if learned_row.k:
        names = " and the ".join(learned_row.parts)
        refuse(
            f"cases must not be those that the {names} was fitted on",
            f"{learned_row.k:,} of {learned_row.n:,} that are",
            "deal them into tune and certify before the fit: trace = raglab.split(trace)",
        )


def warn_of_held_back(split_queries: Queries, fitted_name: str) -> None:
    """Warn if all cases to fit something on are of a split kept to certify or to report on."""
    held_back = [str(split_name) for split_name in split_queries if split_name in HELD_BACK_SPLITS]
    n_cases = sum(map(len, split_queries.values()))
    if n_cases and len(held_back) == len(split_queries):
        warn_user(
            f"{fitted_name} should be fitted on cases of split tune, got {n_cases:,} of split "
            f"{' and '.join(held_back)}: there the policy is in sample; fit it on "
            "trace.split('tune')."
        )
