"""Index folder (shore): `build_index` writes and `System.open` reads it, checked, swapped whole.

`index.json` is the one point at which an index changes: it names its corpus by content, so that
whatever is stopped leaves the old index or the new one. Its embeddings are by content too,
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
_CORPUS_FILE = re.compile(r"corpus-[0-9a-f]{16}\.jsonl")
_MAX_HEAD_BYTES = 2**20
_AS_WRITTEN = "as raglab wrote it"
_STRICT_CONFIG = ConfigDict(extra="forbid", strict=True, frozen=True)


class IndexHead(BaseModel):
    """Content of index.json.

    fingerprint: of corpus, models and settings. corpus: its name. pack: hash of the pack that the
    index is for; None fits any. auto_mb, changes: of version 0.1.0, not read. digest: SHA-256 of
    the canonical JSON of all other fields.
    """

    model_config = _STRICT_CONFIG

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


def read_index(index_folder: Path, rewriter: Rewriter | None = None) -> Index:
    """Index of a folder.

    Args:
      rewriter: of questions, which is part of the fingerprint; None is that of the settings.

    Raises:
      InputError: no index there, or one that was altered, damaged, or made by another version or
        with other models.
    """
    index_head = _head(index_folder)
    corpus = None
    while corpus is None:
        try:
            corpus = _corpus_of(index_head, index_folder)
        except InputError:
            # another process may have put a new index in its place between the two
            earlier_head = index_head
            index_head = _head(index_folder)
            if earlier_head == index_head:
                raise
    try:
        checked_settings = check_settings(index_head.settings._asdict())
    except ValueError as error:
        raise _damaged(index_folder, "its settings must be valid", str(error).rstrip(".")) from None
    parameters = checked_settings.parameters(None)
    fingerprint = index_fingerprint(index_head.corpus_hash, parameters)
    if fingerprint != index_head.fingerprint:
        raise _damaged(
            index_folder,
            f"its fingerprint must be {fingerprint}, of its corpus, settings and models",
            shown_value(index_head.fingerprint),
        )
    if rewriter is not None and checked_settings.rewrites:
        parameters |= {"rewriter": rewriter.name}
        fingerprint = index_fingerprint(index_head.corpus_hash, parameters)
    return Index(corpus, checked_settings, fingerprint, index_head)


def write_index(
    corpus: Corpus,
    index_folder: Path,
    index_settings: RetrievalSettings,
    pack_hash: str | None,
    embed: Callable[[Corpus], Path | None] | None = None,
) -> str:
    """Write a new index, then put it in the place of the old one; its fingerprint.

    Args:
      pack_hash: hash of the one that it is for.
      embed: what fills the embeddings of the corpus, None where they are there; it gives the folder
        of a large index, which is then the only one but for that of the index before.

    Raises:
      InputError: the folder cannot be written.
    """
    try:
        index_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise input_error(
            Where(str(index_folder)), "an index must be a folder", "choose another", reason
        ) from error
    corpus_hash = hash_corpus(corpus)
    corpus_path = _corpus_file(index_folder, corpus_hash)
    save_corpus(corpus, corpus_path)
    kept_index = None if embed is None else embed(load_corpus(corpus_path))
    fingerprint = index_fingerprint(corpus_hash, index_settings.parameters(None))
    head_fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "fingerprint": fingerprint,
        "corpus": corpus.name,
        "n_chunks": len(corpus.chunks),
        "corpus_hash": corpus_hash,
        "settings": index_settings.stated,
        **({} if pack_hash is None else {"pack": pack_hash}),
    }
    with locked(index_folder / LOCK):
        # From here on it is the new index; before, it was the old one.
        write_text(
            json.dumps(head_fields | {"digest": _digest(head_fields)}, indent=2) + "\n",
            index_folder / INDEX,
        )
        if (
            not corpus_path.is_file()
        ):  # another process indexed something else, and cleared up meanwhile
            save_corpus(corpus, corpus_path)
        for other_path in index_folder.iterdir():
            if _CORPUS_FILE.fullmatch(other_path.name) and other_path != corpus_path:
                with suppress(OSError):
                    other_path.unlink()
        for drop_older in extensions("drop_older").values():
            drop_older(index_folder, kept_index)
    return fingerprint


def _corpus_file(index_folder: Path, corpus_hash: str) -> Path:
    return index_folder / f"corpus-{corpus_hash[:16]}.jsonl"


def _digest(head_fields: dict[str, Any]) -> str:
    digested_fields = {name: value for name, value in head_fields.items() if name != "digest"}
    return digest(canonical_json(digested_fields, ensure_ascii=True))


def _head(index_folder: Path) -> IndexHead:
    """Fields of index.json, none of them altered."""
    head_path = index_folder / INDEX
    if not head_path.is_file():
        raise input_error(
            Where(str(head_path)),
            "an index must be a folder that holds index.json",
            "make one by raglab.build_index or `raglab index`",
            "none there",
        )
    head_json = read_json(head_path, _MAX_HEAD_BYTES)
    schema_version = head_json.get("schema_version") if isinstance(head_json, dict) else None
    if (
        not isinstance(head_json, dict)
        or schema_version != SCHEMA_VERSION
        or "digest" not in head_json
    ):
        raise _damaged(
            index_folder,
            f"an index must be of version {SCHEMA_VERSION} with a digest",
            f"version {shown_value(schema_version)}",
        )
    try:
        index_head = IndexHead.model_validate_json(json.dumps(head_json), strict=True)
    except ValidationError as error:
        first_error = error.errors(include_url=False, include_input=False)[0]
        field_name = visible(".".join(str(location_part) for location_part in first_error["loc"]))[
            :80
        ]
        raise _damaged(
            index_folder, f"its field {field_name} must be {_AS_WRITTEN}", first_error["msg"]
        ) from None
    settings = index_head.settings
    if settings.index == "auto" or settings.stated != head_json["settings"]:
        shown_settings = shown_value(head_json["settings"])
        raise _damaged(index_folder, f"its field settings must be {_AS_WRITTEN}", shown_settings)
    if _digest(head_json) != index_head.digest:
        raise _damaged(index_folder, f"index.json must be {_AS_WRITTEN}", "another digest")
    return index_head


def _corpus_of(index_head: IndexHead, index_folder: Path) -> Corpus:
    """Corpus that index.json names, not altered."""
    path = _corpus_file(index_folder, index_head.corpus_hash)
    try:
        corpus = load_corpus(path)
    except InputError as error:
        message = f"{str(error).rstrip('.')}; the index is damaged: {_remedy(index_folder)}."
        raise InputError(message) from None
    if hash_corpus(corpus) != index_head.corpus_hash or (corpus.name, len(corpus.chunks)) != (
        index_head.corpus,
        index_head.n_chunks,
    ):
        raise _damaged(index_folder, f"an index must be that of {path.name}", "another content")
    return corpus


def _damaged(index_folder: Path, requirement: str, actual_text: str) -> InputError:
    return input_error(
        Where(str(index_folder / INDEX)), requirement, _remedy(index_folder), actual_text
    )


def _remedy(index_folder: Path) -> str:
    return f"make it again with `raglab index CORPUS --out {visible(str(index_folder))}`"
