"""Packs (algebra): what a trade calls things - fields, patterns, page kinds, question wording - as a validated value.

A pack is data that a researcher of another trade replaces: the engine that reads it knows no trade. What a pack leaves
out comes from the generic pack of this package, which names no trade. Expressions are Python's regular expressions;
`{name}` in one stands for the part of that name under `parts`.

Reading a pack from a file or folder is `raglab.store.policies.load_pack`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

MERGED = ("parts", "wording")  # keys that a pack adds to; any other key that it states stands for the generic one
_PLAIN_TEXT = ("parts", "wording", "name", "about", "page_kind.model", "field_model")  # in these a brace is a brace
_PART = re.compile(r"(?<!\\[pPxN])\{([a-z_]{2,})\}")
_UNBOUNDED = re.compile(r"[*+]|\{\d*,\}")
_COUNT_PART = re.compile(r"\{\d+(?:,\d*)?\}|[*+?]")
_GROUP_MARK = re.compile(r"\?(?:P<\w+>|<?[=!]|:|>|\(\w+\)|[aiLmsux]*(?:-[imsx]+)?:)")
MONEY = (  # a sum of money as documents print it, English and French; in bounds, so that a run of digits takes no hours
    r"(?:(?:[£€$]|GBP |EUR |USD )\s?\d{1,18}(?:,\d{3}){0,6}(?:\.\d\d)?"
    r"|\d{1,3}(?:[ \u00a0\u202f]\d{3}){1,6}(?:,\d\d)?\s?€"
    r"|\d{1,18}(?:,\d\d)?\s?€|\d{1,3}(?:,\d{3}){1,6}(?:\.\d\d)?)"
    r"(?!\d|[.,]\d|[ \u00a0\u202f]\d{3}(?!\d)|\s?(?:k|m|bn|million|billion|milliard|thousand)s?\b)"  # nor a part of one
)


@lru_cache(maxsize=8192)
def compile_expression(expression: str, *, case: bool = False) -> re.Pattern[str]:
    """An expression of a pack, ready to search with; case: whether capitals tell."""
    return re.compile(expression, 0 if case else re.IGNORECASE)


def nested_repeat(expression: str) -> bool:
    """Whether something that repeats without bound repeats without bound again, which hostile text turns into hours.

    Example:
      >>> nested_repeat(r"(?:a+ )+"), nested_repeat(r"(?:a{1,9} )+"), nested_repeat(r"[a+]*")
      (True, False, False)
    """
    holds = [False]  # of each open group: whether it holds an unbounded repeat
    at, ended = 0, False  # ended: a group that holds one was closed just before, so that a repeat here repeats it
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
        msg = "an expression must not be empty, it would match every text; remove it"
        raise ValueError(msg)
    try:
        re.compile(expression)
    except re.error as error:
        msg = f"an expression must be a regular expression ({error}); correct it"
        raise ValueError(msg) from None
    if nested_repeat(expression):
        msg = (
            "an expression must not repeat without bound what itself repeats without bound; write {0,9} for one of them"
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

    under: must occur in the section's heading. without: must not occur in the sentence. asked, unasked: must, and must
    not, occur in the words of the question. Capitals tell in `match` alone.
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


class Aside(_Part):
    """Words of a question that turn a field to another matter, and what its value looks like.

    words: turn it, and must stand beside the value. closed: words after which nothing is read. under: must occur in the
    section's heading.
    """

    words: Expression
    value: Expression
    closed: Expression | None = None
    under: Expression | None = None


class Total(_Part):
    """The amount of a row of totals. row: what its first cell says. under: what its section's heading says."""

    row: Expression
    under: Expression


FigureKind = Literal["deducted", "each", "total", "inner"]
ValueKind = Literal[
    "date", "amount", "percentage", "duration", "phone", "email", "url", "person", "organisation", "reference",
    "quantity", "text",
]  # fmt: skip
VALUE_KINDS: tuple[ValueKind, ...] = get_args(ValueKind)


class FieldReading(_Part):
    """How one field is read from documents.

    prose, headings: patterns, strongest first. role: what the cell of a table's row says that states the field; its
    name stands in another cell. total: of the row whose amount it is. figure: which figure of tables it is: what is
    deducted, or the ceiling for each event, in total, or within another. aside: words of a question that mean another
    matter. kind: of its value, which is read whole or not at all. labels: words by which documents name the field, read
    as whole words without case and accents, beside which a value of the kind stands. without: must not occur in its
    sentence or row; under: must occur in the section's heading. no_value: what no value of it holds. filled, right: on
    labelled documents, how often a value was given and how often it was the right one; the confidence is made of them.
    """

    prose: tuple[FieldPattern, ...] = ()
    headings: tuple[FieldPattern, ...] = ()
    role: Expression | None = None
    total: Total | None = None
    figure: FigureKind | None = None
    aside: Aside | None = None
    kind: ValueKind | None = None
    labels: Expressions = ()
    without: Expression | None = None
    under: Expression | None = None
    no_value: Expression | None = None
    filled: Annotated[int, Field(ge=0)] = 0
    right: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _has_a_kind(self) -> Self:
        if self.labels and self.kind is None:
            msg = f"a reading with labels must have a kind, which its value has; write one of {', '.join(VALUE_KINDS)}"
            raise ValueError(msg)
        if (self.without or self.under) and not self.labels:
            msg = "without and under narrow the labels of a reading, got no labels; name them, or leave these out"
            raise ValueError(msg)
        return self

    @property
    def confidence(self) -> float:
        """Mean of the posterior of being right, Beta(1 + right, 1 + wrong), in (0, 1)."""
        return (self.right + 1.0) / (self.filled + 2.0)


class Titles(_Part):
    """Titles of a table of contents that lead to a field: strong: surely, weak: perhaps."""

    strong: Expression
    weak: Expression


class FieldTerms(_Part):
    """A field, or a family of figures, that a question may ask for.

    asked: how questions name it. own_words: of a field or family, which say nothing about which figure or passage is
    meant. family: among whose figures one has to choose. on_a_page: documents state it once, on some page. names: its
    value is the name of a person or firm. one_kind: it leaves nothing to choose. column: it is a column of its own.
    reading: how documents are read for it, None where no rule reads it. titles: of a table of contents.
    """

    asked: Expressions
    own_words: Expressions = ()
    family: str = ""
    on_a_page: bool = False
    names: bool = False
    one_kind: bool = False
    column: bool = False
    reading: FieldReading | None = None
    titles: Titles | None = None


class Family(_Part):
    """Figures among which one would have to choose.

    heads: what the head of a column, the label of a row or a heading says of them. kinds: values that are offered, as
    their words stand in documents. first: kinds that are offered before the others. otherwise: kind of a figure that no
    expression names, '' for none. own_rows: a row that no kind names is a kind of its own. by_columns: the head of a
    column tells the kind before the label of a row does. several: a sentence may be of several kinds; stated: and
    states one without a sum. settled: a kind that the question names leaves nothing open. bare: only a question that is
    about nothing further leaves the kind open. row_field: that the rows of its tables belong to. reads: kind ->
    field whose rule reads it, `*` for any.
    """

    heads: Expressions = ()
    kinds: TermTable = {}
    first: tuple[str, ...] = ()
    otherwise: str = ""
    own_rows: bool = False
    by_columns: bool = False
    several: bool = False
    stated: bool = False
    settled: bool = False
    bare: bool = False
    row_field: str = ""
    reads: Mapping[str, str] = {}

    @property
    def is_chosen(self) -> bool:
        """Whether one document states several kinds of it."""
        return bool(self.kinds) or self.own_rows


class Version(_Part):
    """The old or the new figures. value: of a date scope. asked: how questions name it. heads: of columns."""

    value: str
    asked: Expressions
    heads: Expressions


class Versions(_Part):
    """Old and new figures."""

    old: Version
    new: Version


class Role(_Part):
    """The standing of a person, as documents name it. field: that names who holds it."""

    asked: Expressions
    field: str


class VagueRole(_Part):
    """Words that may mean any of several roles.

    asked: those words. unless: words that tell the role after all. field: that they ask for. key: of the learned row.
    """

    asked: Expressions
    unless: Expressions
    field: str
    key: str


class Documents(_Part):
    """Types of document. kinds: how questions name them. dated: whose figures another version replaces.

    amends: that states old figures beside new ones. any: type that is taken where none is known.
    """

    kinds: TermTable = {}
    dated: tuple[str, ...] = ()
    amends: str = ""
    any: str = "document"


class Figures(_Part):
    """Words by which figures of tables and sentences are told apart.

    deducted, ceiling: what a figure is. each, total, inner: of a ceiling. general: a figure that holds where no other
    does. price: sections whose sums are no ceiling. sentences: how a sentence states one, with a group `value`.
    own_words: of figures, which tell no row from another.
    """

    deducted: Expression
    ceiling: Expression
    each: Expression
    total: Expression
    inner: Expression
    general: Expression
    price: Expression
    sentences: Mapping[FigureKind, Expression] = {}
    own_words: frozenset[str] = frozenset()


class Weighing(_Part):
    """A feature's mean and scale, and its weight in the logit."""

    mean: float
    scale: Annotated[float, Field(gt=0.0)]
    weight: float


class PageModel(_Part):
    """Logistic regression over features of page 1, and what it was measured to do."""

    trained_by: str
    documents: int
    coversheets: int
    left_out_right: int
    interval_95: tuple[float, float]
    features: Mapping[str, Weighing]
    intercept: float


class PageKinds(_Part):
    """How a cover sheet is told from a body: terms of the documents themselves, and the classifier over features."""

    terms: Expression
    model: PageModel


class FieldWording(_Part):
    """A field in words: with its article, without one after a negation, and whether it is named or stated."""

    the: str
    a: str
    named: str


class DocumentWording(_Part):
    """A type of document in words: `a contract`, `this contract`."""

    a: str
    this: str


NO_FIELD = "none"  # class of a field model for values that are no field's


class KindModel(_Part):
    """Multinomial logistic regression over the words around the values of one kind.

    classes: the fields of the kind, and `none`. intercepts: one a class. weights: feature -> one a class.
    """

    classes: tuple[str, ...]
    intercepts: tuple[float, ...]
    weights: Mapping[str, tuple[float, ...]]

    @model_validator(mode="after")
    def _has_a_number_a_class(self) -> Self:
        for name, row in (("intercepts", self.intercepts), *self.weights.items()):
            if len(row) != len(self.classes):
                msg = f"{name} must hold a number for each of {len(self.classes)} classes, got {len(row)}; fit it again"
                raise ValueError(msg)
        return self


class FieldModel(_Part):
    """What tells the value of a field by the words around it, and what it was measured to do.

    trained_by: command that fitted it. documents, labels: that it was fitted to. margin: least lead of a value over the
    next one. words, words_margin: the same of the words alone, without what rules say; a kind that is not among them
    has the one lead only. filled, right: values given, and those that were right, on documents left out of the fit.
    """

    trained_by: str
    documents: int
    labels: int
    margin: Annotated[float, Field(ge=0.0, le=1.0)]
    filled: Annotated[int, Field(ge=0)]
    right: Annotated[int, Field(ge=0)]
    kinds: Mapping[ValueKind, KindModel]
    words: Mapping[ValueKind, KindModel] = {}
    words_margin: Annotated[float, Field(ge=-1.0, le=1.0)] = 0.0

    @model_validator(mode="after")
    def _has_the_same_classes_by_words(self) -> Self:
        for kind, model in self.words.items():
            if kind not in self.kinds or model.classes != self.kinds[kind].classes:
                msg = (
                    f"words.{kind} must have the classes of kinds.{kind}, got {', '.join(model.classes)}; fit it again"
                )
                raise ValueError(msg)
        return self

    @property
    def confidence(self) -> float:
        """Mean of the posterior of being right, Beta(1 + right, 1 + wrong), in (0, 1)."""
        return (self.right + 1.0) / (self.filled + 2.0)


class Wording(_Part):
    """How questions to the user are put in one language.

    fields: that documents state once. documents: by type; any_document: of another. families: several figures. values:
    as a user reads them; sections: as pages to read. written: values as a question is completed by them.
    """

    any_document: DocumentWording
    fields: Mapping[str, FieldWording] = {}
    documents: Mapping[str, DocumentWording] = {}
    families: Mapping[str, str] = {}
    values: Mapping[str, str] = {}
    sections: Mapping[str, str] = {}
    written: Mapping[str, str] = {}


class Pack(_Part):
    """What a trade calls things.

    Expressions over questions are matched as whole words in a text without accents, in small letters; those over
    documents in the text as it stands. Tables are ordered: the first entry that occurs wins.

    about: what the documents are, as a model is told. fields: that questions ask for, families behind their members.
    families: of figures. mentions: words in which a sentence states a figure of a family. intents: what is to be done.
    sections: kinds of section; named_sections: how a question names one, with a group. page, toc, whole, cited_part:
    scopes of pages; part: a part of a document; no_part: what looks like one. versions: old and new figures; now: the
    version in force; change: asks for both. wide, broad: asks what is said, or for a whole subject. roles, vague_role,
    somebody: persons. verb: of a question that asks for something. form_words: scope a question and say nothing about
    its subject; filler: content words that do neither; same: stems of words that mean one thing. language_words: that
    tell the language beside its small words. amounts: by language, nouns whose value is a number. later:
    words of a question about tables that speak of the newer figures. value_words: by kind of value (`amount`,
    `duration`, `person`, …), words by which a question asks for one. field_model: which value is which field, fitted to
    labelled documents; rules alone where there is none.
    """

    name: str
    about: str
    fields: Mapping[str, FieldTerms]
    families: Mapping[str, Family]
    mentions: TermTable
    intents: TermTable
    sections: TermTable
    named_sections: Expressions
    page: Expressions
    toc: Expressions
    whole: Expressions
    cited_part: Expressions
    part: Expression
    no_part: Expression
    documents: Documents
    versions: Versions
    now: Expressions
    change: Expressions
    wide: Expressions
    broad: Expressions
    roles: Mapping[str, Role]
    vague_role: VagueRole | None
    somebody: Expressions
    verb: Expressions
    form_words: Expressions
    filler: frozenset[str]
    same: Mapping[str, str]
    language_words: Mapping[str, frozenset[str]]
    amounts: Mapping[str, Expressions]
    later: Expressions = ()
    value_words: TermTable = {}
    figures: Figures
    contents_intro: Expression
    contents_title: Expression
    page_kind: PageKinds
    wording: Mapping[str, Wording]
    field_model: FieldModel | None = None

    def __hash__(self) -> int:
        """By content, so that what is read from a text may be kept by pack."""
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON: tables keep their order, defaults are left out."""
        text = json.dumps(_canonical_pack(self), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def stored(self) -> str | None:
        """Digest as trace, index and log have it; None of the generic pack, which names no trade."""
        return None if self.digest == GENERIC.digest else self.digest

    @cached_property
    def asked(self) -> TermTable:
        """Expressions of fields and families."""
        return {name: field.asked for name, field in self.fields.items()}

    @cached_property
    def readings(self) -> Mapping[str, FieldReading]:
        """How documents are read, of the fields that have a rule."""
        return {name: field.reading for name, field in self.fields.items() if field.reading is not None}

    @cached_property
    def heads(self) -> TermTable:
        """Expressions that put a figure into a family."""
        return {name: family.heads for name, family in self.families.items() if family.heads}

    @cached_property
    def role_terms(self) -> TermTable:
        """Expressions of roles."""
        return {name: role.asked for name, role in self.roles.items()}

    @cached_property
    def version_terms(self) -> TermTable:
        """Expressions of the old and the new version, by the value of the date scope."""
        return {version.value: version.asked for version in (self.versions.old, self.versions.new)}

    def family(self, field: str | None) -> str:
        """Family of a field, '' where it has none."""
        known = self.fields.get(field or "")
        return known.family if known else ""

    def own_words(self, field: str | None) -> Expressions:
        """Words of a field, else of its family, that say nothing further."""
        family, own = self.fields.get(self.family(field)), self.fields.get(field or "")
        return (family.own_words if family else ()) or (own.own_words if own else ())

    @model_validator(mode="after")
    def _refers_to_what_is_there(self) -> Self:
        for where, name, known in _references(self):
            if name not in known:
                msg = f"{where} must name one that exists, got {name!r}; write one of {', '.join(known)}"
                raise ValueError(msg)
        for name, reading in self.readings.items():
            if reading.right > reading.filled:
                msg = f"fields.{name}.reading.right must be at most filled, got {reading.right} of {reading.filled}"
                raise ValueError(msg)
        return self


def _references(pack: Pack) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Names that a pack refers to: where, the name, what there is."""
    fields, families = tuple(pack.fields), tuple(pack.families)
    for name, field in pack.fields.items():
        if field.family:
            yield f"fields.{name}.family", field.family, (*fields, *families)
    yield from ((f"mentions.{name}", name, families) for name in pack.mentions)
    yield from ((f"roles.{name}.field", role.field, fields) for name, role in pack.roles.items())
    for name, family in pack.families.items():
        if family.row_field:
            yield f"families.{name}.row_field", family.row_field, fields
        yield from ((f"families.{name}.reads.{kind}", field, fields) for kind, field in family.reads.items())
    if pack.vague_role is not None:
        yield "vague_role.field", pack.vague_role.field, fields
    for kind, model in (pack.field_model.kinds if pack.field_model is not None else {}).items():
        known = (NO_FIELD, *(name for name, reading in pack.readings.items() if reading.kind == kind))
        yield from ((f"field_model.kinds.{kind}.classes", name, known) for name in model.classes)


def _canonical_pack(value: Any) -> Any:  # noqa: ANN401 - whatever a pack holds
    if isinstance(value, BaseModel):
        kinds = type(value).model_fields
        stated = {name: getattr(value, name) for name in kinds}
        return {name: _canonical_pack(held) for name, held in stated.items() if held != kinds[name].default}
    if isinstance(value, Mapping):
        return [[name, _canonical_pack(held)] for name, held in value.items()]
    if isinstance(value, frozenset):
        return sorted(value)
    return [_canonical_pack(one) for one in value] if isinstance(value, tuple) else value


def pack_of(stated: Mapping[str, Any], where: Callable[[str], str] = lambda _: "pack") -> Pack:
    """Pack of what its files state, the rest filled in from the generic pack.

    Args:
      stated: key -> value. where: file that a path of keys stands in, for errors.

    Raises:
      ValueError: an unknown key or part, a reference to what is not there, a bad expression; names file, key and rule.
    """
    rows = dict(_bundled_pack())
    for key, value in stated.items():
        deep = key in MERGED and isinstance(value, Mapping)
        rows[key] = merge_packs(rows.get(key, {}), value) if deep else value
    parts = rows.pop("parts", {})
    if not isinstance(parts, Mapping):
        msg = f"{where('parts')}: parts must be a mapping of names to expressions, got {type(parts).__name__}."
        raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
    known = {"money": MONEY}
    for name, expression in parts.items():
        known[str(name)] = _fill_expressions(str(expression), known, f"parts.{name}", where)
    whole = {key: _expand_parts(value, known, key, where) for key, value in rows.items()}
    try:
        return Pack.model_validate(whole)
    except ValidationError as error:
        raise ValueError(" ".join(_problem(one, where) for one in error.errors())) from None


def merge_packs(base: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with the entries of another put over it, mapping by mapping."""
    rows = dict(base)
    for key, value in stated.items():
        deep = isinstance(value, Mapping) and isinstance(rows.get(key), Mapping)
        rows[key] = merge_packs(rows[key], value) if deep else value
    return rows


def _expand_parts(value: Any, parts: Mapping[str, str], path: str, where: Callable[[str], str]) -> Any:  # noqa: ANN401
    """A value with the named parts put into its expressions."""
    if path in _PLAIN_TEXT:
        return value
    if isinstance(value, str):
        return _fill_expressions(value, parts, path, where)
    if isinstance(value, Mapping):
        return {key: _expand_parts(held, parts, f"{path}.{key}", where) for key, held in value.items()}
    return [_expand_parts(one, parts, path, where) for one in value] if isinstance(value, list) else value


def _fill_expressions(text: str, parts: Mapping[str, str], path: str, where: Callable[[str], str]) -> str:
    def part(match: re.Match[str]) -> str:
        if match[1] not in parts:
            msg = f"{where(path)}: {path}: no part is called {match[1]!r}; write one of {', '.join(sorted(parts))}."
            raise ValueError(msg)
        return parts[match[1]]

    return _PART.sub(part, text)


def _problem(problem: Mapping[str, Any], where: Callable[[str], str]) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    file = where(path)
    if problem["type"] == "extra_forbidden":
        return f"{file}: {path}: unknown key; see datasets/README.md for what a pack holds."
    rule = str(problem["msg"]).removeprefix("Value error, ")
    if not path:
        return f"{file}: {rule}."
    return f"{file}: {path}: {rule[0].lower() + rule[1:]}, got {str(problem['input'])[:80]!r}."


@cache
def _bundled_pack() -> Mapping[str, Any]:
    return dict(yaml.safe_load(files("raglab").joinpath("generic_pack.yaml").read_text(encoding="utf-8")))


GENERIC = pack_of({}, lambda _: "raglab/generic_pack.yaml")  # of no trade
BUNDLED: Mapping[str, Pack] = {GENERIC.name: GENERIC}  # packs that ship with the package
