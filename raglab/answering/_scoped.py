"""What the documents that a question is asked of offer: products, roles, versions, figures, kinds of section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raglab.answering._asked_about import about
from raglab.answering._asked_kinds import KINDS_OF_EXCESS, KINDS_OF_LIMIT, KINDS_OF_PERIOD
from raglab.answering._asked_scopes import SAME, SECTIONS
from raglab.answering._asked_words import FAMILY, FIELDS
from raglab.answering._figures import Figure, figures, section
from raglab.answering._phrases import first, found, plain, stems
from raglab.answering._vocabulary import Name, named, names_of
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
