"""Signal values (algebra): each built-in signal of a case, and a question's intent (S2.15, S4.1).

Each function measures what one source tells, as columns by name; `signal_rows` puts them into the
order of a `SignalSet`: the built-in ones, then the trace's own. None depends on a threshold.

The intent of a question is whether it wants a graph or a table, and how complex it is (S4.1). Its
rules stand in the files of the languages, by no corpus. A question that no rule speaks to scores 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.extension_points import check_installed
from raglab.policy import PolicyData
from raglab.policy_parts.own_gates import own_gate
from raglab.policy_parts.sections import EXPECTED_COST, in_order
from raglab.signals import (
    BUILT_IN,
    BUILT_IN_SET,
    NAMES,
    PARSED,
    SignalSet,
    declared_signal,
    retrieval_confidence,
)
from raglab.values import BoolArray, Case, FloatArray, Hits, IntArray, TraceData, refuse
from raglab.words.characters import unaccented
from raglab.words.languages import LANGUAGES, Language, expression
from raglab.words.tokeniser import word_count

COMPARED_ARMS = (
    "dense",
    "bm25",
    "hybrid",
)  # arms whose agreement is a signal: words, meaning, and both
OVERLAP_DEPTH = 5  # first hits of two arms that are compared
SPREAD_HITS = 10  # best cosines whose spread is a signal
STORED_ROOM = (
    "clarification"  # of `raglab.extensions`, that measures the signals of `STORED_SIGNALS`
)
STORED_SIGNALS = tuple(signal.name for signal in PARSED)  # signals that only a trace's columns tell
ANSWER_SIGNALS = tuple(signal.name for signal in BUILT_IN if signal.stage == "answer")
Columns = dict[str, FloatArray]


def arm_order(hit_ranks: NDArray[np.int32], hit_chunks: IntArray) -> IntArray:
    """Places of the hits in the arm's final order, hits without a rank last."""
    return np.argsort(
        np.where((hit_chunks >= 0) & (hit_ranks >= 0), hit_ranks, np.iinfo(np.int32).max),
        axis=1,
        kind="stable",
    )


def first_by_rank(hit_values: FloatArray, hit_order: IntArray, n_first: int) -> FloatArray:
    """Values of the first k hits in an order, [k, B]."""
    return np.ascontiguousarray(hit_values[np.arange(len(hit_values)), hit_order[:, :n_first].T])


def query_signals(cases: Sequence[Case], entities: Sequence[Sequence[str]]) -> Columns:
    """Signals that the question and what the user adds tell, by name, [Q] each.

    Args:
      entities: of each question, those that the policy's patterns name.

    Example:
      >>> columns = query_signals(
      ...     [Case("a", "Who pays the excess?", "ok", selected_sources=("guide.md",))], [()]
      ... )
      >>> [float(columns[name][0]) for name in ("words", "entities", "documents")]
      [4.0, 0.0, 1.0]
    """
    columns = {
        "words": [word_count(case.query) for case in cases],
        "entities": list(map(len, entities)),
        "documents": [len(case.selected_sources) for case in cases],
    }
    intents = [intent(case.query)[: len(INTENT_FLAGS)] for case in cases]
    intent_names = ("intent_graph", "intent_table", "complexity")
    intent_scores = dict(
        zip(intent_names, np.array(intents, dtype=np.float64).reshape(-1, 3).T, strict=True)
    )
    return {
        signal_name: np.array(case_counts, dtype=np.float64)
        for signal_name, case_counts in columns.items()
    } | intent_scores


class FirstHits(NamedTuple):
    """Scores of the first k hits in the arm's final order, [k, B] each; NaN if none.

    rerank, hybrid: in [0, 1]. cosine: of query and hit. fallback: what stands in for a reranker
    that says nothing, in [0, 1]. degenerate: whether it says nothing, bool [B].
    """

    rerank: FloatArray
    hybrid: FloatArray
    cosine: FloatArray
    fallback: FloatArray
    degenerate: BoolArray


def score_signals(hits: Hits, first_hits: FirstHits) -> Columns:
    """Signals of the hits' scores, by name, [B] each.

    Args:
      hits: of one arm in the order of l2, fields [B, K].
      first_hits: of the same rows.

    Source: rules S2.4, S2.8, S2.15.
    """
    n_scores = (~np.isnan(first_hits.cosine)).sum(axis=0)
    rerank_margin = (
        first_hits.rerank[0] - first_hits.rerank[1]
        if len(first_hits.rerank) >= 2
        else np.full(len(hits.l2), np.nan)
    )
    return {
        "confidence": retrieval_confidence(
            first_hits.rerank, first_hits.fallback, first_hits.degenerate, 1.0
        ),
        "top1_cosine": hits.cosine[:, 0],
        "mean_cosine": np.where(
            n_scores > 0, np.nansum(first_hits.cosine, axis=0) / np.maximum(n_scores, 1), np.nan
        ),
        "gap": confidence_gap(hits),
        "hybrid": np.fmax.reduce(first_hits.hybrid, axis=0),
        "rerank_margin": rerank_margin,
        **score_statistics(np.where(hits.chunk >= 0, hits.cosine, np.nan)),
    }


def confidence_gap(hits: Hits) -> FloatArray:
    """Squared L2 between the two nearest hits, [B]; NaN without a second."""
    return (
        np.abs(hits.l2[:, 1] - hits.l2[:, 0])
        if hits.l2.shape[1] >= 2
        else np.full(len(hits.l2), np.nan)
    )


def score_statistics(cosine: FloatArray) -> Columns:
    """Scale and spread of the scores of all hits, and the one over the other, by name, [B] each.

    NaN without a hit.

    The mean cosine of the hits stands for the score of the whole collection, which NQC divides by.

    Args:
      cosine: of all hits, [B, K]; NaN if none.

    Source: Shtok, Kurland, Carmel, Raiber & Markovits 2012, Predicting Query Performance by
      Query-Drift Estimation (normalized query commitment), over the ten best hits.

    Example:
      >>> {
      ...     name: column.round(3).tolist()
      ...     for name, column in score_statistics(np.array([[0.9, 0.7]])).items()
      ... }
      {'score_scale': [0.8], 'score_spread': [0.1], 'nqc': [0.125]}
    """
    scale, _ = _mean_and_spread(cosine)
    best_cosines = np.sort(np.where(np.isnan(cosine), -np.inf, cosine), axis=1)[:, ::-1][
        :, :SPREAD_HITS
    ]
    _, spread = _mean_and_spread(np.where(np.isinf(best_cosines), np.nan, best_cosines))
    abs_scale = np.abs(scale)
    nqc = np.divide(spread, abs_scale, out=np.full_like(spread, np.nan), where=abs_scale > 0.0)
    return {"score_scale": scale, "score_spread": spread, "nqc": nqc}


def _mean_and_spread(
    score_rows: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of every row without its NaN, [B] each.

    NaN, without a warning, of an empty row.
    """
    is_present = ~np.isnan(score_rows)
    n_present = is_present.sum(axis=1)
    divisor = np.maximum(n_present, 1)
    row_mean = np.where(is_present, score_rows, 0.0).sum(axis=1) / divisor
    row_variance = (
        np.where(is_present, (score_rows - row_mean[:, None]) ** 2, 0.0).sum(axis=1) / divisor
    )
    return np.where(n_present > 0, row_mean, np.nan), np.where(
        n_present > 0, np.sqrt(row_variance), np.nan
    )


def arm_agreement(trace: TraceData) -> Columns:
    """How far dense, BM25 and hybrid agree, by name, [D, Q] each.

    NaN where fewer than two of them have hits.

    Over the pairs of those arms that both have hits: share with the same first hit, and mean
    overlap of the first five, which is what they share over the longer of the two, each in the
    arm's final order.

    Source: rule S2.15.
    """
    present_arms = [trace.arm(arm_name) for arm_name in COMPARED_ARMS if arm_name in trace.arms]
    n_depths = trace.hits.chunk.shape[2]
    if len(present_arms) < 2 or not len(trace):
        no_agreement = np.full((n_depths, len(trace)), np.nan)
        return {"arms_first": no_agreement, "arms_overlap": no_agreement}
    first_chunks = [_first_chunks(trace, arm_index) for arm_index in present_arms]
    both_have_hits, same_first, overlaps = (
        np.array(pair_rows)
        for pair_rows in zip(
            *(_pair_agreement(*arm_pair) for arm_pair in combinations(first_chunks, 2)), strict=True
        )
    )
    n_pairs = both_have_hits.sum(axis=0)

    def mean(pair_values: FloatArray) -> FloatArray:
        pair_total = np.where(both_have_hits, pair_values, 0.0).sum(axis=0)
        return np.where(n_pairs > 0, pair_total / np.maximum(n_pairs, 1), np.nan).reshape(
            n_depths, len(trace)
        )

    return {"arms_first": mean(same_first), "arms_overlap": mean(overlaps)}


def _first_chunks(trace: TraceData, arm_index: int) -> IntArray:
    """Chunks of the first hits of an arm in its final order, [D·Q, 5], -1 where there are fewer."""
    chunks, ranks = (
        np.moveaxis(hit_field[:, arm_index], 1, 0).reshape(-1, hit_field.shape[-1])
        for hit_field in (trace.hits.chunk, trace.hits.rank)
    )
    hit_chunks = chunks.astype(np.int64)
    hit_order = arm_order(ranks, hit_chunks)[:, :OVERLAP_DEPTH]
    return np.take_along_axis(hit_chunks, hit_order, axis=1)


def _pair_agreement(
    first_chunks: IntArray, second_chunks: IntArray
) -> tuple[BoolArray, BoolArray, FloatArray]:
    """Whether both arms have hits, whether the first is the same, and the overlap, [B] each."""
    first_present = first_chunks >= 0
    longer_count = np.maximum(first_present.sum(axis=1), (second_chunks >= 0).sum(axis=1))
    n_shared = (
        (first_chunks[:, :, None] == second_chunks[:, None, :]) & first_present[:, :, None]
    ).sum(axis=(1, 2))
    both_have_hits = first_present[:, 0] & (second_chunks[:, 0] >= 0)
    return (
        both_have_hits,
        first_chunks[:, 0] == second_chunks[:, 0],
        n_shared / np.maximum(longer_count, 1),
    )


def stored_signals(trace: TraceData, arm: str) -> Columns:
    """Signals that the trace holds as columns, at an arm, by name, [D, Q] each.

    Those alone that it holds.

    A question asked live has those of its answer as columns too: it is decided before any answer is
    recorded.
    """
    arm_index = trace.arm(arm)
    return {signal_name: column[:, arm_index].T for signal_name, column in trace.columns.items()}


def trace_signals(trace: TraceData) -> SignalSet:
    """Signals of a trace: the built-in ones, then its own by name, as its meta declares them.

    Raises:
      ValueError: a column without a declaration.
    """
    user_signals = sorted(set(trace.columns).difference(NAMES))
    if not user_signals:
        return BUILT_IN_SET
    declarations = trace.meta.get("signals", {})
    return SignalSet(
        (
            *BUILT_IN,
            *(
                declared_signal(signal_name, declarations.get(signal_name))
                for signal_name in user_signals
            ),
        )
    )


def answer_signals(generation: FloatArray, support: FloatArray, n_hits: int) -> Columns:
    """Signals of the recorded answer to all hits, by name, [D, Q] each; NaN where none is recorded.

    The answer depends on which hits are chosen and those on thresholds, which a signal must not: so
    it is the answer of one slot, that of all hits being relevant.

    Args:
      generation, support: by slot, [D, S, Q].
      n_hits: K, which is that slot's number.
    """
    return {"generation": generation[:, n_hits], "support": support[:, n_hits]}


def signal_rows(
    columns: Mapping[str, NDArray[Any]],
    retrieved: BoolArray,
    signal_set: SignalSet = BUILT_IN_SET,
) -> FloatArray:
    """Signals in the order of a set, [signals, D, Q]; NaN where nobody measured one.

    Args:
      columns: by name, each [D, Q] or [Q].
      retrieved: whether a case has hits, [D, Q]: without one only what the query tells is there,
        since a signal of the hits that comes from no hit would say something of nothing.

    Example:
      >>> rows = signal_rows(
      ...     {"words": np.array([3.0]), "groups": np.array([0.0])}, np.array([[False]])
      ... )
      >>> rows[NAMES.index("words")].item(), rows[NAMES.index("groups")].item()
      (3.0, nan)
    """
    signal_table = np.full((len(signal_set.rows), *retrieved.shape), np.nan)
    for signal_index, signal in enumerate(signal_set.rows):
        if signal.name in columns:
            signal_table[signal_index] = columns[signal.name]
            if signal.stage != "query":
                signal_table[signal_index][~retrieved] = np.nan
    return signal_table


def with_columns(signal_table: FloatArray, columns: Mapping[str, FloatArray]) -> FloatArray:
    """Signals with those of some built-in columns, if they have values, [signals, D, Q]; a copy."""
    changed_table = signal_table.copy()
    for signal_name, column in columns.items():
        signal_index = NAMES.index(signal_name)
        changed_table[signal_index] = np.where(np.isnan(column), signal_table[signal_index], column)
    return changed_table


def used_signals(policy: PolicyData) -> tuple[str, ...]:
    """Signals a policy gates, its user gates read, or by which it decides, built-in ones first.

    A gate that is off or states no bound uses none, and a model none under the rule `chain`.

    Example:
      >>> used_signals(
      ...     PolicyData.from_mapping(
      ...         {"signals": {"gaps": {"max": 0}, "words": {"enabled": False}}}
      ...     )
      ... )
      ('gaps',)
    """
    used_names = {
        entry_name
        for entry_name, signal_entry in policy.signals.items()
        if signal_entry.enabled
        and not signal_entry.min is signal_entry.max is None
        and _holds(policy, f"signals.{entry_name}", "signals")
    }
    if policy.decision.rule == EXPECTED_COST and policy.decision.model is not None:
        used_names |= policy.decision.model.parts.keys()
    for entry_name, gate_section in policy.gates.items():
        if gate_section.get("enabled", True) and _holds(policy, f"gates.{entry_name}", "signals"):
            used_names |= set(own_gate(entry_name).signals)
    if policy.fused.parts:  # measured with the tables, whether its gate is on or off
        used_names |= policy.fused.parts.keys() - set(NAMES)
    return in_order(used_names) if used_names else ()  # none of nearly every policy


def _holds(policy: PolicyData, gate_name: str, group_name: str) -> bool:
    """Whether a policy's order holds a gate, by its name or that of its group (rule S2.16)."""
    gate_order = policy.decision.order
    return gate_order is None or gate_name in gate_order or group_name in gate_order


def check_stored(trace: TraceData, policies: Iterable[PolicyData]) -> None:
    """Stop if a policy uses a signal that only trace columns tell and this trace does not have.

    Raises:
      ValueError: names the signal and says how to get it (rule S2.15).
    """
    for policy in policies:
        if (
            policy.signals
            or policy.gates
            or policy.fused.parts
            or policy.decision.rule == EXPECTED_COST
        ):  # as hardly any policy
            check_signals(trace, used_signals(policy))


def check_signals(trace: TraceData, signal_names: Iterable[str]) -> None:
    """Stop where only a trace's columns tell a signal and this trace has none of it.

    Raises:
      MissingExtensionError: what measures it is not installed.
      ValueError: names the signal and says how to get it (rule S2.15).
    """
    lacking_names = [
        signal_name
        for signal_name in signal_names
        if signal_name not in trace.columns
        and (signal_name in STORED_SIGNALS or signal_name not in NAMES)
    ]
    if not lacking_names:
        return
    signal_name = lacking_names[0]
    requirement = (
        f"a policy that uses the signal {signal_name} needs a trace that holds it, got one without"
    )
    if signal_name in NAMES:
        # without it the trace that is built again lacks it too
        check_installed(f"the signal {signal_name}", STORED_ROOM)
        message = f"{requirement}; build it again with `raglab trace`."
    else:
        user_signals = sorted(set(trace.columns).difference(NAMES))
        held_text = ", ".join(user_signals) or "none of your own"
        close_names = get_close_matches(signal_name, (*NAMES, *user_signals), 1, 0.8)
        suggestion = f" Did you mean {close_names[0]}?" if close_names else ""
        remedy = f"add it by trace.with_signal({signal_name!r}, ...), or by raglab.add_signals"
        message = f"{requirement} (it holds {held_text}); {remedy}.{suggestion}"
    raise ValueError(message)


IntentFlag = Literal["graph", "table", "complexity"]

INTENT_FLAGS: tuple[IntentFlag, ...] = ("graph", "table", "complexity")


class IntentPattern(NamedTuple):
    """A pattern, and how much its occurrence says for a flag.

    weight: score of the flag where this rule alone speaks, in (0, 1); 0.5 and more is a rule that
    needs no second. pattern: case-insensitive. times: occurrences that it takes.
    """

    flag: IntentFlag
    name: str
    weight: float
    pattern: re.Pattern[str]
    times: int = 1


class Intent(NamedTuple):
    """What a question asks for, each score in [0, 1].

    graph: relations of parties and things to one another. table: work on rows (compare, sort,
    count, add up, filter), or the figure of a row. complexity: several steps or conditions.
    reasons: by flag, the names of the rules that spoke.
    """

    graph: float
    table: float
    complexity: float
    reasons: Mapping[str, tuple[str, ...]]


# Weight of each rule, by flag and name. What it matches stands in the file of a language under the
# name, or under flag and name where two flags have a rule of that name.
_INTENT_TABLE: Mapping[IntentFlag, Mapping[str, float]] = {
    # Relations: who stands how to whom. A role, a relation, a way over two parties needs no second
    # rule; `who` alone asks for a name.
    "graph": {
        "role": 0.5,
        "standing": 0.6,
        "who is a party": 0.5,
        "who is": 0.2,
        "who does": 0.2,
        "whom": 0.4,
        "right or duty": 0.3,
        "payment to a party": 0.4,
        "which party": 0.4,
        "relation": 0.6,
        "relation of parties": 0.5,
        "a party by what it does": 0.6,
        "both": 0.3,
        "interest of a party": 0.4,
    },
    # Tables: work on rows (compare, sort, count, sum, filter), or the figure of a row. A bare
    # figure or number, and a record that texts state as a fact (the highest mountain), ask for a
    # sentence.
    "table": {
        "how much": 0.3,
        "how long": 0.2,
        "figure": 0.3,
        "figure of a row": 0.3,
        "figure of a named thing": 0.4,
        "by how much": 0.5,
        "comparison": 0.3,
        "comparison of a column": 0.5,
        "comparison of rows": 0.5,
        "change": 0.3,
        "change between years": 0.5,
        "aggregate": 0.2,
        "aggregate of a column": 0.5,
        "most or least": 0.2,
        "most or least of a column": 0.5,
        "order": 0.5,
        "table": 0.4,
        "rows": 0.4,
        "filter": 0.2,
        "count by a filter": 0.5,
        "per unit": 0.2,
        "money or share": 0.2,
    },
    # Complexity: several steps, conditions, things to hold together.
    "complexity": {
        "comparison": 0.5,
        "condition": 0.3,
        "time order": 0.3,
        "why or how": 0.4,
        "second question": 0.5,
        "second sentence": 0.4,
        "clauses": 0.4,
        "figures": 0.3,
        "length": 0.3,
        "great length": 0.3,
    },
}
# Of few: occurrences that a rule takes, and what it matches in every language.
_COMMON_PATTERNS: Mapping[str, tuple[int, str]] = {
    "money or share": (1, r"[£$€%]|\b(?:gbp|eur|usd)\b"),
    "second sentence": (1, r"[.!?;] +\S"),
    "clauses": (3, "[,;:]| - "),
    "figures": (2, r"\d+(?:[.,/]\d+)*"),
    "length": (15, r"\w+"),
    "great length": (22, r"\w+"),
}


def intent_rules(language: Language = LANGUAGES) -> tuple[IntentPattern, ...]:
    """Rules that read what a question asks for, with the expressions of a language.

    Raises:
      ValueError: the language has expressions for a rule that there is not.

    Example:
      >>> next(rule for rule in intent_rules() if rule.name == "both").pattern.search(
      ...     "Are both covered?"
      ... )[0]
      'both'
    """
    language_intent = language.intent
    weighted_rules = [
        (flag, *rule_weight)
        for flag, rule_weights in _INTENT_TABLE.items()
        for rule_weight in rule_weights.items()
    ]
    known_rules = {
        rule_name
        for flag, rule_key, _ in weighted_rules
        for rule_name in (rule_key, f"{flag} {rule_key}")
    }
    if not language_intent.rules.keys() <= known_rules:
        unknown_rules = ", ".join(sorted(language_intent.rules.keys() - known_rules))
        refuse(
            f"intent.rules of {language.name} must be rules of intent",
            unknown_rules,
            "en.yaml has their names",
        )
    intent_patterns = []
    for flag, rule_name, weight in weighted_rules:
        n_times, common_pattern = _COMMON_PATTERNS.get(rule_name, (1, ""))
        patterns = language_intent.rules.get(
            f"{flag} {rule_name}", language_intent.rules.get(rule_name, ())
        )
        alternatives = [*([common_pattern] if common_pattern else []), *patterns] or ["(?!)"]
        pattern = re.compile(expression(alternatives, language_intent.words), re.IGNORECASE)
        intent_patterns.append(IntentPattern(flag, rule_name, weight, pattern, n_times))
    return tuple(intent_patterns)


INTENT_RULES = intent_rules()


@lru_cache(maxsize=1 << 16)
def intent(question: str) -> Intent:
    """Scores of a question by every rule that speaks.

    One minus the product of what their weights leave.

    They are kept: fifty expressions take longer than all other signals of a case together, and the
    router, the bandit and the signals of one question ask alike.

    Example:
      >>> scores = intent("Who is the beneficiary of the contract with the highest fee?")
      >>> round(scores.graph, 2), round(scores.table, 3)
      (0.6, 0.755)
      >>> scores.reasons["table"]
      ('figure', 'figure of a row', 'most or least of a column')
    """
    return intent_by_rules(question, INTENT_RULES)


def intent_by_rules(question: str, rules: Sequence[IntentPattern]) -> Intent:
    """Scores of a question by some rules, such as those of one more language.

    Example:
      >>> from raglab.words.languages import parse_language
      >>> german = parse_language("{name: German, intent: {rules: {order: [sortiere]}}}", "de.yaml")
      >>> intent_by_rules("Sortiere die Rechnungen", intent_rules(german)).table
      0.5
    """
    question_text = unaccented(question.replace("’", "'"))  # as the patterns are written
    speaking_rules = [rule for rule in rules if _occurs(rule, question_text)]
    rules_of_flag = {
        flag: [rule for rule in speaking_rules if rule.flag == flag] for flag in INTENT_FLAGS
    }
    scores = {
        flag_name: 1.0 - prod(1.0 - rule.weight for rule in rules)
        for flag_name, rules in rules_of_flag.items()
    }
    reasons: dict[str, tuple[str, ...]] = {
        flag: tuple(rule.name for rule in rules) for flag, rules in rules_of_flag.items()
    }
    return Intent(**scores, reasons=reasons)


def _occurs(rule: IntentPattern, question_text: str) -> bool:
    if rule.times == 1:
        return rule.pattern.search(question_text) is not None
    occurrences = rule.pattern.finditer(question_text)
    return all(next(occurrences, None) is not None for _ in range(rule.times))
