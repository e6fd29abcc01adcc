"""Index folder (shore): `build_index` writes and `System.open` reads it, checked, swapped whole.

`index.json` is the one point at which an index changes: it names its corpus by content, so that
whatever is stopped leaves the old index or the new one. Embeddings beside it are by content too,
and made again where they are lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from raglab.extension_points import extensions
from raglab.live.retriever import RetrievalSettings, check_settings
from raglab.live.trace_building import index_fingerprint
from raglab.retrieval.rewriting import Rewriter
from raglab.store.files import (
    InputError,
    Where,
    input_error,
    locked,
    read_json,
    shown_value,
    write_text,
)
from raglab.store.loaders import hash_corpus, load_corpus, save_corpus
from raglab.values import SCHEMA_VERSION, Corpus
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import visible

INDEX, EMBEDDINGS, CACHE, LOCK = "index.json", "embeddings.sqlite", "cache", "index.lock"
_CORPORA = re.compile(r"corpus-[0-9a-f]{16}\.jsonl")
_MAX_BYTES = 2**20
_WRITTEN = "as raglab wrote it"
_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True)


class IndexHead(BaseModel):
    """Content of index.json.

    fingerprint: of corpus, models and settings. corpus: its name. pack: hash of the pack that the
    index is for; None fits any. auto_mb, changes: of version 0.1.0, not read. digest: SHA-256 of
    the canonical JSON of all other fields.
    """

    model_config = _STRICT

    schema_version: int
    fingerprint: str
    corpus: str
    n_chunks: int = Field(ge=1)
    corpus_hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    settings: RetrievalSettings
    auto_mb: float | None = Field(default=None, gt=0.0)
    pack: str | None = None
    changes: list[Any] = []
    digest: str


class Index(NamedTuple):
    """An index as its folder states it.

    fingerprint: under the rewriter that it was read for. head: as it stands in the folder.
    """

    corpus: Corpus
    settings: RetrievalSettings
    fingerprint: str
    head: IndexHead


def read_index(place: Path, rewriter: Rewriter | None = None) -> Index:
    """Index of a folder.

    Args:
      rewriter: of questions, which is part of the fingerprint; None is that of the settings.

    Raises:
      InputError: no index there, or one that was altered, damaged, or made by another version or
        with other models.
    """
    head, corpus = _head(place), None
    while corpus is None:
        try:
            corpus = _corpus_of(head, place)
        except InputError:
            # another process may have put a new index in its place between the two
            last, head = head, _head(place)
            if last == head:
                raise
    try:
        wanted = check_settings(head.settings._asdict())
    except ValueError as error:
        raise _damaged(place, "its settings must be valid", str(error).rstrip(".")) from None
    parameters = wanted.parameters(None)
    fingerprint = index_fingerprint(head.corpus_hash, parameters)
    if fingerprint != head.fingerprint:
        rule = f"its fingerprint must be {fingerprint}, of its corpus, settings and models"
        raise _damaged(place, rule, shown_value(head.fingerprint))
    if rewriter is not None and wanted.rewrites:
        parameters |= {"rewriter": rewriter.name}
        fingerprint = index_fingerprint(head.corpus_hash, parameters)
    return Index(corpus, wanted, fingerprint, head)


def write_index(
    corpus: Corpus,
    place: Path,
    wanted: RetrievalSettings,
    pack: str | None,
    embed: Callable[[Corpus], Path | None] | None = None,
) -> str:
    """Write an index beside the one that is there, then put it in its place; its fingerprint.

    Args:
      pack: hash of the one that it is for.
      embed: what fills the embeddings of the corpus, None where they are there; it gives the folder
        of a large index, which is then the only one but for that of the index before.

    Raises:
      InputError: the folder cannot be written.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        rule, reason = "an index must be a folder", error.strerror or type(error).__name__
        raise input_error(Where(str(place)), rule, "choose another", reason) from error
    corpus_hash = hash_corpus(corpus)
    file = _corpus_file(place, corpus_hash)
    save_corpus(corpus, file)
    large = None if embed is None else embed(load_corpus(file))
    fingerprint = index_fingerprint(corpus_hash, wanted.parameters(None))
    head: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "fingerprint": fingerprint,
        "corpus": corpus.name,
        "n_chunks": len(corpus.chunks),
        "corpus_hash": corpus_hash,
        "settings": wanted.stated,
        **({} if pack is None else {"pack": pack}),
    }
    with locked(place / LOCK):
        # From here on it is the new index; before, it was the old one.
        write_text(json.dumps(head | {"digest": _digest(head)}, indent=2) + "\n", place / INDEX)
        if not file.is_file():  # another process indexed something else, and cleared up meanwhile
            save_corpus(corpus, file)
        for path in place.iterdir():
            if _CORPORA.fullmatch(path.name) and path != file:
                with suppress(OSError):
                    path.unlink()
        for drop_older in extensions("drop_older").values():
            drop_older(place, large)
    return fingerprint


def _corpus_file(place: Path, corpus_hash: str) -> Path:
    return place / f"corpus-{corpus_hash[:16]}.jsonl"


def _digest(head: dict[str, Any]) -> str:
    stated = {name: value for name, value in head.items() if name != "digest"}
    return digest(canonical_json(stated, ensure_ascii=True))


def _head(place: Path) -> IndexHead:
    """Fields of index.json, none of them altered."""
    path = place / INDEX
    if not path.is_file():
        rule = "an index must be a folder that holds index.json"
        raise input_error(
            Where(str(path)), rule, "make one by raglab.build_index or `raglab index`", "none there"
        )
    stated = read_json(path, _MAX_BYTES)
    version = stated.get("schema_version") if isinstance(stated, dict) else None
    if not isinstance(stated, dict) or version != SCHEMA_VERSION or "digest" not in stated:
        rule = f"an index must be of version {SCHEMA_VERSION} with a digest"
        raise _damaged(place, rule, f"version {shown_value(version)}")
    try:
        head = IndexHead.model_validate_json(json.dumps(stated), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = visible(".".join(str(part) for part in first["loc"]))[:80]
        raise _damaged(place, f"its field {name} must be {_WRITTEN}", first["msg"]) from None
    settings = head.settings
    if settings.index == "auto" or settings.stated != stated["settings"]:
        value = shown_value(stated["settings"])
        raise _damaged(place, f"its field settings must be {_WRITTEN}", value)
    if _digest(stated) != head.digest:
        raise _damaged(place, f"index.json must be {_WRITTEN}", "another digest")
    return head


def _corpus_of(head: IndexHead, place: Path) -> Corpus:
    """Corpus that index.json names, not altered."""
    file = _corpus_file(place, head.corpus_hash)
    try:
        corpus = load_corpus(file)
    except InputError as error:
        msg = f"{str(error).rstrip('.')}; the index is damaged: {_remedy(place)}."
        raise InputError(msg) from None
    if hash_corpus(corpus) != head.corpus_hash or (corpus.name, len(corpus.chunks)) != (
        head.corpus,
        head.n_chunks,
    ):
        raise _damaged(place, f"an index must be that of {file.name}", "another content")
    return corpus


def _damaged(place: Path, rule: str, value: str) -> InputError:
    return input_error(Where(str(place / INDEX)), rule, _remedy(place), value)


def _remedy(place: Path) -> str:
    return f"make it again with `raglab index CORPUS --out {visible(str(place))}`"
