"""Five gaps, what documents offer, narrowing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.answering.contents import contents_pages
from raglab.answering.fields import FIELDS as DOCUMENT_FIELDS
from raglab.answering.question_terms import (
    BROAD,
    CHANGE,
    FAMILY,
    FIELDS,
    KINDS_OF_EXCESS,
    KINDS_OF_LIMIT,
    KINDS_OF_PERIOD,
    ON_A_PAGE,
    PART,
    ROLE_OF,
    ROLES,
    SAME,
    SECTIONS,
    SOMEBODY,
    VAGUE_ROLE,
    VERB,
    WIDE,
)
from raglab.answering.question_vocabulary import (
    KINDS,
    LEAST,
    Failure,
    Figure,
    Name,
    ParsedQuestion,
    about,
    figures,
    first,
    found,
    named,
    names_of,
    parties,
    plain,
    section,
    stems,
)
from raglab.answering.question_wording import VALUES, WRITTEN, asked
from raglab.text import words
from raglab.values import Chunk

SPOKEN_OF = 0.6  # share of what a question is about that a passage must name to speak of it
NEARLY = 0.75  # of the best share, with which another product speaks of a question as well
HARDLY = 0.3  # share below which none does
SHORT = 4  # letters of a word that is met by its longer forms: `gust` by `gusting`
SUMS = ("schedule", "endorsement")  # documents whose figures another version replaces


class Scoped(NamedTuple):
    """A question beside its documents.

    chunks: of the documents of the products it may mean. field, family: what it asks for, '' where it names none.
    about: stems of what it is about beside that. products: that its names leave open, in the order of the documents.
    names: products, clients and insurers that it names.
    """

    chunks: tuple[Chunk, ...]
    field: str
    family: str
    about: tuple[str, ...]
    products: tuple[str, ...]
    names: tuple[Name, ...]


def scoped_to(question: str, chunks: Sequence[Chunk], field: str | None) -> Scoped:
    """A question beside the documents that it is asked of, its names taken for what they leave of them."""
    met = named(question, names_of(chunks))
    products = _products(chunks, met)
    kept = tuple(chunk for chunk in chunks if chunk.tags.get("product", "") in products) or tuple(chunks)
    asked = about(question, [name.words for name in met], field=field)
    known = frozenset(stem for chunk in kept for stem in _stems(chunk.text))
    left = tuple(stem for stem in asked if stem in known)  # a word that stands nowhere tells no passage from another
    return Scoped(kept, field or "", FAMILY.get(field or "", ""), left, products, met)


def _products(chunks: Sequence[Chunk], met: Sequence[Name]) -> tuple[str, ...]:
    """Products that the documents are of, those left that the names of a question allow."""
    products = tuple(dict.fromkeys(chunk.tags.get("product", "") for chunk in chunks))
    for kind in ("product", "client", "vendor"):
        whose = [name for name in met if name.kind == kind]
        if not whose:
            continue
        own = {
            chunk.tags.get("product", "")
            for chunk in chunks
            for name in whose
            if (kind == "client" and name.alias in plain(chunk.text)) or name.name == chunk.tags.get(kind, "")
        }
        products = tuple(product for product in products if product in own) or products
    return products


def speaks(chunk: Chunk, asked: Sequence[str]) -> float:
    """Share of the stems of a question that a passage has, in [0, 1]; 1 where it has none to ask for."""
    if not asked:
        return 1.0
    own = _stems(chunk.text)
    return sum(stem in own for stem in asked) / len(asked)


@lru_cache(maxsize=4096)
def _stems(text: str) -> frozenset[str]:
    own = stems(text, filler=frozenset())
    return frozenset((*own, *(stem[:SHORT] for stem in own), *(SAME[stem] for stem in own if stem in SAME)))


def speaking(scoped: Scoped) -> tuple[str, ...]:
    """Products whose documents speak of a question about as much as those that speak of it most."""
    shares = {
        product: spoken_by([c for c in scoped.chunks if c.tags.get("product", "") == product], scoped.about)
        for product in scoped.products
    }
    bar = max(HARDLY, NEARLY * max(shares.values(), default=0.0))
    return tuple(product for product, share in shares.items() if share >= bar)


def spoken_by(chunks: Sequence[Chunk], asked: Sequence[str]) -> float:
    """How much of what a question is about the best of some passages names, in [0, 1]; 0 where there is none."""
    return max((speaks(chunk, asked) for chunk in chunks), default=0.0)


def matched(scoped: Scoped) -> tuple[Figure, ...]:
    """Figures of the family that the question may mean: those that have most of what it is about, at least half of it.

    Where it is about nothing further, all of them. Rows of tables are preferred to sentences.
    """
    rows = figures(scoped.chunks, scoped.family)
    if not scoped.about:
        return rows + (figures(scoped.chunks, "kind") if scoped.family == "limit" else ())
    asked = set(scoped.about)
    tabled = [figure for figure in rows if figure.table]
    for listed in (tabled, rows):
        met = [len(asked & _stems(figure.context)) for figure in listed]
        best = max(met, default=0)
        if 2 * best >= len(asked):
            return tuple(figure for figure, n in zip(listed, met, strict=True) if n == best)
    return ()


def choices(listed: Sequence[Figure], family: str, *, rows: bool = False) -> tuple[str, ...]:
    """Kinds of figure among which one would have to choose; () where all have one value.

    Args:
      listed: figures of the family. rows: whether rows of one kind and several values are told apart by their labels.
    """
    current = [figure for figure in listed if figure.version != "old"]
    kinds = dict.fromkeys(kind for figure in current for kind in _KIND_OF[family](figure))
    if len({plain(figure.value).strip() for figure in current}) < 2:
        return ()
    if rows and len(kinds) == 1:
        tabled = [figure for figure in current if figure.table and not figure.version]
        own = [figure for figure in tabled if figure.section == tabled[0].section]
        kinds = dict.fromkeys(plain(figure.label) for figure in own)
        if len(kinds) == 1:
            kinds = dict.fromkeys(plain(figure.head) for figure in own)
    return tuple(kinds)


_ORDER = {
    "limit": ("limit_per_occurrence", "aggregate_limit", "sub_limit", "limit_per_item"),
    "excess": ("standard",),
}


def _kinds_of_limit(figure: Figure) -> tuple[str, ...]:
    if not figure.table:
        return tuple(kind for kind, words in KINDS_OF_LIMIT.items() if found(words, figure.label)) or ("sub_limit",)
    return (
        first(KINDS_OF_LIMIT, f"{figure.head} {figure.basis}") or first(KINDS_OF_LIMIT, figure.label) or "sub_limit",
    )


def _kinds_of_excess(figure: Figure) -> tuple[str, ...]:
    if not figure.table:
        return (first(KINDS_OF_EXCESS, figure.label) or "standard",)
    return (first(KINDS_OF_EXCESS, f"{figure.label} {figure.head}") or plain(figure.label),)


def _kinds_of_period(figure: Figure) -> tuple[str, ...]:
    kind = first(KINDS_OF_PERIOD, figure.label)
    return (kind,) if kind else ()


_KIND_OF: Mapping[str, Callable[[Figure], tuple[str, ...]]] = {
    "limit": _kinds_of_limit,
    "excess": _kinds_of_excess,
    "period": _kinds_of_period,
}


def several(scoped: Scoped) -> tuple[str, ...]:
    """Kinds of figure of the family among which one would have to choose within one document."""
    listed = matched(scoped)
    if scoped.field == "sum_insured":
        listed = tuple(figure for figure in listed if found(FIELDS["sum_insured"], figure.head))
    rows = len(scoped.products) < 2 and (bool(scoped.about) or scoped.field == "sum_insured")
    files = dict.fromkeys(scoped.chunks[figure.at].file_name for figure in listed)
    kinds: dict[str, None] = {}
    for file in files:
        own = [figure for figure in listed if scoped.chunks[figure.at].file_name == file]
        offered = choices(own, scoped.family, rows=rows)
        kinds |= dict.fromkeys(offered if len(offered) > 1 else ())
    order = list(_ORDER.get(scoped.family, ()))
    return tuple(sorted(kinds, key=lambda kind: order.index(kind) if kind in order else len(order)))


def versions(scoped: Scoped) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...]]:
    """Passages of the older and of the newer sums of one product; both () where there is one version alone."""
    for product in scoped.products:
        own = [c for c in scoped.chunks if c.tags.get("product", "") == product and c.tags.get("doc_type") in SUMS]
        stamps = sorted({stamp(chunk) for chunk in own})
        if len(stamps) > 1:
            old = tuple(chunk for chunk in own if stamp(chunk) == stamps[0])
            return old, tuple(chunk for chunk in own if stamp(chunk) == stamps[-1])
    return (), ()


def stamp(chunk: Chunk) -> tuple[str, str]:
    """When the document of a passage was made: its version, then its date."""
    return chunk.tags.get("version", ""), chunk.tags.get("date", "")


def changed(scoped: Scoped) -> tuple[Figure, ...]:
    """Figures a question means that one document, no endorsement, states as they were and as they became."""
    asked = set(scoped.about)
    return tuple(
        figure
        for figure in figures(scoped.chunks)
        if figure.version and scoped.chunks[figure.at].tags.get("doc_type") != "endorsement"
        if asked and asked <= _stems(f"{figure.label} {figure.head}")
    )


def section_kinds(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    """Kinds of section that passages are of, in the order of the tables; page numbers where fewer than two are told."""
    told = {kind for chunk in chunks if (kind := section_kind(chunk))}
    kinds = tuple(kind for kind in SECTIONS if kind in told)
    return kinds if len(kinds) > 1 else tuple(dict.fromkeys(str(chunk.page) for chunk in chunks if chunk.page))


def section_kind(chunk: Chunk) -> str | None:
    """Kind of section that a passage stands in, by its heading."""
    return first(SECTIONS, section(chunk.text))


PAGES = ("1", "toc", "document")  # where a field that documents name once may stand
TASKS = ("cite", "summarise", "extract_conditions")
VERSIONS = ("renewal", "old schedule")
MOST = 6  # candidates of a failure
_BARE = 4  # words of a question that names a thing and asks nothing
_SHORT = 12  # words of a question that names a part of a document and hardly more
_ROLE = tuple(expression for expressions in ROLES.values() for expression in expressions)
_OF_ONE_KIND = ("aggregate_limit", "limit_per_occurrence", "cancellation_notice")  # fields that leave nothing to choose
_CHOSEN = ("limit", "excess", "period")  # families of which one document states several figures


def failures(
    parsed: ParsedQuestion,
    question: str,
    chunks: Sequence[Chunk],
    *,
    least: float = LEAST,
    tried: Sequence[str] = (),
) -> tuple[Failure, ...]:
    """What a question leaves out of the documents it is asked of, in the order of `KINDS`; () where nothing is missing.

    At most the first is to be asked.

    Args:
      parsed: the question as it was read. question: as it was asked.
      chunks: of the documents it is asked of. least: confidence below which a slot is missing, in [0, 1].
      tried: values that were tried and gave nothing: no candidates any more.

    Source: rule S5.1; the clarification article, section 1.

    Example:
      >>> from raglab.answering.question_parsing import parse
      >>> from raglab.answering.question_vocabulary import Vocabulary
      >>> asks = "Who is the insurer?"
      >>> failures(parse(asks, Vocabulary()), asks, [Chunk("a", "The insurer is Acme.", "a.md", 1)])[0].candidates
      ('1', 'toc', 'document')
    """
    if not chunks:
        return ()
    scoped = scoped_to(question, chunks, parsed.said("target_field", least))
    made = (failure for kind in KINDS for failure in _RULES[kind](parsed, question, scoped, least))
    left = (
        failure._replace(candidates=tuple(value for value in failure.candidates if value not in tried)[:MOST])
        for failure in made
    )
    doctype = parsed.said("doctype", least) or "contract"
    last = tried[-1] if tried else None
    return tuple(
        failure._replace(
            question_to_user=asked(
                failure, failure.candidates[0], failed=last, language=parsed.language, doctype=doctype
            )
        )
        for failure in left
        if failure.candidates
    )


def _field_type(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """A family is asked for, and the documents state several of it that the question does not tell apart."""
    if parsed.said("intent", least) == "compare" or scoped.family not in _CHOSEN or scoped.field in _OF_ONE_KIND:
        return
    if scoped.about and (scoped.family == "period" or scoped.field == "sum_insured"):
        return
    kinds = several(scoped)
    named = first(KINDS_OF_EXCESS, question) if scoped.family == "excess" else None
    if named in kinds and not scoped.about:
        return
    if len(kinds) > 1:
        key = scoped.field if scoped.field == "sum_insured" else scoped.family
        yield Failure("field_type", key, kinds, "", f"one document states {len(kinds)} kinds of it")


def _implicit_entity(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """Several products are left open, or a word that may mean any of several roles."""
    compared = parsed.said("intent", least) == "compare" or sum(name.kind == "product" for name in scoped.names) > 1
    if len(scoped.products) > 1 and not compared:
        products = speaking(scoped)
        if len(products) > 1:
            key = f"{scoped.field or 'answer'}:product"
            yield Failure(
                "implicit_entity", key, products, "", f"{len(products)} products are in scope and none is named"
            )
            return
    held = {role for role, _, _ in parties(scoped.chunks)}
    roles = tuple(role for role in ROLES if role in held)
    bare = len(words(question)) <= _BARE and not found(VERB, question)
    vague = scoped.field == "policyholder_name" and found(VAGUE_ROLE, question)
    named_insured = found((r"policy ?-?holders?|souscript\w+|preneur",), question)
    asked_for = vague and (bare or not named_insured) and not scoped.about
    somebody = parsed.said("intent", least) == "check" and found(SOMEBODY, question) and not found(_ROLE, question)
    nobody = not any(name.kind == "client" for name in scoped.names)
    if len(roles) > 1 and (asked_for or (somebody and nobody)):
        yield Failure("implicit_entity", "insured:role", roles, "", f"the documents name {len(roles)} roles")


def _date_scope(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """Old and new sums are in scope, both speak of what is asked, and no date tells which applies."""
    dated = parsed.said("date_scope", least) is not None or parsed.said("intent", least) == "compare"
    if dated or found(CHANGE, question) or scoped.field in ON_A_PAGE or found((*WIDE, *BROAD), question):
        return
    old, new = versions(scoped)
    others = [c for c in scoped.chunks if c not in old and c not in new]
    both = min(spoken_by(old, scoped.about), spoken_by(new, scoped.about))
    if (both >= SPOKEN_OF and both >= spoken_by(others, scoped.about)) or changed(scoped):
        key = f"{scoped.family or scoped.field or 'figure'}:date"
        yield Failure("date_scope", key, VERSIONS, "", "an old version and its renewal both speak of it")


def _intent(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """A part of a document is named, and nothing said of what to do with it."""
    short = not scoped.field and len(words(question)) <= _SHORT
    if short and parsed.said("intent", least) is None and found((PART,), question) and not found(VERB, question):
        yield Failure("intent", "section:intent", TASKS, "", "a part of the document is named without a task")


def _page_scope(parsed: ParsedQuestion, question: str, scoped: Scoped, least: float) -> Iterator[Failure]:
    """A field without a page to look on, or a question what is said without what for."""
    if parsed.said("page_scope", least) is not None:
        return
    if scoped.field in ON_A_PAGE and not scoped.about:
        yield Failure("page_scope", scoped.field, PAGES, "", "no page is named")
        return
    if scoped.field and not found(BROAD, question):
        return
    if not found((*WIDE, *BROAD), question):
        return
    passages = [chunk for chunk in scoped.chunks if speaks(chunk, scoped.about) >= SPOKEN_OF]
    if len({(chunk.source, chunk.page) for chunk in passages}) > 1:
        kinds = section_kinds(passages)
        values = (*kinds[: MOST - 1], "document")
        yield Failure("page_scope", "section", values, "", f"{len(passages)} passages speak of it")


Rule = Callable[[ParsedQuestion, str, Scoped, float], Iterator[Failure]]
_RULES: Mapping[str, Rule] = {
    "field_type": _field_type,
    "implicit_entity": _implicit_entity,
    "date_scope": _date_scope,
    "intent": _intent,
    "page_scope": _page_scope,
}


_TASKS = {
    "cite": ("Quote", "Citer"),
    "summarise": ("Summarise", "Résumer"),
    "extract_conditions": ("Extract the conditions of", "Extraire les conditions de"),
}


class Applied(NamedTuple):
    """A request narrowed by a value.

    question: with the words of the value where the value is no scope. documents: `file` or `file#page`; () where the
    documents have nothing that the value names, which is as good as a field that comes back empty. field: key of the
    extractor's rule, None where no rule reads it.
    """

    question: str
    documents: tuple[str, ...]
    field: str | None


def applied(failure: Failure, value: str, question: str, parsed: ParsedQuestion, chunks: Sequence[Chunk]) -> Applied:
    """The request that a value of a failure makes of a question.

    Args:
      failure: what was missing. value: one of its candidates, or what the user named. question: as it was asked.
      parsed: as it was read. chunks: of the documents it was asked of.

    Raises:
      ValueError: the value is empty, or the failure of no known kind.

    Example:
      >>> pages = [Chunk("a#1", "The insurer is Acme.", "a.md", 1), Chunk("a#2", "Excesses", "a.md", 2)]
      >>> missing = Failure("page_scope", "insurer_name", ("1", "toc", "document"), "", "")
      >>> applied(missing, "1", "Who is the insurer?", ParsedQuestion(), pages).documents
      ('a.md#1',)
    """
    if not value.strip() or failure.kind not in _BY_KIND:
        msg = (
            f"a value of a known failure must be given, got {value!r} for {failure.kind!r}; take one of its candidates."
        )
        raise ValueError(msg)
    scoped = scoped_to(question, chunks, parsed.said("target_field"))
    return _BY_KIND[failure.kind](failure, value.strip(), question, parsed, scoped)


def _files(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.file_name for chunk in chunks))


def _pages(chunks: Sequence[Chunk]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chunk.shown for chunk in chunks))


def _rule(field: str | None) -> str | None:
    return field if field in DOCUMENT_FIELDS else None


def _with(question: str, words: str) -> str:
    """A question with further words in brackets, before its mark."""
    bare = question.rstrip(" ?.!")
    return f"{bare} ({words}){question[len(bare) :]}"


def _written(value: str, parsed: ParsedQuestion) -> str:
    pair = WRITTEN.get(value) or VALUES.get(value)
    return pair[parsed.language == "fr"] if pair else value


def _applied_page_scope(failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped) -> Applied:
    del parsed
    field = _rule(failure.target_field)
    if value == "document":
        return Applied(question, _files(scoped.chunks), field)
    if value == "toc":
        documents = tuple(
            f"{file}#{page}"
            for file in _files(scoped.chunks)
            for page in contents_pages(
                failure.target_field, [c for c in scoped.chunks if c.file_name == file], " ".join(scoped.about)
            )
        )
        return Applied(question, documents, field)
    if value.isdigit():
        return Applied(question, _pages([c for c in scoped.chunks if c.page == int(value)]), field)
    of_kind = [chunk for chunk in scoped.chunks if section_kind(chunk) == value]
    speaking = [chunk for chunk in of_kind if speaks(chunk, scoped.about) >= SPOKEN_OF]
    return Applied(question, _pages(speaking or of_kind), field)


def _applied_field_type(failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped) -> Applied:
    family = {"excess": "deductible", "limit": "sub_limit", "period": "cancellation_notice"}.get(failure.target_field)
    if failure.target_field == "period" and value != "cancellation":
        family = None
    field = value if value in DOCUMENT_FIELDS else family
    return Applied(_with(question, _written(value, parsed)), _files(scoped.chunks), _rule(field))


def _applied_date_scope(failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped) -> Applied:
    del failure
    old, new = versions(scoped)
    field = _rule(parsed.said("target_field"))
    if not old:  # one document states both
        heads = dict.fromkeys(
            figure.head for figure in changed(scoped) if figure.version == ("old" if value == "old schedule" else "new")
        )
        return Applied(_with(question, next(iter(heads), _written(value, parsed))), _files(scoped.chunks), field)
    stamped = {"renewal": new, "old schedule": old}.get(value)
    if stamped is None:
        years = [c for c in (*old, *new) if c.tags.get("doc_type") in SUMS and value[:4] in stamp(c)]
        stamped = tuple(years) or new
    return Applied(_with(question, _written(value, parsed)), _files(stamped), field)


def _applied_implicit_entity(
    failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped
) -> Applied:
    if failure.target_field.endswith(":role"):
        field = ROLE_OF.get(value)
        return Applied(_with(question, _written(value, parsed)), _files(scoped.chunks), _rule(field))
    own = [chunk for chunk in scoped.chunks if chunk.tags.get("product", "") == value]
    return Applied(_with(question, value), _files(own), _rule(parsed.said("target_field")))


def _applied_intent(failure: Failure, value: str, question: str, parsed: ParsedQuestion, scoped: Scoped) -> Applied:
    del failure
    task = _TASKS.get(value, (value, value))[parsed.language == "fr"]
    return Applied(f"{task} {question}", _files(scoped.chunks), None)


_BY_KIND = {
    "field_type": _applied_field_type,
    "implicit_entity": _applied_implicit_entity,
    "date_scope": _applied_date_scope,
    "intent": _applied_intent,
    "page_scope": _applied_page_scope,
}
