"""Languages (algebra): words, numerals, months, units, negations, phrases, one file a language.

A language is one YAML file beside this module; every reader of text in raglab reads by all of them
together, so that a third language is a file and no code. Where a function takes a `language`,
another union may be given to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import yaml

from raglab.arguments.plain_arrays import refuse


class Section(SimpleNamespace):
    """A part of a language: its entries by name, read only.

    Comments in `en.yaml` say what each of them is.
    """

    __eq__ = object.__eq__  # by identity, so that a function may keep what it made of one
    __hash__ = object.__hash__  # type: ignore[assignment] # typeshed has None

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to change an entry."""
        msg = f"a language must not be changed, got another {name}; make one by parse_language."
        raise AttributeError(msg)


class Language(Section):
    """A language, or several of them taken together, with the entries of `LANGUAGE_FORM`."""


def words(stated_words: object) -> tuple[str, ...]:
    """A text of words parted by blanks, or a list of phrases."""
    if isinstance(stated_words, str):
        return tuple(stated_words.split())
    if isinstance(stated_words, list) and all(isinstance(phrase, str) for phrase in stated_words):
        return tuple(stated_words)
    msg = (
        f"words must be a text or a list of texts, got {stated_words!r}; put `no` and `on` in "
        "quotes"
    )
    raise ValueError(msg)


def patterns(stated_patterns: object) -> tuple[str, ...]:
    """An expression, or a list of them; each must compile."""
    expressions = words([stated_patterns] if isinstance(stated_patterns, str) else stated_patterns)
    rule = (
        "an expression must be a regular one, and must have at most "
        f"{MAX_PATTERN_LENGTH} characters"
    )
    for pattern in expressions:
        problem = f"{len(pattern)} characters" if len(pattern) > MAX_PATTERN_LENGTH else ""
        try:
            re.compile("" if problem else pattern)
        except re.error as error:
            problem = f"{pattern!r} ({error})"
        if problem:
            msg = f"{rule}, got {problem}; mend it"
            raise ValueError(msg)
    return expressions


def plain_text(stated_text: object) -> str:
    """A text."""
    if isinstance(stated_text, str) and stated_text:
        return stated_text
    msg = f"a text is required, got {stated_text!r}; write one, in quotes"
    raise ValueError(msg)


def months(stated_months: object) -> tuple[tuple[str, ...], ...]:
    """Words for each of the twelve months."""
    if isinstance(stated_months, list) and len(stated_months) == 12:
        return tuple(map(words, stated_months))
    msg = f"months must be a list of 12, got {stated_months!r}"
    raise ValueError(msg)


def poles(stated_poles: object) -> Section:
    """Words of the two poles of an idea, `rise rises / fall falls`.

    An ending of `-` is for all words that begin so.
    """
    if isinstance(stated_poles, str) and stated_poles.count("/") == 1:
        positive_words, negative_words = stated_poles.split("/")
        return Section(positive=words(positive_words), negative=words(negative_words))
    msg = f"opposites must be words on either side of one `/`, got {stated_poles!r}"
    raise ValueError(msg)


# a dictionary: entries by names, each with its kind, or by any key of a type
Kind: TypeAlias = Callable[[object], Any] | dict[Any, Any]


def _same_kind(entry_kind: Kind, entry_names: str) -> dict[str, Any]:
    return dict.fromkeys(entry_names.split(), entry_kind)


# What a language may hold.
LANGUAGE_FORM: dict[str, Any] = {
    "name": plain_text,
    "words": {
        **_same_kind(
            words,
            "stop small speaker parting parting_numbers leaning joining particles titles asking "
            "duties",
        ),
        "adverbs": patterns,
    },
    "sentences": _same_kind(words, "never_last seldom_last before_codes starters"),
    **_same_kind(months, "months months_short"),
    "months_or_words": words,
    "numerals": {
        **_same_kind({int: words}, "numbers scales inside suffixes money_suffixes"),
        **_same_kind(words, "joins_hundreds joins_tens endings counts"),
    },
    "quantities": {
        **_same_kind({str: words}, "currencies currencies_beside_figures units"),
        **_same_kind(words, "percent missing nil unlimited"),
        **_same_kind(
            patterns, "below above between joints articles of_dates of_money older newer stated"
        ),
    },
    "negation": {
        **_same_kind(
            words, "negators with_particle particles numbering names contracted contracted_as"
        ),
        "not_before": {str: words},
        "irregular": {str: plain_text},
    },
    "opposites": {str: poles},
    "no_answer": {
        "words": {str: plain_text},
        **_same_kind(
            patterns, "openers unable silent concludes turns preambles labels examples sources"
        ),
    },
    "answers": {"words": {str: plain_text}, "asked": {str: patterns}, "dates": patterns},
    "comparison": {
        **_same_kind(words, "affirming denying noon midnight days ordinals firms"),
        **_same_kind(patterns, "affirms denies asks restricts past until since per each"),
        **_same_kind({str: words}, "measures hundredths rates"),
        "spellings": {str: plain_text},
    },
    "intent": {"words": {str: plain_text}, "rules": {str: patterns}},
    "tables": {
        "words": {str: plain_text},
        "operations": {str: patterns},
        **_same_kind(patterns, "operating totals parts later earlier unit time share money"),
    },
    "texts": {str: plain_text},
}
_EMPTY_VALUES = {words: (), patterns: (), months: ((),) * 12}  # of what a file leaves out
_CAPITAL_NAME = "(?<![A-Z]){}(?![A-Z])"  # of an expression, inside another
MAX_PATTERN_LENGTH = 2_000  # characters of an expression as a file states it
MAX_SOURCE_LENGTH = 200_000  # characters of a file, four times the longest of ours
MAX_EXPRESSION_LENGTH = 200_000  # characters of several together, their names replaced
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the compiled one is ten times faster


# any value of a language
def _language_entry(
    stated_value: object, entry_kind: Kind, entry_path: str, problems: list[str]
) -> Any:  # noqa: ANN401
    """Value of an entry by its kind.

    What breaks a rule goes to the problems, each with its place and remedy.
    """
    path_prefix = f"{entry_path}." if entry_path else ""
    try:
        if callable(entry_kind):
            return (
                _EMPTY_VALUES[entry_kind]
                if stated_value is None and entry_kind in _EMPTY_VALUES
                else entry_kind(stated_value)
            )
        stated_entries = {} if stated_value is None else stated_value
        if not isinstance(stated_entries, dict):
            msg = f"entries must be `name: value` each, got {stated_value!r}"
            raise ValueError(msg)  # noqa: TRY004, TRY301 - one of the problems
    except ValueError as error:
        problems.append(f"{entry_path}: {error}; en.yaml shows the form.")
        return None
    key_type = next(iter(entry_kind))
    if isinstance(key_type, type):
        problems += [
            f"{path_prefix}{entry_key}: a key must be "
            f"{'a number' if key_type is int else 'a quoted text'}."
            for entry_key in stated_entries
            if type(entry_key) is not key_type
        ]
        return {
            entry_key: _language_entry(
                entry_value, entry_kind[key_type], f"{path_prefix}{entry_key}", problems
            )
            for entry_key, entry_value in stated_entries.items()
        }
    problems += [
        f"{path_prefix}{entry_name}: unknown key; write one of en.yaml's keys."
        for entry_name in stated_entries
        if entry_name not in entry_kind
    ]
    section_entries = {
        entry_name: _language_entry(
            stated_entries.get(entry_name), part_kind, f"{path_prefix}{entry_name}", problems
        )
        for entry_name, part_kind in entry_kind.items()
    }
    return (Section if entry_path else Language)(**section_entries)


# a safe loader of yaml: the compiled one overruns its stack on deep nesting, which ends the process
def parse_language(source: str, where: str, loader: Any = yaml.SafeLoader) -> Language:  # noqa: ANN401
    """The language that a YAML text describes; what it leaves out is empty.

    Args:
      where: named in messages, such as the file.
      loader: of yaml, a safe one; the compiled one for files of ours alone.

    Raises:
      ValueError: an unknown key, a value of another kind, not twelve months, an expression that
        does not compile.

    Example:
      >>> parse_language("{name: German, words: {stop: der die das}}", "de.yaml").words.stop
      ('der', 'die', 'das')
    """
    problems: list[str] = []
    try:
        if len(source) > MAX_SOURCE_LENGTH:
            problems.append(f"a language must have at most {MAX_SOURCE_LENGTH:,} characters.")
        else:
            stated_language = yaml.load(source, loader) or []  # noqa: S506 - a safe loader
            language: Language = _language_entry(stated_language, LANGUAGE_FORM, "", problems)
    except Exception as error:  # noqa: BLE001 - a hostile text makes a loader raise anything
        problems.append(f"a language must be YAML, got {' '.join(str(error).split())[:200]}.")
    if problems:
        msg = f"{where}: {' '.join(problem.removeprefix(': ') for problem in problems)}"
        raise ValueError(msg)
    return language


def union(languages: Iterable[Language]) -> Language:
    """Languages as one with the words, numerals and expressions of all, earlier ones first.

    Example:
      >>> texts = ["{name: A, words: {stop: a b}}", "{name: B, words: {stop: b c}}"]
      >>> union([parse_language(text, "a file") for text in texts]).words.stop
      ('a', 'b', 'c')
    """
    all_languages = list(languages)
    united_values = vars(reduce(_union_values, all_languages))
    return Language(
        **united_values | {"name": " and ".join(language.name for language in all_languages)}
    )


# any value of a language
def _union_values(first_value: Any, second_value: Any, entry_name: str = "") -> Any:  # noqa: ANN401
    """Two values of the same kind together.

    Args:
      entry_name: of the entry that they belong to.
    """
    if isinstance(first_value, Section):
        section_values = {
            entry_key: _union_values(entry_value, vars(second_value)[entry_key], entry_key)
            for entry_key, entry_value in vars(first_value).items()
        }
        return type(first_value)(**section_values)
    if isinstance(first_value, Mapping):
        shared_values = {
            entry_key: _union_values(first_value[entry_key], second_value[entry_key], entry_name)
            for entry_key in first_value
            if entry_key in second_value
        }
        return {**first_value, **second_value, **shared_values}
    if entry_name in {"months", "months_short"}:
        return tuple(map(_union_values, first_value, second_value))
    if isinstance(first_value, tuple):
        return tuple(dict.fromkeys((*first_value, *second_value)))
    # an expression that stands for a name in capitals
    return f"(?:{first_value}|{second_value})" if entry_name == "words" else first_value


def expression(patterns: Iterable[str], words: Mapping[str, str] | None = None) -> str:
    r"""One expression for any of some patterns, tried in order.

    Names in capitals give way to what they stand for.

    Example:
      >>> expression([r"\bTHE end\b", "fin"], {"THE": "(?:the|ONE)", "ONE": "a"})
      '(?:\\b(?:the|a) end\\b|fin)'
    """
    words = words or {}
    joined_pattern = f"(?:{'|'.join(patterns)})"
    # What a name stands for may hold other names, in any order; one that holds itself would grow
    # for ever.
    n_steps = 0
    while names_in_pattern := [
        name for name in words if re.search(_CAPITAL_NAME.format(name), joined_pattern)
    ]:
        joined_pattern = re.sub(
            _CAPITAL_NAME.format(names_in_pattern[0]),
            words[names_in_pattern[0]].replace("\\", r"\\"),
            joined_pattern,
        )
        n_steps += 1
        if len(joined_pattern) > MAX_EXPRESSION_LENGTH or n_steps > len(words) ** 2:
            length_rule = f"words must stand for at most {MAX_EXPRESSION_LENGTH:,} characters"
            refuse(f"{length_rule}, and not for themselves", names_in_pattern[0], "correct it")
    return joined_pattern


BY_NAME: Mapping[str, Language] = {  # as their files beside this module are named
    path.name.removesuffix(".yaml"): parse_language(
        path.read_text(encoding="utf-8"), path.name, _YAML_LOADER
    )
    for path in sorted(files(__name__).iterdir(), key=lambda path: path.name)
    if path.name.endswith(".yaml")
}
LANGUAGES = union(BY_NAME.values())
TEXTS: Mapping[str, Mapping[str, str]] = {
    name: language.texts for name, language in BY_NAME.items()
}


class Reason(NamedTuple):
    """Why something came out as it did: a key of `texts` in the language files, and its values.

    `str` has it in English; `say` in any language. A value may be a reason itself.
    """

    key: str
    values: Mapping[str, object] = {}

    def __str__(self) -> str:
        return say("en", self)


def say(language: str, reason: Reason | str) -> str:
    """Words of a reason in a language, in English where that has none; words stay as they are.

    Args:
      language: as a file beside this module is called.

    Example:
      >>> say("fr", Reason("retrieved", {"hits": Reason("n_hits", {"n": 3})}))
      'la recherche donne 3 passages'
      >>> str(Reason("n_hits", {"n": 1}))
      '1 hit'
    """
    if isinstance(reason, str):
        return reason
    reason_text = TEXTS.get(language, TEXTS["en"])[reason.key]
    singular_text, _, plural_text = reason_text.partition(" / ")
    value_texts = {
        value_name: say(language, value) if isinstance(value, Reason) else value
        for value_name, value in reason.values.items()
    }
    return (plural_text if plural_text and value_texts["n"] != 1 else singular_text).format(
        **value_texts
    )


def refusal(language: str, message: str) -> str:
    """The published refusal in a language; another message as it is stated."""
    published_refusal = Reason("refusal")
    return say(language, published_refusal) if message == str(published_refusal) else message
