"""Growth of an index (shore): documents added, replaced and removed while others answer from it.

Only what is new is encoded. The new version is written beside the old one and takes its place at
once (see `raglab.live.index_folder`); everything else is derived from the corpus when it is opened,
as after `build_index`. Of a large index, which stands on disk, each change writes all shards, and
trains the FAISS index and BM25, anew. The kind of an index that was chosen by its size is chosen
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from os import W_OK, access
from pathlib import Path
from typing import Literal, NamedTuple

from raglab import resolver
from raglab.arguments.user_warnings import warn_user
from raglab.decision.document_names import chunk_documents
from raglab.live.index_folder import (
    EMBEDDINGS,
    Index,
    OvertakenError,
    index_settings,
    read_index,
    write_index,
)
from raglab.live.trace_building import (
    RetrievalSettings,
    retriever,
    universe,
    warn_of_cut_chunks,
    warn_of_pictures,
)
from raglab.retrieval.corpus_language import warn_of_language
from raglab.retrieval.dense import (
    LEAST_CODED,
    EmbeddingCache,
    default_cache,
    drop_pictures,
    drop_texts,
)
from raglab.retrieval.index_kinds import STORED_KINDS
from raglab.retrieval.indexes import ANCHOR
from raglab.store.files import Where, input_error, shown_value
from raglab.store.loaders import Documents, load_documents
from raglab.store.pictures import picture_digest
from raglab.values import Chunk, Corpus, document_path

_SHOWN = 3  # names in a message


class IndexChange(NamedTuple):
    """What a change made of an index.

    Sources that are new, that have a new content, and that are gone.

    fingerprint: of the index now. n_chunks: that it has.
    """

    fingerprint: str
    n_chunks: int
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class _Version(NamedTuple):
    """A corpus that is to take an index's place, and what it changes."""

    corpus: Corpus
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def add_documents(
    place: str | Path,
    documents: Documents,
    *,
    replace: bool = False,
    follow_links: bool = False,
    encoding: str | None = None,
    cache: EmbeddingCache | Literal["default"] | None = "default",
) -> IndexChange:
    """Add documents to the index in a folder; those that it holds as they are change nothing.

    Where the documents of the index stand in the order of their sources, as those of a folder do,
    the new ones take their places among them: the index is then the one that `build_index` makes of
    all of them, but for the last bits of embeddings, which hang on what is encoded beside a text.
    Else they stand at the end.

    Of a large index only what is new is encoded, but its files are all made anew, which takes as
    long as building them from known embeddings. An index of `auto` may change its kind; of one that
    was named it stays.

    Args:
      place: folder of the index.
      documents: what `load_documents` takes.
      replace: whether a document with the source of one that is there takes its place.
      follow_links: whether links inside a folder of documents are followed.
      encoding: of the documents, as of `load_corpus`.
      cache: from which embeddings are copied where it has them.

    Raises:
      InputError: no index there, one that cannot be written, or documents that cannot be read.
      ValueError: a document that is there with another content, unless it is to be replaced; or no
        index of `auto` fits its memory any more.
    """
    encoder = index_settings(Path(place)).encoder
    new = load_documents(documents, encoder=encoder, follow_links=follow_links, encoding=encoding)
    behind = default_cache() if cache == "default" else cache

    return _change_index(
        Path(place),
        lambda index: _with_documents(index, new, replace=replace),
        behind,
        new.pictures,
    )


def remove_documents(place: str | Path, names: str | Sequence[str]) -> IndexChange:
    """Remove documents from the index in a folder, and their embeddings.

    The large indexes that hold them are deleted with them; whoever has one open answers from it
    until they close it.

    Args:
      place: folder of the index.
      names: sources, or file names where one document alone has them.

    Raises:
      InputError: no index there, or one that cannot be written.
      ValueError: a name of no document or of several, or of all that there are.
    """
    named = (names,) if isinstance(names, str) else tuple(names)
    return _change_index(Path(place), lambda index: _without_documents(index, named))


def embed_corpus(
    corpus: Corpus, place: Path, wanted: RetrievalSettings, behind: EmbeddingCache | None
) -> Path | None:
    """Fill the embeddings of a folder with those of a corpus, and say what of it is in none.

    Returns: the folder of its large index; None of a small one.
    """
    ready = retriever(corpus, wanted, EmbeddingCache(place / EMBEDDINGS, behind))
    warn_of_cut_chunks(ready)
    warn_of_language([chunk.text for chunk in corpus.chunks], ready.encoder.name, wanted.arms)
    warn_of_pictures(ready, wanted)
    return ready.indexes.folder


def _change_index(
    place: Path,
    change: Callable[[Index], _Version],
    behind: EmbeddingCache | None = None,
    pictures: Mapping[str, str] | None = None,
) -> IndexChange:
    """Replace the index by a changed one; retry where another process replaced it first.

    Args:
      behind: cache from which embeddings are copied.
      pictures: files of the new chunks that are pictures, by chunk.
    """
    # No lock while documents are encoded, which may take hours: who was overtaken starts from the
    # new index.
    while True:
        index = read_index(place)
        if not access(place, W_OK):
            rule, remedy = (
                "an index must be writable for its documents to change",
                "give the right, or copy the folder",
            )
            raise input_error(Where(str(place)), rule, remedy, "a folder for reading alone")
        version = change(index)
        stated = IndexChange(index.fingerprint, len(index.corpus.chunks), *version[1:])
        # Nothing is written where nothing changes: the index would remember a change that was none.
        if not any(version[1:]):
            return stated
        wanted = _sized_again(index, version.corpus)
        try:
            fingerprint = write_index(
                version.corpus,
                place,
                wanted,
                index.head.pack,
                _filling(index, version, wanted, place, behind, pictures or {}),
                auto_mb=index.head.auto_mb,
                base=index.head,
                documents=_other_meaning(index.corpus.chunks, version),
                removes=bool(version.replaced or version.removed),
            )
        except OvertakenError:
            continue
        # Embeddings go only now: until the new version stands, the old one is opened from them.
        if version.replaced or version.removed:
            _forget(place, index, version.corpus)
        return stated._replace(fingerprint=fingerprint, n_chunks=len(version.corpus.chunks))


def _filling(
    index: Index,
    version: _Version,
    wanted: RetrievalSettings,
    place: Path,
    behind: EmbeddingCache | None,
    pictures: Mapping[str, str],
) -> Callable[[Corpus], Path | None]:
    """What fills the embeddings of a folder for a new version, as `embed_corpus` does.

    Of a small index they are those of the new documents; they are kept by content, so that an index
    which nobody switches to only has some too many. A large index takes long to build: it stands
    before the new version takes its place, not when that is opened. One that is large no more lacks
    the embeddings of tokens that late interaction reads, so that all of it is looked at as well.
    """
    whole = wanted.index in STORED_KINDS or wanted.index != index.settings.index
    fresh = {*version.added, *version.replaced}

    def fill(stored: Corpus) -> Path | None:
        if whole:
            return embed_corpus(stored._replace(pictures=pictures), place, wanted, behind)
        chunks = tuple(chunk for chunk in stored.chunks if chunk.source in fresh)
        if chunks:
            # The embeddings alone are wanted, and no index of some documents.
            embed_corpus(
                Corpus(stored.name, chunks, pictures), place, wanted._replace(index="flat"), behind
            )
        return None

    return fill


def _sized_again(index: Index, corpus: Corpus) -> RetrievalSettings:
    """Settings of an index with the kind that its new corpus gets.

    Warns:
      UserWarning: a named kind of product-quantised vectors has too few of them left: it is exact
        from now on.
    """
    settings = index.settings
    if index.head.auto_mb is not None:
        return settings._replace(index="auto", index_mb=index.head.auto_mb).sized(corpus)
    if settings.index == "ivfpq" and len(corpus.chunks) < LEAST_CODED:
        rule = (
            f"an index of kind ivfpq must have {LEAST_CODED} chunks or more, got "
            f"{len(corpus.chunks)}"
        )
        warn_user(f"{rule}; it is exact (flat) from now on: index the documents anew for another.")
        return settings._replace(index="flat")
    return settings.sized(corpus)


def _with_documents(index: Index, new: Corpus, *, replace: bool) -> _Version:
    """The corpus with more documents."""
    old, there = _by_source(index.corpus.chunks), _by_source(new.chunks)
    differing = [source for source in there if source in old and old[source] != there[source]]
    if differing and not replace:
        value = ", ".join(map(shown_value, differing[:_SHOWN])) + (
            " and more" if len(differing) > _SHOWN else ""
        )
        msg = (
            "documents must be new, or as the index holds them, got others of the same source: "
            f"{value}; "
        )
        raise ValueError(msg + "replace them (replace=True), or rename them.")
    added = [source for source in there if source not in old]
    fresh = {*added, *differing}
    rest = [chunk for chunk in index.corpus.chunks if chunk.source not in fresh]
    chunks = [*rest, *(chunk for chunk in new.chunks if chunk.source in fresh)]
    # A folder's documents stand in the order of their sources; whoever finds them so keeps them so.
    if all(before.source <= after.source for before, after in pairwise(index.corpus.chunks)):
        chunks.sort(key=lambda chunk: chunk.source)
    return _Version(Corpus(index.corpus.name, tuple(chunks)), tuple(added), tuple(differing))


def _without_documents(index: Index, names: Iterable[str]) -> _Version:
    """The corpus without some documents."""
    sources = list(_by_source(index.corpus.chunks))
    files: dict[str, list[str]] = {}
    for chunk in index.corpus.chunks:
        if chunk.source not in files.setdefault(chunk.file_name, []):
            files[chunk.file_name].append(chunk.source)
    gone = [_named_source(name, sources, files) for name in names]
    rest = tuple(chunk for chunk in index.corpus.chunks if chunk.source not in set(gone))
    if not rest:
        msg = (
            "an index must keep a document, got the names of all; delete its folder, or add "
            "others first."
        )
        raise ValueError(msg)
    return _Version(Corpus(index.corpus.name, rest), removed=tuple(dict.fromkeys(gone)))


def _named_source(name: str, sources: Collection[str], files: Mapping[str, Sequence[str]]) -> str:
    """Source of the document that a name means."""
    if name in sources:
        return name
    meant = files.get(name, ())
    if len(meant) == 1:
        return meant[0]
    if meant:
        value = f"{shown_value(name)}, which {len(meant)} have"
        msg = (
            f"a file name must be that of one document, got {value}; give one of "
            f"{', '.join(meant[:_SHOWN])}."
        )
        raise ValueError(msg)
    near = get_close_matches(name, [*sources, *files], _SHOWN) if isinstance(name, str) else []
    remedy = (
        f"did you mean {' or '.join(near)}"
        if near
        else f"there is {', '.join([*sources][:_SHOWN])}"
    )
    msg = f"names must be of documents of the index, got {shown_value(name)}; {remedy}."
    raise ValueError(msg)


def _by_source(chunks: Iterable[Chunk]) -> dict[str, list[Chunk]]:
    """Chunks of each document."""
    documents: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        documents.setdefault(chunk.source, []).append(chunk)
    return documents


def _other_meaning(old: Sequence[Chunk], version: _Version) -> set[str]:
    """Documents that are something else after a change: they are changed or gone."""
    moved = {*version.added, *version.replaced, *version.removed}
    return chunk_documents(old) & set(map(document_path, moved))


def _forget(place: Path, index: Index, corpus: Corpus) -> None:
    """Take out the embeddings of texts and pictures that no document has any more."""
    name, cache = index.settings.parameters(None)["encoder"], EmbeddingCache(place / EMBEDDINGS)
    texts, current_texts = (
        _embedded_texts(version, index.settings) for version in (index.corpus, corpus)
    )
    drop_texts(name, texts - current_texts, cache)
    pictures, shown = (
        set(map(picture_digest, version.chunks)) for version in (index.corpus, corpus)
    )
    drop_pictures(name, filter(None, pictures - shown), cache)


def _embedded_texts(corpus: Corpus, wanted: RetrievalSettings) -> set[str]:
    """Texts of a corpus that are embedded."""
    chunks = universe(corpus, wanted)
    signatures = (
        resolver.signature(c.tags, c.file_name, strict=strict)
        for c in chunks
        for strict in (False, True)
    )
    bodies = [chunk.full_text for chunk in chunks]
    return {*bodies, *(text[:ANCHOR] for text in bodies), *map(resolver.rendered, signatures)}
