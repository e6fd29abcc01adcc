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
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

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

from raglab.arguments.plain_arrays import refuse
from raglab.arguments.user_warnings import warn_user
from raglab.words.canonical import canonical_json, digest, merged_rows
from raglab.words.languages import TEXTS

LONGEST_PACK_EXPRESSION = 10_000  # characters
# characters of all expressions, half as many again as the largest pack of ours has
MAX_PACK_CHARACTERS = 400_000
# keys that a pack adds to; any other key that it states stands for the generic one
MERGED_KEYS = ("parts", "wording")
_PLAIN_TEXT_KEYS = ("parts", "wording", "name", "page_kind.model")  # in these a brace is a brace
_PART_NAME = re.compile(r"(?<!\\[pPxN])\{([a-z_]{2,})\}")
_UNBOUNDED_REPEAT = re.compile(r"[*+]|\{\d*,\}")
# an escaped character or a set of them, a bracket, a count of repeats, any other character
_EXPRESSION_TOKEN = re.compile(
    r"(?:\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]?)|(?P<open>\()|(?P<close>\))"
    r"|(?P<count>\{(?:\d+|\d*,\d*)\}|[*+?])|.",
    re.DOTALL,
)
# a sum of money as documents print it, English and French; in bounds, so that a run of digits takes
# no hours
MONEY_EXPRESSION = (
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
    group_repeats = [False]  # of each open group: whether it holds an unbounded repeat
    closed_repeat = (
        False  # whether a group that holds one was closed just before: a repeat repeats it
    )
    for token in _EXPRESSION_TOKEN.finditer(expression):
        if token["count"]:
            if _UNBOUNDED_REPEAT.fullmatch(token[0]):
                if closed_repeat:
                    return True
                group_repeats[-1] = True
        elif token["close"]:  # what a group holds, the group around it holds as well
            closed_repeat = group_repeats.pop() if len(group_repeats) > 1 else False
            group_repeats[-1] = group_repeats[-1] or closed_repeat
        else:
            closed_repeat = False
            group_repeats += [False] if token["open"] else []
    return False


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
            msg = "a reading with labels must have the kind of its value; state kind"
            raise ValueError(msg)
        if self.without and not self.labels:
            msg = "without narrows the labels of a reading, got no labels; name them"
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


LARGEST_WEIGHT = 1e12  # of a model: no sum of so large numbers overflows, and no fit makes them
MAX_FEATURES = 20_000  # of a model; a pack holds no more values
Weight = Annotated[
    float, Field(strict=True, ge=-LARGEST_WEIGHT, le=LARGEST_WEIGHT, allow_inf_nan=False)
]
Count = Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)]


class Weighing(_Part):
    """A feature's mean and scale, and its weight in the logit."""

    mean: Weight
    scale: Annotated[
        float, Field(strict=True, ge=1.0 / LARGEST_WEIGHT, le=LARGEST_WEIGHT, allow_inf_nan=False)
    ]
    weight: Weight


class PageModel(_Part):
    """Logistic regression over features of page 1, and what it was measured to do."""

    trained_by: str
    documents: Count
    coversheets: Count
    left_out_right: Count
    interval_95: tuple[Weight, Weight]
    features: Annotated[Mapping[str, Weighing], Field(max_length=MAX_FEATURES)]
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
        return {name: field_terms.asked for name, field_terms in self.fields.items()}

    def own_words(self, field: str | None) -> Expressions:
        """Words of a field that say nothing further."""
        field_terms = self.fields.get(field or "")
        return field_terms.own_words if field_terms else ()

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


def _canonical_pack(pack_value: Any) -> Any:  # noqa: ANN401 - whatever a pack holds
    if isinstance(pack_value, BaseModel):
        return {
            name: _canonical_pack(held)
            for name, model_field in type(pack_value).model_fields.items()
            if (held := getattr(pack_value, name)) != model_field.default
        }
    if isinstance(pack_value, Mapping):
        return [[name, _canonical_pack(held)] for name, held in pack_value.items()]
    if isinstance(pack_value, frozenset):
        return sorted(pack_value)
    return (
        [_canonical_pack(entry_value) for entry_value in pack_value]
        if isinstance(pack_value, tuple)
        else pack_value
    )


def pack_of(stated: Mapping[str, Any], where: Callable[[str], str] = lambda _: "pack") -> Pack:
    """Pack of what its files state, the rest filled in from the generic pack.

    Args:
      stated: key -> value.
      where: file that a path of keys stands in, for errors.

    Raises:
      ValueError: an unknown key or part, a reference to what is not there, a bad expression; names
        file, key and rule.

    Warns:
      UserWarning: nothing reads an entry, of a language that there is not or of a missing field.
    """
    pack_rows = dict(_GENERIC_ROWS)
    for entry_key, entry_value in stated.items():
        is_merged = entry_key in MERGED_KEYS and isinstance(entry_value, Mapping)
        pack_rows[entry_key] = (
            merged_rows(pack_rows.get(entry_key, {}), entry_value) if is_merged else entry_value
        )
    known_parts = _filled_parts(pack_rows.pop("parts", {}), where)
    n_characters = 0

    def expanded(entry_value: Any, key_path: str) -> Any:  # noqa: ANN401 - whatever a pack holds
        """A value with the named parts put into its expressions."""
        nonlocal n_characters
        if key_path in _PLAIN_TEXT_KEYS:
            return entry_value
        if isinstance(entry_value, str):
            filled_text = _fill_expressions(entry_value, known_parts, key_path, where)
            n_characters += len(filled_text)
            return filled_text
        if isinstance(entry_value, Mapping):
            return {
                entry_key: expanded(inner_value, f"{key_path}.{entry_key}")
                for entry_key, inner_value in entry_value.items()
            }
        return (
            [expanded(list_item, key_path) for list_item in entry_value]
            if isinstance(entry_value, list)
            else entry_value
        )

    expanded_pack = {
        entry_key: expanded(entry_value, entry_key) for entry_key, entry_value in pack_rows.items()
    }
    if n_characters > MAX_PACK_CHARACTERS:
        rule = (
            f"expressions of a pack must have at most {MAX_PACK_CHARACTERS:,} characters together"
        )
        refuse(f"{where('fields')}: {rule}", f"{n_characters:,}", "take some away")
    try:
        pack = Pack.model_validate(expanded_pack)
    except ValidationError as error:
        raise ValueError(
            " ".join(
                _pack_problem(validation_problem, where) for validation_problem in error.errors()
            )
        ) from None
    if unread_names := _unread_entries(stated, pack):
        warn_user(
            f"{where(unread_names[0])}: nothing reads {', '.join(unread_names)}; correct the "
            "names, or remove the entries."
        )
    return pack


def _filled_parts(stated_parts: object, file_of: Callable[[str], str]) -> dict[str, str]:
    """Parts by name, those that stand in others put in."""
    if not isinstance(stated_parts, Mapping):
        refuse(
            f"{file_of('parts')}: parts must be a mapping of names to expressions",
            type(stated_parts).__name__,
            "write name: expression",
        )
    known_parts = {"money": MONEY_EXPRESSION}
    for name, part_expression in stated_parts.items():
        known_parts[str(name)] = _fill_expressions(
            str(part_expression), known_parts, f"parts.{name}", file_of
        )
    return known_parts


def _unread_entries(stated_pack: Mapping[str, Any], pack: Pack) -> list[str]:
    """Entries of a language that there is not, and wording of a field that the pack lacks."""
    unread_names = [
        f"{key}.{language}"
        for key in ("wording", "language_words", "amounts")
        for language in stated_pack.get(key, ())
        if language not in TEXTS
    ]
    for language, wording in (
        stated_pack.get("wording", {}).items() if "fields" in stated_pack else ()
    ):
        unknown_fields = set(wording.get("fields", ())).difference(pack.fields)
        unread_names += [
            f"wording.{language}.fields.{field_name}" for field_name in sorted(unknown_fields)
        ]
    return unread_names


def _fill_expressions(
    expression: str, known_parts: Mapping[str, str], key_path: str, file_of: Callable[[str], str]
) -> str:
    # Parts hold parts: thirty that each hold the one before twice would fill the memory.
    filled_length = len(expression) + sum(
        len(known_parts.get(part_match[1], "")) for part_match in _PART_NAME.finditer(expression)
    )
    if filled_length > LONGEST_PACK_EXPRESSION:
        rule = (
            f"an expression must have at most {LONGEST_PACK_EXPRESSION:,} characters with its parts"
        )
        refuse(f"{file_of(key_path)}: {key_path}: {rule}", f"{filled_length:,}", "shorten it")

    def part(part_match: re.Match[str]) -> str:
        if part_match[1] not in known_parts:
            refuse(
                (
                    f"{file_of(key_path)}: {key_path}: a part must be one of "
                    f"{', '.join(sorted(known_parts))}"
                ),
                part_match[1],
                "correct its name",
            )
        return known_parts[part_match[1]]

    return _PART_NAME.sub(part, expression)


def _pack_problem(validation_problem: Mapping[str, Any], file_of: Callable[[str], str]) -> str:
    key_path = ".".join(str(path_part) for path_part in validation_problem["loc"])
    pack_file = file_of(key_path)
    if validation_problem["type"] == "extra_forbidden":
        return (
            f"{pack_file}: {key_path}: unknown key; see datasets/README.md for what a pack holds."
        )
    rule = str(validation_problem["msg"]).removeprefix("Value error, ")
    if not key_path:
        return f"{pack_file}: {rule}."
    return (
        f"{pack_file}: {key_path}: {rule[0].lower() + rule[1:]}, got "
        f"{str(validation_problem['input'])[:80]!r}."
    )


_GENERIC_ROWS: Mapping[str, Any] = yaml.safe_load(
    files(__package__ or "").joinpath("generic_pack.yaml").read_text(encoding="utf-8")
)
GENERIC = pack_of({}, lambda _: "raglab/words/generic_pack.yaml")  # of no trade
BUNDLED: Mapping[str, Pack] = {GENERIC.name: GENERIC}  # packs that ship with the package
