"""Intent of a question (algebra): whether it wants a graph or table, how complex it is (S4.1).

The rules stand in the files of the languages, by no corpus. A question that no rule speaks to
scores 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple

from raglab.words.characters import unaccented
from raglab.words.languages import LANGUAGES, Language, expression

Flag = Literal["graph", "table", "complexity"]

FLAGS: tuple[Flag, ...] = ("graph", "table", "complexity")


class IntentPattern(NamedTuple):
    """A pattern, and how much its occurrence says for a flag.

    weight: score of the flag where this rule alone speaks, in (0, 1); 0.5 and more is a rule that
    needs no second. pattern: case-insensitive. times: occurrences that it takes.
    """

    flag: Flag
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


# Flag, name, weight and occurrences of each rule, and what it matches in every language; a
# language's own expressions stand in its file under the name, or under flag and name where two
# flags have a rule of that name.
_RULES: tuple[tuple[Flag, str, float, int, str], ...] = (
    # Relations: who stands how to whom. A role, a relation, a way over two parties needs no second
    # rule; `who` alone asks for a name.
    ("graph", "role", 0.5, 1, ""),
    ("graph", "standing", 0.6, 1, ""),
    ("graph", "who is a party", 0.5, 1, ""),
    ("graph", "who is", 0.2, 1, ""),
    ("graph", "who does", 0.2, 1, ""),
    ("graph", "whom", 0.4, 1, ""),
    ("graph", "right or duty", 0.3, 1, ""),
    ("graph", "payment to a party", 0.4, 1, ""),
    ("graph", "which party", 0.4, 1, ""),
    ("graph", "relation", 0.6, 1, ""),
    ("graph", "relation of parties", 0.5, 1, ""),
    ("graph", "a party by what it does", 0.6, 1, ""),
    ("graph", "both", 0.3, 1, ""),
    ("graph", "interest of a party", 0.4, 1, ""),
    # Tables: work on rows (compare, sort, count, sum, filter), or the figure of a row. A bare
    # figure or number, and a record that texts state as a fact (the highest mountain), ask for a
    # sentence.
    ("table", "how much", 0.3, 1, ""),
    ("table", "how long", 0.2, 1, ""),
    ("table", "figure", 0.3, 1, ""),
    ("table", "figure of a row", 0.3, 1, ""),
    ("table", "figure of a named thing", 0.4, 1, ""),
    ("table", "by how much", 0.5, 1, ""),
    ("table", "comparison", 0.3, 1, ""),
    ("table", "comparison of a column", 0.5, 1, ""),
    ("table", "comparison of rows", 0.5, 1, ""),
    ("table", "change", 0.3, 1, ""),
    ("table", "change between years", 0.5, 1, ""),
    ("table", "aggregate", 0.2, 1, ""),
    ("table", "aggregate of a column", 0.5, 1, ""),
    ("table", "most or least", 0.2, 1, ""),
    ("table", "most or least of a column", 0.5, 1, ""),
    ("table", "order", 0.5, 1, ""),
    ("table", "table", 0.4, 1, ""),
    ("table", "rows", 0.4, 1, ""),
    ("table", "filter", 0.2, 1, ""),
    ("table", "count by a filter", 0.5, 1, ""),
    ("table", "per unit", 0.2, 1, ""),
    ("table", "money or share", 0.2, 1, r"[£$€%]|\b(?:gbp|eur|usd)\b"),
    # Complexity: several steps, conditions, things to hold beside one another.
    ("complexity", "comparison", 0.5, 1, ""),
    ("complexity", "condition", 0.3, 1, ""),
    ("complexity", "time order", 0.3, 1, ""),
    ("complexity", "why or how", 0.4, 1, ""),
    ("complexity", "second question", 0.5, 1, ""),
    ("complexity", "second sentence", 0.4, 1, r"[.!?;] +\S"),
    ("complexity", "clauses", 0.4, 3, "[,;:]| - "),
    ("complexity", "figures", 0.3, 2, r"\d+(?:[.,/]\d+)*"),
    ("complexity", "length", 0.3, 15, r"\w+"),
    ("complexity", "great length", 0.3, 22, r"\w+"),
)


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
    own = language.intent
    known = {name for _, name, *_ in _RULES} | {f"{flag} {name}" for flag, name, *_ in _RULES}
    if not own.rules.keys() <= known:
        unknown = ", ".join(sorted(own.rules.keys() - known))
        msg = (
            f"intent.rules of {language.name} must be rules of intent, got {unknown}; en.yaml has "
            "their names."
        )
        raise ValueError(msg)
    rules = []
    for flag, name, weight, times, everywhere in _RULES:
        patterns = own.rules.get(f"{flag} {name}", own.rules.get(name, ()))
        every = [*([everywhere] if everywhere else []), *patterns] or ["(?!)"]
        rules.append(
            IntentPattern(
                flag, name, weight, re.compile(expression(every, own.words), re.IGNORECASE), times
            )
        )
    return tuple(rules)


RULES = intent_rules()


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
    return intent_by_rules(question, RULES)


def intent_by_rules(question: str, rules: Sequence[IntentPattern]) -> Intent:
    """Scores of a question by some rules, such as those of one more language.

    Example:
      >>> from raglab.words.languages import parse_language
      >>> german = parse_language("{name: German, intent: {rules: {order: [sortiere]}}}", "de.yaml")
      >>> intent_by_rules("Sortiere die Rechnungen", intent_rules(german)).table
      0.5
    """
    text = unaccented(question.replace("’", "'"))  # as the patterns are written
    spoke = [rule for rule in rules if _occurs(rule, text)]
    absence = {
        flag: prod(1.0 - rule.weight for rule in spoke if rule.flag == flag) for flag in FLAGS
    }
    reasons: dict[str, tuple[str, ...]] = {
        flag: tuple(rule.name for rule in spoke if rule.flag == flag) for flag in FLAGS
    }
    return Intent(
        1.0 - absence["graph"], 1.0 - absence["table"], 1.0 - absence["complexity"], reasons
    )


def _occurs(rule: IntentPattern, text: str) -> bool:
    if rule.times == 1:
        return rule.pattern.search(text) is not None
    hits = rule.pattern.finditer(text)
    return all(next(hits, None) is not None for _ in range(rule.times))
