"""Sentences to users in a second language.

Every one has its words, none is left over, and rules are not told twice.
"""

from __future__ import annotations

import ast
import string
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

import raglab
from generators import Drawn, Weighed
from raglab import gates
from raglab.live.answer_recording import record_answers
from raglab.replay import decide
from raglab.words import languages
from raglab.words.languages import TEXTS, sentence
from worlds import random_policies, random_trace, with_signals

ROOT = Path(raglab.__file__).parent
SAYING = {"sentence", "say"}
COUNTED = (
    "word",
    "deny pattern",
    "allow pattern",
    "hit",
    "relevant hit",
    "group",
    "option",
    "refinement",
)


def names(template: str) -> set[str]:
    """What is put into a template."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


def said() -> dict[str, str]:
    """Templates that the code gives to `sentence` and `say` as they stand, by the file."""
    found = {}
    # where `say` prints
    for path in (one for one in ROOT.rglob("*.py") if one.parent.name != "cli"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                called = (
                    node.func.id
                    if isinstance(node.func, ast.Name)
                    else getattr(node.func, "attr", "")
                )
                options = (
                    [node.args[0].body, node.args[0].orelse]
                    if isinstance(node.args[0], ast.IfExp)
                    else node.args[:1]
                )
                for one in options if called in SAYING else ():
                    if isinstance(one, ast.Constant) and isinstance(one.value, str):
                        found[one.value] = path.name
    return found


def test_every_sentence_is_there_in_french() -> None:
    """With the same parts put in.

    Those that the code makes of a noun and of a gate's label, too.
    """
    french = TEXTS["fr"]
    counted = {f"{{number}} {noun}{end}" for noun in COUNTED for end in ("", "s")}
    labels = {gate.label for gate in gates.GATES if gate.label}
    missing = {text: file for text, file in said().items() if text not in french}
    assert missing == {}
    assert counted | labels <= french.keys()
    assert {text for text, other in french.items() if names(text) != names(other)} == set()


def test_no_sentence_is_left_over() -> None:
    """Each stands in the code, in the published policy, or is made of a noun."""
    texts = {raglab.Policy.from_mapping().refusal_message}
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
    made = {f"{{number}} {noun}{end}" for noun in COUNTED for end in ("", "s")} | {
        f"best {what} {{best}}, lead {{lead}}" for what in ("signature", "anchor")
    }
    told = {
        "the answer says that it has none: {sentence}",
        "nothing is left of the answer without: {named}",
    }
    told |= {"the answer nests marks deeper than {levels} levels"}
    # made where no language is known
    told |= {"signal {name} could not be measured ({cause}): it counts as missing"}
    assert {text for text in TEXTS["fr"] if text not in texts | made | told} == set()


def test_another_language_is_english() -> None:
    """Where nothing else is there; braces of what is put in stay."""
    assert sentence("{what} is missing", "xx", what="{x}") == "{x} is missing"
    assert sentence("100 % {sure}") == "100 % {sure}"


@pytest.mark.parametrize("seed", range(6))
def test_a_decision_is_the_same_in_french(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers, verdicts and statuses are those of the English one.

    No sentence of a decision is left in English.
    """
    asked: dict[str, int] = defaultdict(int)

    class Asked(dict[str, str]):
        def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
            asked[key] += key not in self
            return super().get(key, default)

    monkeypatch.setattr(languages, "TEXTS", {"fr": Asked(TEXTS["fr"])})
    trace = random_trace(seed, n_cases=12, depths=2)
    for policy in (*random_policies(seed, 4), *with_signals(random_policies(seed, 2), seed)):
        english = decide(record_answers(trace, policy, Drawn(), Weighed()), policy)
        french = replace(english, language="fr")
        for row, case in enumerate(trace.cases):
            pairs = list(zip(english.explain(case.id), french.explain(case.id), strict=True))
            assert all(
                repr(one._replace(text="")) == repr(other._replace(text="")) for one, other in pairs
            )
            assert len(french.warnings(row)) == len(english.warnings(row))
            assert french.reason(row)
        assert (
            english.frame(reasons=True)
            .drop(columns=["reason", "warnings"])
            .equals(french.frame(reasons=True).drop(columns=["reason", "warnings"]))
        )
    assert {text for text, count in asked.items() if count} == set()
