"""Languages (algebra): words, numerals, months, units, negations and turns of phrase, a file a language.

A language is one YAML file beside this module; every reader of text in raglab reads by all of them together, so that a
third language is a file and no code. Where a function takes a `language`, another union may be given to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, reduce
from importlib.resources import files
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError


def _word_list(value: object) -> object:
    """A text of words parted by blanks, or a list of phrases, as a tuple."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list | tuple) and all(isinstance(phrase, str) for phrase in value):
        return tuple(value)
    msg = f"words must be a text or a list of texts, got {value!r}; put `no` and `on` in quotes"
    raise ValueError(msg)


def _patterns(value: object) -> object:
    """An expression or a list of them as a tuple; each must compile."""
    found = _word_list([value] if isinstance(value, str) else value)
    for pattern in found if isinstance(found, tuple) else ():
        try:
            re.compile(pattern)
        except re.error as error:
            msg = f"an expression must be a regular one, got {pattern!r} ({error}); mend it"
            raise ValueError(msg) from None
    return found


def _pole_words(value: object) -> object:
    """`rise rises / fall falls` as the words of two poles."""
    if isinstance(value, str) and value.count("/") == 1:
        positive, negative = value.split("/")
        return {"positive": positive, "negative": negative}
    if isinstance(value, Poles):
        return value
    msg = f"opposites must be words on either side of one `/`, got {value!r}; part them so"
    raise ValueError(msg)


Words = Annotated[tuple[str, ...], BeforeValidator(_word_list)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(_patterns)]
_Twelve = Annotated[tuple[Words, ...], Field(min_length=12, max_length=12)]
_NAME = "(?<![A-Z]){}(?![A-Z])"  # of an expression, inside another
_STRICT = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True, eq=False)
class FunctionWords:
    """Words by what they do in a sentence, in small letters.

    stop: say nothing about what a question is about. small: further ones that carry no fact of a claim. speaker: what
    one says of oneself. parting, parting_numbers: begin a clause, the latter after a number. leaning: a clause that
    begins with one leaves what it is about to the clause before. joining: join two names, or the words of one.
    particles: stand inside names. titles: stand before names. asking: of a question about tables, name no matter.
    adverbs: expressions for adverbs, whole words. before, during, after: expressions that stand before an event and say
    how something lies to it. duties: words and phrases that oblige, allow or except.
    """

    stop: Words = ()
    small: Words = ()
    speaker: Words = ()
    parting: Words = ()
    parting_numbers: Words = ()
    leaning: Words = ()
    joining: Words = ()
    particles: Words = ()
    titles: Words = ()
    asking: Words = ()
    adverbs: Patterns = ()
    before: Patterns = ()
    during: Patterns = ()
    after: Patterns = ()
    duties: Words = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class Sentences:
    """Abbreviations without their last full stop, and words that begin a sentence, as they are capitalised.

    never_last, seldom_last: abbreviations that end no sentence, or seldom one. before_codes: those that end none before
    a code (`Cat. 12-B`). starters: begin a sentence and are hardly ever a name.
    """

    never_last: Words = ()
    seldom_last: Words = ()
    before_codes: Words = ()
    starters: Words = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class Numerals:
    """Numbers in words, in small letters.

    numbers, scales: words by value; a scale multiplies what stands before it. inside: words that count only after
    another number word, as they are other words elsewhere. suffixes, money_suffixes: scales written behind figures, the
    latter only behind money. joins_hundreds, joins_tens: `and` between a hundred and what follows, and between tens and
    ones. endings: of ordinals and plurals, written to figures. counts: words for a number that none of the others are.
    """

    numbers: Mapping[int, Words] = field(default_factory=dict)
    scales: Mapping[int, Words] = field(default_factory=dict)
    inside: Mapping[int, Words] = field(default_factory=dict)
    suffixes: Mapping[int, Words] = field(default_factory=dict)
    money_suffixes: Mapping[int, Words] = field(default_factory=dict)
    joins_hundreds: Words = ()
    joins_tens: Words = ()
    endings: Words = ()
    counts: Words = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class Quantities:
    """Units, and what cells of tables and heads of columns say of figures.

    currencies: words by ISO code. currencies_beside_figures: further ones that are other words elsewhere. percent:
    phrases. units: phrases by the unit's name. missing, nil, unlimited: what a cell without a figure says. below,
    above, between, joints: expressions before a bound and between two. articles: stand after those. of_dates: between
    day and month. of_money: between a scale and its currency. older, newer: of a column's head. stated: what stands
    before the unit of a whole table.
    """

    currencies: Mapping[str, Words] = field(default_factory=dict)
    currencies_beside_figures: Mapping[str, Words] = field(default_factory=dict)
    percent: Words = ()
    units: Mapping[str, Words] = field(default_factory=dict)
    missing: Words = ()
    nil: Words = ()
    unlimited: Words = ()
    below: Patterns = ()
    above: Patterns = ()
    between: Patterns = ()
    joints: Patterns = ()
    articles: Patterns = ()
    of_dates: Patterns = ()
    of_money: Patterns = ()
    older: Patterns = ()
    newer: Patterns = ()
    stated: Patterns = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class Negation:
    """What turns the next word of substance into its opposite.

    negators: words. with_particle: words that negate only after one of `particles`, which alone turn nothing.
    not_before: by negator the words before which it turns nothing. numbering: negators that are short for `number`
    before one. names: phrases that begin with a negator and are names. contracted: what is written to a verb for
    `contracted_as`; irregular: verbs by what is left of them then.
    """

    negators: Words = ()
    with_particle: Words = ()
    particles: Words = ()
    not_before: Mapping[str, Words] = field(default_factory=dict)
    numbering: Words = ()
    names: Words = ()
    contracted: Words = ()
    contracted_as: Words = ()
    irregular: Mapping[str, str] = field(default_factory=dict)

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class NoAnswer:
    """How an answer says that it has none: expressions by where they stand in it.

    words: expressions that stand for their names, in capitals, in all of the others. examples, sources: what begins a
    list of examples, and one of what an answer rests on.
    """

    words: Mapping[str, str] = field(default_factory=dict)
    openers: Patterns = ()
    unable: Patterns = ()
    silent: Patterns = ()
    concludes: Patterns = ()
    turns: Patterns = ()
    preambles: Patterns = ()
    labels: Patterns = ()
    examples: Patterns = ()
    sources: Patterns = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class AnswerKinds:
    """Expressions for questions by the kind of answer they ask for, and for dates that are no day.

    words: expressions that stand for their names, in capitals, in the others.
    """

    words: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, Patterns] = field(default_factory=dict)
    dates: Patterns = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class Intents:
    """Expressions of the rules of `raglab.decision.intent`, by the rule's name; `words` as in `AnswerKinds`."""

    words: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, Patterns] = field(default_factory=dict)

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class QuestionWords:
    """How questions leave something out; expressions are read from a text without accents, as whole words.

    telling: ask what something says, without a subject. this_part: point at a part without a name. holders: what
    says it. idle: words that a question has beside its subject. asking: words that begin what is asked, behind a
    colon or a dash. circumstances: clauses that speak of who asks and tell nothing apart. polite: asks whether one
    would answer. opening: leads up to a subject without a task. values: nouns whose value is asked for by their
    name. numbered: parts that are named by a number. codes: stand before a printed code. older, newer: of what held
    before a date or holds since. measures: by name, words by which a measure is asked for; units: how it is
    printed.
    """

    telling: Patterns = ()
    this_part: Patterns = ()
    holders: Words = ()
    idle: Words = ()
    asking: Patterns = ()
    circumstances: Patterns = ()
    polite: Patterns = ()
    opening: Patterns = ()
    values: Patterns = ()
    numbered: Patterns = ()
    codes: Words = ()
    older: Patterns = ()
    newer: Patterns = ()
    measures: Mapping[str, Patterns] = field(default_factory=dict)
    units: Mapping[str, Patterns] = field(default_factory=dict)

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class TableWords:
    """Expressions for what a question asks of tables; `words` as in `AnswerKinds`.

    operations: by operation. operating: words that ask for one and name no row. totals, parts: names of rows that are
    the total of others, and of those that are part of another. later, earlier: of two columns. unit: before the unit
    that is asked for. time, share, money: ask for such a unit.
    """

    words: Mapping[str, str] = field(default_factory=dict)
    operations: Mapping[str, Patterns] = field(default_factory=dict)
    operating: Patterns = ()
    totals: Patterns = ()
    parts: Patterns = ()
    later: Patterns = ()
    earlier: Patterns = ()
    unit: Patterns = ()
    time: Patterns = ()
    share: Patterns = ()
    money: Patterns = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class Poles:
    """Words of the two poles of an idea; an ending of `-` stands for all words that begin so."""

    positive: Words = ()
    negative: Words = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class ValueWords:
    """Words in and around the values that documents state, in small letters without accents.

    capital_months: months that are other words in small letters, and without a year months only in capitals. times:
    units of time beyond those of `Quantities`. modifiers: stand beside a unit of time. coins: parts of a currency
    by ISO code. rates: expressions between a figure and what it is counted by. counted: what `a` may stand before
    in one. extension: expressions before a telephone's extension; extension_of: words between one and its number.
    regions: ISO codes of countries where numbers are written without the country's own. firms: what ends the name
    of a firm. no_name: words that stand in no person's name. link: words that may stand between a label and its
    value; bounds: expressions that may, for a rounded value or a bound; copulas: verbs among them; reaching:
    further ones beside an address or a number to call. qualify: prepositions that narrow a label. clause:
    expressions that begin another clause. doubt: words after which a sentence states nothing; conditions: those of
    them that make it hold at times. former, newer: expressions that tell an old figure or a new one. start: words
    before the first of two dates.
    """

    capital_months: Words = ()
    times: Words = ()
    modifiers: Words = ()
    coins: Mapping[str, Words] = field(default_factory=dict)
    rates: Patterns = ()
    counted: Words = ()
    extension: Patterns = ()
    extension_of: Words = ()
    regions: Words = ()
    firms: Words = ()
    no_name: Words = ()
    link: Words = ()
    bounds: Patterns = ()
    copulas: Words = ()
    reaching: Words = ()
    qualify: Words = ()
    clause: Patterns = ()
    doubt: Words = ()
    conditions: Words = ()
    former: Patterns = ()
    newer: Patterns = ()
    start: Words = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class ReplyWords:
    """Words of what users reply to a question of the system, in small letters without accents.

    agreeing, refusing: words that are a yes or a no; assent, dissent: that may stand beside them. agreed: expressions
    that agree without a yes. newer, older, larger,
    smaller: expressions that mean one of several readings by its time or size. held, holds: by which a passage says
    that something held before, or holds since. ordinals: expressions for a place in a list, from 1. cover,
    last, next, contents, whole: expressions for pages; after: stands before the cover where the page behind it is
    meant. parts: of a document, about: what stands between one and its subject. looking: expressions that say where to
    look and nothing of what for. only: words by which a page is set aside. denying: expressions at the beginning of
    what is not meant. turning: words before what is meant after all. negative: expressions of what is not or must not
    be. measures: expressions for what is measured in a unit, codes: for a reference or model number,
    writing: for an address to write to.
    """

    agreeing: Words = ()
    agreed: Patterns = ()
    assent: Words = ()
    refusing: Words = ()
    dissent: Words = ()
    newer: Patterns = ()
    older: Patterns = ()
    larger: Patterns = ()
    smaller: Patterns = ()
    held: Patterns = ()
    holds: Patterns = ()
    ordinals: Mapping[int, Patterns] = field(default_factory=dict)
    cover: Patterns = ()
    after: Patterns = ()
    next: Patterns = ()
    last: Patterns = ()
    contents: Patterns = ()
    whole: Patterns = ()
    parts: Patterns = ()
    about: Patterns = ()
    looking: Patterns = ()
    only: Patterns = ()
    denying: Patterns = ()
    turning: Patterns = ()
    negative: Patterns = ()
    measures: Mapping[str, Patterns] = field(default_factory=dict)
    codes: Patterns = ()
    writing: Patterns = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """A language, or several of them taken together.

    months, months_short: names of each of the twelve, and what they are shortened to. months_or_words: those that are
    other words too, and months only beside a number. opposites: by idea; languages share the names of ideas.
    texts: what users are told, by the English sentence; see `sentence`.
    """

    name: str
    words: FunctionWords = field(default_factory=FunctionWords)
    sentences: Sentences = field(default_factory=Sentences)
    months: _Twelve = ((),) * 12
    months_short: _Twelve = ((),) * 12
    months_or_words: Words = ()
    numerals: Numerals = field(default_factory=Numerals)
    quantities: Quantities = field(default_factory=Quantities)
    negation: Negation = field(default_factory=Negation)
    opposites: Mapping[str, Annotated[Poles, BeforeValidator(_pole_words)]] = field(default_factory=dict)
    no_answer: NoAnswer = field(default_factory=NoAnswer)
    answers: AnswerKinds = field(default_factory=AnswerKinds)
    intent: Intents = field(default_factory=Intents)
    questions: QuestionWords = field(default_factory=QuestionWords)
    tables: TableWords = field(default_factory=TableWords)
    values: ValueWords = field(default_factory=ValueWords)
    replies: ReplyWords = field(default_factory=ReplyWords)
    texts: Mapping[str, str] = field(default_factory=dict)

    __pydantic_config__ = _STRICT


_LANGUAGE = TypeAdapter(Language)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the compiled one is ten times faster


def parse_language(text: str, where: str) -> Language:
    """The language that a YAML text describes; what it leaves out is empty.

    Args:
      where: named in messages, such as the file.

    Raises:
      ValueError: an unknown key, a value of another kind, not twelve months, an expression that does not compile.

    Example:
      >>> parse_language("{name: German, words: {stop: der die das}}", "de.yaml").words.stop
      ('der', 'die', 'das')
    """
    # The compiled loader overruns its stack on deep nesting, which ends the whole process.
    return _language(text, where, yaml.SafeLoader)


def _language(text: str, where: str, loader: Any) -> Language:  # noqa: ANN401 - a safe loader of yaml
    try:
        return _LANGUAGE.validate_python(yaml.load(text, loader))  # noqa: S506 - a safe loader
    except RecursionError:
        msg = f"{where}: a language must be YAML, got nesting too deep; mend it."
        raise ValueError(msg) from None
    except ValidationError as error:
        msg = f"{where}: {_violation(error)}"
        raise ValueError(msg) from None
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        msg = f"{where}: a language must be YAML, got {' '.join(str(error).split())[:200]}; mend it."
        raise ValueError(msg) from None


def _violation(error: ValidationError) -> str:
    """What is wrong with a file, each problem with its place and remedy."""
    lines = []
    for problem in error.errors():
        place, rule = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
        if problem["type"] in {"unexpected_keyword_argument", "extra_forbidden"}:
            lines.append(f"{place}: unknown key; write one of en.yaml's keys.")
        else:
            lines.append(f"{place}: {rule[0].lower()}{rule[1:]}; en.yaml shows the form.")
    return " ".join(lines)


def union(languages: Iterable[Language]) -> Language:
    """Several languages as one that has the words, numerals and expressions of all, those of earlier ones first.

    Example:
      >>> texts = ["{name: A, words: {stop: a b}}", "{name: B, words: {stop: b c}}"]
      >>> union([parse_language(text, "a file") for text in texts]).words.stop
      ('a', 'b', 'c')
    """
    each = list(languages)
    together: Language = reduce(_union_values, each[1:], each[0])
    return replace(together, name=" and ".join(language.name for language in each))


def _union_values(one: Any, other: Any, *, name: str = "") -> Any:  # noqa: ANN401 - any value of a language
    """Two values of the same kind together."""
    if is_dataclass(one) and not isinstance(one, type):
        pairs = {f.name: _union_values(getattr(one, f.name), getattr(other, f.name), name=f.name) for f in fields(one)}
        return type(one)(**pairs)
    if isinstance(one, Mapping):
        shared = {
            key: _union_values(value, other[key], name=name) if key in other else value for key, value in one.items()
        }
        return {**shared, **{key: value for key, value in other.items() if key not in one}}
    if name in {"months", "months_short"}:
        return tuple(_union_values(mine, its) for mine, its in zip(one, other, strict=True))
    if isinstance(one, tuple):
        return tuple(dict.fromkeys((*one, *other)))
    return f"(?:{one}|{other})" if name == "words" else one  # an expression that stands for a name in capitals


def expression(patterns: Iterable[str], words: Mapping[str, str] | None = None) -> str:
    r"""One expression for any of some patterns, tried in order; names in capitals give way to what they stand for.

    Example:
      >>> expression([r"\bTHE end\b", "fin"], {"THE": "(?:the|ONE)", "ONE": "a"})
      '(?:\\b(?:the|a) end\\b|fin)'
    """
    joined = f"(?:{'|'.join(patterns)})"
    left = dict(words or {})
    standing = [name for name in left if _stands(name, joined)]
    while standing:  # what a name stands for may hold other names, in any order
        joined = re.sub(_NAME.format(standing[0]), left[standing[0]].replace("\\", r"\\"), joined)
        standing = [name for name in left if _stands(name, joined)]
    return joined


def _stands(name: str, joined: str) -> bool:
    return re.search(_NAME.format(name), joined) is not None


def _bundled_languages() -> Iterator[tuple[str, Language]]:
    """The languages beside this module with the names of their files, in order of these."""
    for path in sorted(files(__name__).iterdir(), key=lambda path: path.name):
        if path.name.endswith(".yaml"):
            name = path.name.removesuffix(".yaml")
            yield name, _language(path.read_text(encoding="utf-8"), path.name, _LOADER)


_BUNDLED = dict(_bundled_languages())
LANGUAGES = union(_BUNDLED.values())
TEXTS: Mapping[str, Mapping[str, str]] = {name: one.texts for name, one in _BUNDLED.items()}  # by language


def sentence(template: str, language: str = "en", /, **parts: object) -> str:
    """A sentence for a user in a language, by its English one; in English where the language has no other.

    Args:
      template: the English sentence, with names in braces for what is put in. language: as a file beside this module is
        called.

    Example:
      >>> sentence("{hits} retrieved", "fr", hits="3 passages")
      'la recherche donne 3 passages'
      >>> sentence("{hits} retrieved", hits="3 hits")
      '3 hits retrieved'
    """
    told = TEXTS.get(language, {}).get(template, template)
    return told.format(**parts) if parts else told


def retold(text: str, language: str) -> str:
    """A sentence that was made in English before, in a language; as it is where none of its sentences made it.

    Example:
      >>> retold("the answer says that it has none: 'Unknown.'", "fr")
      "la réponse dit qu'elle n'en a pas : 'Unknown.'"
    """
    texts = TEXTS.get(language, {})
    if text in texts:
        return texts[text]
    for template, form in _forms(language):
        if made := form.fullmatch(text):
            return sentence(template, language, **made.groupdict())
    return text


@cache
def _forms(language: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Expressions for what sentences with parts become, the longest first; those that begin with one tell nothing."""
    texts = (text for text in TEXTS.get(language, {}) if "{" in text and not text.startswith("{"))
    named = {text: re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(text)) for text in texts}
    return tuple((text, re.compile(named[text], re.DOTALL)) for text in sorted(named, key=len, reverse=True))
