"""Every expression and every reader of text takes time that grows with a text, not with its square.

A watch cannot tell fast from slow on a busy machine, and no counter looks into `re`. So processor
time is measured, and the bound is far from both: an expression that is linear takes milliseconds
for 20,000 characters, those found took seconds to minutes. Above 0.5 s an expression has a fault,
and a reader of many of 8,000 characters; an alarm ends it: no test hangs.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raglab
from raglab.answering import (
    compression,
    extractive,
    generation,
    hygiene,
    prompts,
    server_secrets,
    support,
)
from raglab.decision import signal_values
from raglab.live import arm_choice
from raglab.policy import PolicyData
from raglab.retrieval import entity_names, indexes, rewriting
from raglab.store.policies import load_pack
from raglab.words import answer_match, answer_terms, characters, claim_words, numerals, text
from raglab.words.packs import GENERIC
from reading_time import BRIEF, EXCESS, KINDS, LIMIT, alarm, passage_of, slow

PACK = load_pack(Path(__file__).parent.parent / "datasets/broker/pack")
POLICY = PolicyData.from_mapping()
# Expressions that are asked of one place only (`match`, `fullmatch`) or of a text that was cut:
# none is searched for.
AT_ONE_PLACE = {
    *(
        f"raglab.answering.hygiene.{name}"
        for name in ("_IS_SILENT", "_HEADING_LINE", "_EMPTY_BULLET", "_REFERENCE_LINE")
    ),
    "raglab.answering.hygiene._OPEN_HTML",
    "raglab.words.text._FENCE_END",  # of a whole line
    *(
        f"raglab.words.answer_match.{name}"
        for name in ("_REPLIES", "_YES_QUESTION", "_ASKED_BOUNDS")
    ),  # at the beginning of a text
    "raglab.words.text._UNDERLINE",  # of a whole line
    "raglab.decision.answer_text._PRINTED_LIST",  # at the beginning of a text
    # at one place of a line, or where the entry before ended
    "raglab.extensions.clarification.contents_layouts._LED",
    "raglab.extensions.clarification.contents_layouts._LINKED",
    "raglab.extensions.clarification.contents_layouts._RUN_IN",
    "raglab.extensions.clarification.statements._PLAIN_HEAD",
    "raglab.extensions.graph_table.quantities._RANGE_JOINT",
    "raglab.extensions.graph_table.table_records._OPERATION_PATTERNS",  # 1,000 characters
}


def phrases_of_kinds(passage):
    """Find dates, sums, numbers and names."""
    return [extractive.phrases(kind, passage) for kind in ("date", "money", "number", "name")]


READERS: dict[str, Callable[[str], object]] = {
    "visible": characters.visible,
    "words": text.split_words,
    "pieces": text.pieces,
    "normalised answer": answer_terms.normalise_answer,
    "content terms": answer_terms.content_terms,
    "F1": lambda one: answer_terms.token_f1(one, [one]),
    "thousands": numerals.comma_thousands,
    "dates": lambda one: list(numerals.dates_in(one)),
    "claim words": claim_words.claim_words,
    "answer": lambda one: answer_match.answer_match(one, ["£250"], "How much is the excess?"),
    "gold answer": lambda one: answer_match.answer_match("£250", [one], "How much is it?"),
    "claims": support.split_claims,
    "support of it": lambda one: support.answer_support(one, [EXCESS]),
    "support by it": lambda one: support.answer_support(EXCESS, [one]),
    "support of it by it": lambda one: support.answer_support(one, [one]),
    "hygiene": hygiene.clean,
    "cited passages": lambda one: generation.cited_passages(one, 9),
    "prompt": lambda one: prompts.data_prompt(one, prompts.fit_passages([one, one], 1400)),
    "whole prompt": lambda one: prompts.data_prompt(one, prompts.fit_passages([one], 10**6)),
    "marks of a prompt": prompts.without_marks,
    "reason": lambda one: server_secrets.one_line_reason(one, ["sk-secret-key"]),
    "compression": lambda one: compression.compress("storm excess", [passage_of(one)], budget=50),
    "question of compression": lambda one: compression.compress(
        one, [passage_of(EXCESS * 50)], budget=50
    ),
    "expected kind": lambda one: extractive.expected_kind(one, PACK),
    "phrases": phrases_of_kinds,
    "extractive answer": lambda one: extractive.Extractive().answer(
        "What is the storm excess?", [passage_of(one)]
    ),
    "extractive question": lambda one: extractive.Extractive().answer(one, [passage_of(EXCESS)]),
    "uncovered": lambda one: rewriting.uncovered(one, [one]),
    "names": lambda one: entity_names.names_in([one]),
    "codes": entity_names.codes_in,
    "index words": indexes.index_words,
    "intent": signal_values.intent,
    "route": lambda one: arm_choice.route_arm(one, POLICY, ("hybrid", "bm25")),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_takes_any_long_text_in_no_time(reader):
    """Questions, passages and answers of 8,000 characters of each kind."""
    with alarm():
        assert slow(READERS[reader], LIMIT, KINDS, 8_000) == {}


def compiled(where, value, depth=0):
    """Compiled expressions in a value, with where they stand."""
    if isinstance(value, re.Pattern):
        yield where, value
    elif depth < 4 and isinstance(value, dict):
        for one in value.values():
            yield from compiled(where, one, depth + 1)
    elif depth < 4 and isinstance(value, tuple | list | set | frozenset):
        for one in value:
            yield from compiled(where, one, depth + 1)


def expressions_of_modules():
    """Return every compiled expression of the package by name.

    The stores have limits of their own.
    """
    found: dict[str, list[re.Pattern[Any]]] = {}
    for module in pkgutil.walk_packages(raglab.__path__, "raglab."):
        if not module.name.startswith(("raglab.store", "raglab.cli")):
            for name, value in vars(importlib.import_module(module.name)).items():
                for _, pattern in compiled(name, value):
                    found.setdefault(f"{module.name}.{name}", []).append(pattern)
    return found


def expressions_of_packs(value):
    """Texts of a pack, expressions among them."""
    if isinstance(value, str):
        yield value
    elif hasattr(value, "model_dump"):
        yield from expressions_of_packs(value.model_dump())
    elif hasattr(value, "values"):
        for one in value.values():
            yield from expressions_of_packs(one)
    elif isinstance(value, tuple | list | frozenset):
        for one in value:
            yield from expressions_of_packs(one)


def searched(pattern):
    """Find all that an expression matches, of bytes in those of the text."""
    told = isinstance(pattern.pattern, bytes)
    return lambda long: [None for _ in pattern.finditer(long.encode() if told else long)]


def test_no_expression_of_ours_takes_long():
    """Each that stands in a module, over all texts."""
    with alarm():
        rows = {
            (pattern.pattern, pattern.flags): name
            for name, patterns in expressions_of_modules().items()
            if name not in AT_ONE_PLACE
            for pattern in patterns
        }
    assert len(rows) > 100
    late = {}
    for (pattern, flags), name in rows.items():
        with alarm():
            late |= {
                f"{name} {key}": spent
                for key, spent in slow(searched(re.compile(pattern, flags))).items()
            }
    assert late == {}


@pytest.mark.parametrize("pack", [GENERIC, PACK], ids=lambda pack: pack.name)
def test_no_expression_of_a_bundled_pack_takes_long(pack):
    """Each that repeats anything, searched once."""
    repeats = {one for one in expressions_of_packs(pack) if re.search(r"[*+?{]", one)}
    late = {}
    for one in sorted(repeats):
        try:
            pattern = re.compile(one, re.IGNORECASE)
        except re.error:  # a text with a brace
            continue
        with alarm():
            late |= {
                f"{one[:80]} {key}": spent
                for key, spent in slow(pattern.search, LIMIT, BRIEF).items()
            }
    assert late == {}
