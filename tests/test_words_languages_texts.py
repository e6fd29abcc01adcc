"""Reasons in words: each has its words in every language, none is left over.

Decisions are the same in each.
"""

from __future__ import annotations

import re
import string
from dataclasses import replace
from pathlib import Path

import pytest

import raglab
from generators import Drawn, Weighed
from raglab.live.answer_recording import record_answers
from raglab.replay import decide
from raglab.words.languages import BY_NAME, TEXTS, Reason, refusal, say
from worlds import random_policies, random_trace, with_signals

ROOT = Path(raglab.__file__).parent
SAID = re.compile(r'\b(?:Reason|say|counted)\(\s*"(\w+)"(?:\s+if [^\n]*?\s+else "(\w+)")?')


def names(template):
    """What is put into a template."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def test_every_reason_has_its_words():
    """In all languages, with the same values; each key stands in the code, and none is missing."""
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for path in ROOT.rglob("*.py")
        if path.parent.name != "cli"  # where `say` prints
    )
    texts = set(re.findall(r'"(\w+)"', code))
    keys = {key for said in SAID.findall(code) for key in said if key}
    english = TEXTS["en"]
    assert len(keys) > 50
    assert keys - english.keys() - BY_NAME.keys() == set()
    made = {"signature_similarity", "anchor_similarity"}  # of what they compare
    assert english.keys() - texts - made == set()
    for texts_of in TEXTS.values():
        assert texts_of.keys() == english.keys()
        for key, text in texts_of.items():
            assert {*map(frozenset, map(names, text.split(" / ")))} == {
                frozenset(names(english[key].split(" / ")[0]))
            }, key


def test_words_of_a_reason():
    """English where a language has none; words and braces of what is put in stay."""
    missing = Reason("missing", {"what": "{x}", "name": "tau", "bound": Reason("not_set")})
    assert say("xx", missing) == str(missing) == "{x} is missing, tau not set"
    assert say("fr", missing) == "{x} : valeur manquante, tau non fixé"
    assert say("fr", "100 % {sure}") == "100 % {sure}"
    assert [say("en", Reason("n_hits", {"n": n})) for n in range(3)] == [
        "0 hits",
        "1 hit",
        "2 hits",
    ]


def test_the_published_refusal_is_in_the_language():
    """Another one stays as it is stated."""
    message = raglab.Policy.from_mapping().refusal_message
    assert refusal("en", message) == message != refusal("fr", message)
    assert refusal("fr", "No.") == "No."


@pytest.mark.parametrize("seed", range(2))
def test_a_decision_is_the_same_in_french(seed):
    """Numbers, verdicts and statuses are those of the English one."""
    trace = random_trace(seed, n_cases=6, depths=2)
    for policy in (*random_policies(seed, 4), *with_signals(random_policies(seed, 2), seed)):
        english = decide(record_answers(trace, policy, Drawn(), Weighed()), policy)
        french = replace(english, language="fr")
        for row, case in enumerate(trace.cases):
            pairs = list(zip(english.explain(case.id), french.explain(case.id), strict=True))
            assert all(
                repr(before._replace(text="")) == repr(after._replace(text=""))
                for before, after in pairs
            )
            assert len(french.warnings(row)) == len(english.warnings(row))
            assert french.reason(row)
        assert (
            english.frame(reasons=True)
            .drop(columns=["reason", "warnings"])
            .equals(french.frame(reasons=True).drop(columns=["reason", "warnings"]))
        )
