"""Packs (algebra): a trade's fields, patterns, page kinds and wording as a validated value.

They are what a trade calls things; the wording is that of questions.

A pack is data that a researcher of another trade replaces: the engine that reads it knows no trade.
What a pack leaves out comes from the generic pack of this package, which names no trade.
Expressions are Python's regular expressions; `{name}` in one stands for the part of that name under
`parts`.

Reading a pack from a file or folder is `raglab.store.policies.load_pack`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal, Self, get_args, get_origin

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from raglab.arguments.user_warnings import warn_user
from raglab.words.canonical import canonical_json, digest
from raglab.words.languages import TEXTS, meant_key

LONGEST_EXPRESSION = 10_000  # characters
# characters of all expressions, half as many again as the largest pack of ours has
MOST_TEXT = 400_000
# keys that a pack adds to; any other key that it states stands for the generic one
MERGED = ("parts", "wording")
_PLAIN_TEXT = ("parts", "wording", "name", "page_kind.model")  # in these a brace is a brace
_PART = re.compile(r"(?<!\\[pPxN])\{([a-z_]{2,})\}")
_UNBOUNDED = re.compile(r"[*+]|\{\d*,\}")
_COUNT_PART = re.compile(r"\{\d+(?:,\d*)?\}|[*+?]")
_GROUP_MARK = re.compile(r"\?(?:P<\w+>|<?[=!]|:|>|\(\w+\)|[aiLmsux]*(?:-[imsx]+)?:)")
# a sum of money as documents print it, English and French; in bounds, so that a run of digits takes
# no hours
MONEY = (
    r"(?:(?:[£€$]|GBP |EUR |USD )\s?\d{1,18}(?:,\d{3}){0,6}(?:\.\d\d)?"
    r"|\d{1,3}(?:[ \u00a0\u202f]\d{3}){1,6}(?:,\d\d)?\s?€"
    r"|\d{1,18}(?:,\d\d)?\s?€|\d{1,3}(?:,\d{3}){1,6}(?:\.\d\d)?)"
    # nor a part of one
    r"(?!\d|[.,]\d|[ \u00a0\u202f]\d{3}(?!\d)|\s?(?:k|m|bn|million|billion|milliard|thousand)s?\b)"
)


@lru_cache(maxsize=8192)
def compile_expression(expression: str, *, case: bool = False) -> re.Pattern[str]:
    """An expression of a pack, ready to search with; case: whether capitals tell."""
    return re.compile(expression, 0 if case else re.IGNORECASE)


def nested_repeat(expression: str) -> bool:
    """Whether an unbounded repeat repeats unbounded again, which hostile text turns into hours.

    Example:
      >>> nested_repeat(r"(?:a+ )+"), nested_repeat(r"(?:a{1,9} )+"), nested_repeat(r"[a+]*")
      (True, False, False)
    """
    holds = [False]  # of each open group: whether it holds an unbounded repeat
    # ended: a group that holds one was closed just before, so that a repeat here repeats it
    at, ended = 0, False
    while at < len(expression):
        char = expression[at]
        if char == "\\":  # an escaped character repeats nothing
            at, ended = at + 2, False
            continue
        if char == "[":  # in a set of characters, + and * are characters
            at, ended = _after_class(expression, at), False
            continue
        if char == "(":  # the mark behind a bracket, such as ?:, is no repeat
            holds.append(False)
            mark = _GROUP_MARK.match(expression, at + 1)
            at, ended = mark.end() if mark else at + 1, False
            continue
        if char == ")":  # what a group holds, the group around it holds as well
            ended = holds.pop() if len(holds) > 1 else False
            holds[-1] = holds[-1] or ended
            at += 1
            continue
        count = _COUNT_PART.match(expression, at)
        if count is None:
            at, ended = at + 1, False
            continue
        if _UNBOUNDED.fullmatch(count[0]):
            if ended:
                return True
            holds[-1] = True
        at = count.end()
    return False


def _after_class(expression: str, at: int) -> int:
    """Position behind a set of characters that begins at `at`."""
    at += 2 if expression[at + 1 : at + 2] == "^" else 1
    at += expression[at : at + 1] == "]"
    while at < len(expression) and expression[at] != "]":
        at += 2 if expression[at] == "\\" else 1
    return at + 1


def _check_expression(expression: str) -> str:
    if not expression:
        msg = "an expression must not be empty; remove it"
        raise ValueError(msg)
    try:
        re.compile(expression)
    except re.error as error:
        msg = f"an expression must be a regular expression ({error}); correct it"
        raise ValueError(msg) from None
    if nested_repeat(expression):
        msg = (
            "an expression must not repeat without bound what itself repeats without bound; write "
            "{0,9} for one of them"
        )
        raise ValueError(msg)
    return expression


Expression = Annotated[str, AfterValidator(_check_expression)]
Expressions = tuple[Expression, ...]
TermTable = Mapping[str, Expressions]  # an ordered table: the first entry that occurs wins


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FieldPattern(_Part):
    """An expression with a group `value`, and where it holds.

    under: must occur in the section's heading. without: must not occur in the sentence. asked,
    unasked: must, and must not, occur in the words of the question. Capitals tell in `match` alone.
    """

    match: Expression
    under: Expression | None = None
    without: Expression | None = None
    asked: Expression | None = None
    unasked: Expression | None = None

    @field_validator("match")
    @classmethod
    def _has_a_value(cls, expression: str) -> str:
        if "value" not in re.compile(expression).groupindex:
            msg = "a pattern must have a group (?P<value>...), which is what is read; name it"
            raise ValueError(msg)
        return expression


ValueKind = Literal[
    "date",
    "amount",
    "percentage",
    "duration",
    "phone",
    "email",
    "url",
    "person",
    "organisation",
    "reference",
    "quantity",
    "text",
]
VALUE_KINDS: tuple[ValueKind, ...] = get_args(ValueKind)


class FieldReading(_Part):
    """How one field is read from documents.

    prose: patterns, strongest first. role: what the cell of a table's row says that states the
    field; its name stands in another cell. kind: of its value, which is read whole or not at all.
    labels: words by which documents name the field, read as whole words without case and accents,
    beside which a value of the kind stands. without: must not occur in its sentence or row.
    """

    prose: tuple[FieldPattern, ...] = ()
    role: Expression | None = None
    kind: ValueKind | None = None
    labels: Expressions = ()
    without: Expression | None = None

    @model_validator(mode="after")
    def _has_a_kind(self) -> Self:
        if self.labels and self.kind is None:
            msg = (
                "a reading with labels must have a kind, which its value has; write one of "
                f"{', '.join(VALUE_KINDS)}"
            )
            raise ValueError(msg)
        if self.without and not self.labels:
            msg = (
                "without narrows the labels of a reading, got no labels; name them, or leave it out"
            )
            raise ValueError(msg)
        return self


class Titles(_Part):
    """Titles of a table of contents that lead to a field: strong: surely, weak: perhaps."""

    strong: Expression
    weak: Expression


class FieldTerms(_Part):
    """A field that a question may ask for.

    asked: how questions name it. own_words: of the field, which say nothing about which of its
    values is meant. on_a_page: where a document states it is asked, page by page, before it is
    read. names: its value is the name of a person or firm. reading: how documents are read for it,
    None where no rule reads it. titles: of a table of contents.
    """

    asked: Expressions
    own_words: Expressions = ()
    on_a_page: bool = False
    names: bool = False
    reading: FieldReading | None = None
    titles: Titles | None = None


class Role(_Part):
    """The standing of a person, as documents name it. field: that names who holds it."""

    asked: Expressions
    field: str


class VagueRole(_Part):
    """Words that may mean any of several roles."""

    asked: Expressions


MOST_WEIGHT = 1e12  # of a model: no sum of so large numbers overflows, and no fit makes them
MOST_FEATURES = 20_000  # of a model; a pack holds no more values
Weight = Annotated[float, Field(strict=True, ge=-MOST_WEIGHT, le=MOST_WEIGHT, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]


class Weighing(_Part):
    """A feature's mean and scale, and its weight in the logit."""

    mean: Weight
    scale: Annotated[
        float, Field(strict=True, ge=1.0 / MOST_WEIGHT, le=MOST_WEIGHT, allow_inf_nan=False)
    ]
    weight: Weight


class PageModel(_Part):
    """Logistic regression over features of page 1, and what it was measured to do."""

    trained_by: str
    documents: Count
    coversheets: Count
    left_out_right: Count
    interval_95: tuple[Weight, Weight]
    features: Annotated[Mapping[str, Weighing], Field(max_length=MOST_FEATURES)]
    intercept: Weight


class PageKinds(_Part):
    """How a cover sheet is told from a body.

    Terms of the documents themselves, and the classifier over features.
    """

    terms: Expression
    model: PageModel


class FieldWording(_Part):
    """A field in words, with its article."""

    the: str


class Wording(_Part):
    """How questions to the user name fields in one language."""

    fields: Mapping[str, FieldWording] = {}


class Pack(_Part):
    """What a trade calls things: synonyms, roles and wording, and no mechanism.

    Expressions over questions are matched as whole words in a text without accents, in small
    letters; those over documents in the text as it stands. Tables are ordered: the first entry that
    occurs wins.

    fields: that questions ask for. roles, vague_role: persons. language_words: that tell the
    language beside its small words. amounts: by language, nouns whose value is a number. later:
    words of a question about tables that speak of the newer figures. contents_intro,
    contents_title: of a table of contents. page_kind: how a cover sheet is told from a body.
    wording: of questions to the user.
    """

    name: str
    fields: Mapping[str, FieldTerms]
    roles: Mapping[str, Role]
    vague_role: VagueRole | None
    language_words: Mapping[str, frozenset[str]]
    amounts: Mapping[str, Expressions]
    later: Expressions = ()
    contents_intro: Expression
    contents_title: Expression
    page_kind: PageKinds
    wording: Mapping[str, Wording]

    def __repr__(self) -> str:
        sizes = (
            f"{len(self.fields)} fields, {len(self.roles)} roles, wording in "
            f"{', '.join(self.wording) or 'none'}"
        )
        return f"{type(self).__name__}({self.name!r}: {sizes})"

    def __hash__(self) -> int:
        """By content, so that what is read from a text may be kept by pack."""
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON.

        Tables keep their order, defaults are left out.
        """
        return digest(canonical_json(_canonical_pack(self)), 12)

    @cached_property
    def stored(self) -> str | None:
        """Digest as trace, index and log have it.

        None of the generic pack, which names no trade.
        """
        return None if self.digest == GENERIC.digest else self.digest

    @cached_property
    def asked(self) -> TermTable:
        """Expressions of fields and families."""
        return {name: field.asked for name, field in self.fields.items()}

    def own_words(self, field: str | None) -> Expressions:
        """Words of a field that say nothing further."""
        known = self.fields.get(field or "")
        return known.own_words if known else ()

    @model_validator(mode="after")
    def _refers_to_what_is_there(self) -> Self:
        for name, role in self.roles.items():
            if role.field not in self.fields:
                msg = (
                    f"roles.{name}.field must name one that exists, got {role.field!r}; write one "
                    f"of {', '.join(self.fields)}"
                )
                raise ValueError(msg)
        return self


def _canonical_pack(value: Any) -> Any:  # noqa: ANN401 - whatever a pack holds
    if isinstance(value, BaseModel):
        return {
            name: _canonical_pack(held)
            for name, field in type(value).model_fields.items()
            if (held := getattr(value, name)) != field.default
        }
    if isinstance(value, Mapping):
        return [[name, _canonical_pack(held)] for name, held in value.items()]
    if isinstance(value, frozenset):
        return sorted(value)
    return [_canonical_pack(item) for item in value] if isinstance(value, tuple) else value


def pack_of(stated: Mapping[str, Any], where: Callable[[str], str] = lambda _: "pack") -> Pack:
    """Pack of what its files state, the rest filled in from the generic pack.

    Args:
      stated: key -> value.
      where: file that a path of keys stands in, for errors.

    Raises:
      ValueError: an unknown key or part, a reference to what is not there, a bad expression; names
        file, key and rule.
    """
    rows = dict(_GENERIC_ROWS)
    retired: list[str] = []
    current = _without_retired(stated, "", retired)
    if retired:
        warn_user(
            f"{where(retired[0])}: {len(retired)} keys of an earlier version do nothing any more, "
            f"such as {', '.join(retired[:6])}; remove them."
        )
    if unread := _unread(current):
        warn_user(
            f"{where(unread[0])}: nothing reads {', '.join(unread)}; correct the names, or remove "
            "the entries."
        )
    for key, value in current.items():
        deep = key in MERGED and isinstance(value, Mapping)
        rows[key] = merge_packs(rows.get(key, {}), value) if deep else value
    parts = rows.pop("parts", {})
    if not isinstance(parts, Mapping):
        msg = (
            f"{where('parts')}: parts must be a mapping of names to expressions, got "
            f"{type(parts).__name__}."
        )
        raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
    known = {"money": MONEY}
    for name, expression in parts.items():
        known[str(name)] = _fill_expressions(str(expression), known, f"parts.{name}", where)
    whole = {key: _expand_parts(value, known, key, where) for key, value in rows.items()}
    if (
        size := _text_size({key: value for key, value in whole.items() if key not in _PLAIN_TEXT})
    ) > MOST_TEXT:
        msg = (
            f"{where('fields')}: expressions of a pack must have at most {MOST_TEXT:,} characters "
            f"together, its parts put in, got {size:,}; take some away."
        )
        raise ValueError(msg)
    try:
        return Pack.model_validate(whole)
    except ValidationError as error:
        raise ValueError(" ".join(_problem(problem, where) for problem in error.errors())) from None


# Paths of keys of earlier versions.
_RETIRED = re.compile(
    r"about|mentions|intents|sections|named_sections|page|toc|whole|cited_part|part|no_part"
    r"|documents|versions|now|change|wide|broad|somebody|verb|form_words|filler|same|value_words"
    r"|figures|families|field_model|vague_role\.(?:unless|field|key)"
    r"|fields\.[^.]+\.(?:family|one_kind|column)"
    r"|fields\.[^.]+\.reading\.(?:headings|total|figure|aside|under|no_value|filled|right)"
    r"|wording\.[^.]+\.(?:any_document|documents|families|values|sections|written)"
    r"|wording\.[^.]+\.fields\.[^.]+\.(?:a|named)"
)


# whatever a pack holds
def _without_retired(value: Any, path: str, retired: list[str]) -> Any:  # noqa: ANN401
    """What a pack states but for keys of earlier versions, whose paths are added to `retired`."""
    if not isinstance(value, Mapping):
        return value
    retired += [f"{path}{key}" for key in value if _RETIRED.fullmatch(f"{path}{key}")]
    return {
        key: _without_retired(held, f"{path}{key}.", retired)
        for key, held in value.items()
        if not _RETIRED.fullmatch(f"{path}{key}")
    }


def merge_packs(base: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with the entries of another put over it, mapping by mapping."""
    rows = dict(base)
    for key, value in stated.items():
        deep = isinstance(value, Mapping) and isinstance(rows.get(key), Mapping)
        rows[key] = merge_packs(rows[key], value) if deep else value
    return rows


def _expand_parts(
    value: Any,  # noqa: ANN401
    parts: Mapping[str, str],
    path: str,
    where: Callable[[str], str],
) -> Any:  # noqa: ANN401
    """A value with the named parts put into its expressions."""
    if path in _PLAIN_TEXT:
        return value
    if isinstance(value, str):
        return _fill_expressions(value, parts, path, where)
    if isinstance(value, Mapping):
        return {
            key: _expand_parts(held, parts, f"{path}.{key}", where) for key, held in value.items()
        }
    return (
        [_expand_parts(item, parts, path, where) for item in value]
        if isinstance(value, list)
        else value
    )


def _text_size(value: Any) -> int:  # noqa: ANN401 - whatever a pack holds
    """Characters of all texts; those of models, which are no expressions, are left out."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_text_size(held) for key, held in value.items() if key != "model")
    return sum(map(_text_size, value)) if isinstance(value, list | tuple) else 0


def _fill_expressions(
    text: str, parts: Mapping[str, str], path: str, where: Callable[[str], str]
) -> str:
    # Parts hold parts: thirty that each hold the one before twice would fill the memory.
    size = len(text) + sum(len(parts.get(match[1], "")) for match in _PART.finditer(text))
    if size > LONGEST_EXPRESSION:
        msg = (
            f"{where(path)}: {path}: an expression must have at most {LONGEST_EXPRESSION:,} "
            f"characters with its parts, got {size:,}; shorten it."
        )
        raise ValueError(msg)

    def part(match: re.Match[str]) -> str:
        if match[1] not in parts:
            msg = (
                f"{where(path)}: {path}: no part is called {match[1]!r}; write one of "
                f"{', '.join(sorted(parts))}."
            )
            raise ValueError(msg)
        return parts[match[1]]

    return _PART.sub(part, text)


def _problem(problem: Mapping[str, Any], where: Callable[[str], str]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    file = where(path)
    if problem["type"] == "extra_forbidden":
        *inside, key = problem["loc"]
        near = meant_key(key, _keys_at(Pack, inside), "".join(f"{part}." for part in inside))
        return (
            f"{file}: {path}: unknown key; "
            f"{near or 'see datasets/README.md for what a pack holds.'}"
        )
    rule = str(problem["msg"]).removeprefix("Value error, ")
    if not path:
        return f"{file}: {rule}."
    return f"{file}: {path}: {rule[0].lower() + rule[1:]}, got {str(problem['input'])[:80]!r}."


# a model, or a form that holds one
def _keys_at(kind: Any, path: Sequence[Any]) -> tuple[str, ...]:  # noqa: ANN401
    """Keys that a pack may have at a path; () where it has no keys of its own there."""
    if not isinstance(kind, type) or not issubclass(kind, BaseModel):
        inner = [argument for argument in get_args(kind) if argument not in {str, type(None), ...}]
        skipped = path[1:] if get_origin(kind) in {Mapping, tuple} else path
        return _keys_at(inner[0], skipped) if inner else ()
    if not path:
        return tuple(kind.model_fields)
    return _keys_at(kind.model_fields[str(path[0])].annotation, path[1:])


def _unread(stated: Mapping[str, Any]) -> list[str]:
    """Entries of a pack that nothing reads.

    Of a language that there is not, and wording of a field that it lacks.
    """
    texts = [(key, stated.get(key)) for key in ("wording", "language_words", "amounts")]
    paths = [
        (f"{key}.{language}", meant_key(language, TEXTS, f"{key}."))
        for key, by_language in texts
        if isinstance(by_language, Mapping)
        for language in by_language
        if language not in TEXTS
    ]
    fields = stated.get("fields")
    if isinstance(fields, Mapping) and isinstance(stated.get("wording"), Mapping):
        for language, wording in stated["wording"].items():
            own = wording.get("fields") if isinstance(wording, Mapping) else None
            for name in own if isinstance(own, Mapping) else ():
                if name not in fields:
                    path = f"wording.{language}.fields."
                    paths.append((f"{path}{name}", meant_key(name, map(str, fields), path)))
    return [f"{path} ({meant})" if meant else path for path, meant in paths]


_GENERIC_ROWS: Mapping[str, Any] = yaml.safe_load(
    files(__package__ or "").joinpath("generic_pack.yaml").read_text(encoding="utf-8")
)
GENERIC = pack_of({}, lambda _: "raglab/words/generic_pack.yaml")  # of no trade
BUNDLED: Mapping[str, Pack] = {GENERIC.name: GENERIC}  # packs that ship with the package
