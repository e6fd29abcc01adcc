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


def words(value: object) -> tuple[str, ...]:
    """A text of words parted by blanks, or a list of phrases."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list) and all(isinstance(phrase, str) for phrase in value):
        return tuple(value)
    msg = f"words must be a text or a list of texts, got {value!r}; put `no` and `on` in quotes"
    raise ValueError(msg)


def patterns(value: object) -> tuple[str, ...]:
    """An expression, or a list of them; each must compile."""
    expressions = words([value] if isinstance(value, str) else value)
    rule = f"an expression must be a regular one, and must have at most {MAX_PATTERN_LENGTH} characters"
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


def plain_text(value: object) -> str:
    """A text."""
    if isinstance(value, str) and value:
        return value
    msg = f"a text is required, got {value!r}; write one, in quotes"
    raise ValueError(msg)


def months(value: object) -> tuple[tuple[str, ...], ...]:
    """Words for each of the twelve months."""
    if isinstance(value, list) and len(value) == 12:
        return tuple(map(words, value))
    msg = f"months must be a list of 12, got {value!r}"
    raise ValueError(msg)


def poles(value: object) -> Section:
    """Words of the two poles of an idea, `rise rises / fall falls`.

    An ending of `-` is for all words that begin so.
    """
    if isinstance(value, str) and value.count("/") == 1:
        positive, negative = value.split("/")
        return Section(positive=words(positive), negative=words(negative))
    msg = f"opposites must be words on either side of one `/`, got {value!r}"
    raise ValueError(msg)


# a dictionary: entries by names, each with its kind, or by any key of a type
Kind: TypeAlias = Callable[[object], Any] | dict[Any, Any]


def _same_kind(kind: Kind, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


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
def _language_entry(value: object, kind: Kind, place: str, problems: list[str]) -> Any:  # noqa: ANN401
    """Value of an entry by its kind.

    What breaks a rule goes to the problems, each with its place and remedy.
    """
    inside = f"{place}." if place else ""
    try:
        if callable(kind):
            return _EMPTY_VALUES[kind] if value is None and kind in _EMPTY_VALUES else kind(value)
        mapping = {} if value is None else value
        if not isinstance(mapping, dict):
            msg = f"entries must be `name: value` each, got {value!r}"
            raise ValueError(msg)  # noqa: TRY004, TRY301 - one of the problems
    except ValueError as error:
        problems.append(f"{place}: {error}; en.yaml shows the form.")
        return None
    key_type = next(iter(kind))
    if isinstance(key_type, type):
        problems += [
            f"{inside}{key}: a key must be {'a number' if key_type is int else 'a quoted text'}."
            for key in mapping
            if type(key) is not key_type
        ]
        return {
            key: _language_entry(item, kind[key_type], f"{inside}{key}", problems)
            for key, item in mapping.items()
        }
    problems += [
        f"{inside}{name}: unknown key; write one of en.yaml's keys."
        for name in mapping
        if name not in kind
    ]
    entries = {
        name: _language_entry(mapping.get(name), part, f"{inside}{name}", problems)
        for name, part in kind.items()
    }
    return (Section if place else Language)(**entries)


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
            stated = yaml.load(source, loader) or []  # noqa: S506 - a safe loader
            language: Language = _language_entry(stated, LANGUAGE_FORM, "", problems)
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
    each = list(languages)
    together = vars(reduce(_union_values, each))
    return Language(**together | {"name": " and ".join(language.name for language in each)})


# any value of a language
def _union_values(first: Any, second: Any, name: str = "") -> Any:  # noqa: ANN401
    """Two values of the same kind together.

    Args:
      name: of the entry that they belong to.
    """
    if isinstance(first, Section):
        pairs = {
            key: _union_values(value, vars(second)[key], key) for key, value in vars(first).items()
        }
        return type(first)(**pairs)
    if isinstance(first, Mapping):
        both = {key: _union_values(first[key], second[key], name) for key in first if key in second}
        return {**first, **second, **both}
    if name in {"months", "months_short"}:
        return tuple(map(_union_values, first, second))
    if isinstance(first, tuple):
        return tuple(dict.fromkeys((*first, *second)))
    # an expression that stands for a name in capitals
    return f"(?:{first}|{second})" if name == "words" else first


def expression(patterns: Iterable[str], words: Mapping[str, str] | None = None) -> str:
    r"""One expression for any of some patterns, tried in order.

    Names in capitals give way to what they stand for.

    Example:
      >>> expression([r"\bTHE end\b", "fin"], {"THE": "(?:the|ONE)", "ONE": "a"})
      '(?:\\b(?:the|a) end\\b|fin)'
    """
    words = words or {}
    joined = f"(?:{'|'.join(patterns)})"
    # What a name stands for may hold other names, in any order; one that holds itself would grow
    # for ever.
    steps = 0
    while held := [name for name in words if re.search(_CAPITAL_NAME.format(name), joined)]:
        joined = re.sub(_CAPITAL_NAME.format(held[0]), words[held[0]].replace("\\", r"\\"), joined)
        steps += 1
        if len(joined) > MAX_EXPRESSION_LENGTH or steps > len(words) ** 2:
            rule = f"words must stand for at most {MAX_EXPRESSION_LENGTH:,} characters"
            refuse(f"{rule}, and not for themselves", held[0], "correct it")
    return joined


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
    text = TEXTS.get(language, TEXTS["en"])[reason.key]
    singular, _, plural = text.partition(" / ")
    parts = {
        name: say(language, value) if isinstance(value, Reason) else value
        for name, value in reason.values.items()
    }
    return (plural if plural and parts["n"] != 1 else singular).format(**parts)


def refusal(language: str, message: str) -> str:
    """The published refusal in a language; another message as it is stated."""
    published = Reason("refusal")
    return say(language, published) if message == str(published) else message
