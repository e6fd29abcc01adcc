"""Intent of a question (algebra): whether it wants a graph or a table, how complex it is (S4.1).

Its rules stand in the files of the languages, by no corpus. A question that no rule speaks to
scores 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple

from raglab.values import refuse
from raglab.words.characters import unaccented
from raglab.words.languages import LANGUAGES, Language, expression

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
