"""Clarification environments (shore): simulated users of the bundled documents and of ClariQ."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from raglab.bandit.learner import refuse
from raglab.default_learner.simulation import MOST_NUMBERED, World, world
from raglab.documents import full_sources
from raglab.extensions.clarification.contents import contents_pages
from raglab.packs import GENERIC, Pack
from raglab.store.loaders import load_corpus
from raglab.store.policies import load_pack
from raglab.text import content_words
from raglab.values import Chunk
from raglab.words import split_words

COLUMNS = ("page_1_kind", "domain", "lang", "vendor", "version")  # of a document, seen by the learner
SCOPES = PAGE_1, CONTENTS, DOCUMENT = "1", "toc", "document"
LABELS = "fields.jsonl"
VENDOR = "vendor_name"  # field of documents that are not labelled: where they name their vendor
PACK = "pack"  # folder of a bundled set that holds its trade


class FieldPage(NamedTuple):
    """Page on which a document first states a field, its position from 1."""

    document: str
    field: str
    page: int


def broker(
    corpus: str | Path | Sequence[Chunk],
    stated: Iterable[FieldPage] | None = None,
    *,
    pack: Pack | None = None,
    **more: Any,  # noqa: ANN401 - further fields of a world
) -> World:
    """World of the bundled documents: a context a target field and doctype, a request one of its documents.

    The true value is the narrowest scope that holds the field: page 1, else the pages that the table of contents names
    for it, else the whole document. It hangs on the document alone, so users do not differ; the learner sees `COLUMNS`
    of it. Measured on the documents: the values, the columns, and `detects` (of 258 reads of the bundled labels in a
    scope that does not hold the field, 257 came back empty). Assumed: documents of a doctype are asked about alike, a
    user comes back to `at_once` fields, `noise` and `notices`.

    Args:
      corpus: folder as `load_corpus` takes it, or its chunks. stated: where each field stands; `fields.jsonl` of the
        folder where there is one, and the vendor's name as found by `vendor_pages` otherwise. pack: whose titles lead
        to fields; the folder's where there is one, else the generic one.

    Raises:
      ValueError: no document that states a field.

    Source: rules S5.6, S5.9, S5.10.
    """
    folder = Path(corpus) if isinstance(corpus, str | Path) else None
    chunks = load_corpus(corpus).chunks if isinstance(corpus, str | Path) else tuple(corpus)
    if pack is None:
        pack = load_pack(folder / PACK) if folder and (folder / PACK).is_dir() else GENERIC
    if stated is None:
        stated = read_fields(folder / LABELS) if folder and (folder / LABELS).is_file() else vendor_pages(chunks)
    documents: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        documents[chunk.document].append(chunk)
    fields = list(stated)
    paths = full_sources([field.document for field in fields], documents)
    labels = [
        (field.field, documents[path][0].tags, field_scope(field, documents[path], pack=pack))
        for field, path in zip(fields, paths, strict=True)
        if path in documents
    ]
    if not labels:
        msg = "a world needs documents that state a field, got none; give a corpus with a vendor in its tags."
        raise ValueError(msg)
    return _document_world(labels, **{"noise": 0.01, "detects": 0.99, "at_once": 6} | more)


def field_scope(stated: FieldPage, chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> str:
    """Narrowest scope that holds a field: page 1, else the pages of the table of contents, else the document.

    Args:
      chunks: of that document. pack: whose titles lead to the field.
    """
    if stated.page == 1:
        return PAGE_1
    return CONTENTS if stated.page in contents_pages(stated.field, chunks, pack=pack) else DOCUMENT


def vendor_pages(chunks: Sequence[Chunk]) -> tuple[FieldPage, ...]:
    """Where each document first names its vendor."""
    first: dict[str, int] = {}
    for chunk in chunks:
        vendor = str(chunk.tags.get("vendor", "")).lower()
        if vendor and chunk.page and vendor in chunk.full_text.lower():
            first[chunk.document] = min(chunk.page, first.get(chunk.document, chunk.page))
    return tuple(FieldPage(name, VENDOR, page) for name, page in first.items())


def read_fields(path: str | Path) -> tuple[FieldPage, ...]:
    """Labels of fields, a JSON object a line with `doc`, `field`, `page`; the first page of each, none without one.

    Raises:
      ValueError: a line that is no such object.
    """
    first: dict[tuple[str, str], int] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line)
            key, page = (str(row["doc"]), str(row["field"])), row["page"]
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{path}, line {number} must be a JSON object with doc, field and page, got {error!r}."
            raise ValueError(msg) from None
        if page is not None:
            first[key] = min(int(page), first.get(key, int(page)))
    return tuple(FieldPage(*key, page) for key, page in first.items())


def _document_world(
    labels: Sequence[tuple[str, Mapping[str, str], str]],
    **more: Any,  # noqa: ANN401 - further fields of a world
) -> World:
    """World whose scenes are documents; labels: field, tags of a document that states it, scope that holds it there."""
    if len(labels) > MOST_NUMBERED:
        refuse(f"a world of documents must have at most {MOST_NUMBERED:,} values", f"{len(labels):,}", "leave some out")
    # A context is a field asked of one kind of document; its scenes are the documents, as likely as they are many.
    contexts: dict[str, list[tuple[Mapping[str, str], str]]] = defaultdict(list)
    for field, tags, scope in labels:
        contexts[f"{field}/{tags.get('doc_type', 'document')}"].append((tags, scope))
    shares = {
        name: {str(place): dict.fromkeys(SCOPES, 0.0) | {scope: 1.0} for place, (_, scope) in enumerate(of)}
        for name, of in contexts.items()
    }
    bare = world(shares, column="document", traffic=[len(of) for of in contexts.values()], **more)
    known = {name: sorted({tags.get(name, "") for _, tags, _ in labels}) for name in COLUMNS}
    # Contexts of fewer documents than the largest are padded with scenes of probability 0.
    levels = np.zeros((*bare.scenes.shape, len(COLUMNS)), np.int16)
    for row, of in enumerate(contexts.values()):
        levels[row, : len(of)] = [[known[name].index(tags.get(name, "")) for name in COLUMNS] for tags, _ in of]
    return bare._replace(columns=COLUMNS, levels=levels)


def stable(simulated: World) -> World:
    """Part of a world whose defaults are stable: no noise, no drift, and contexts in which a user has one true value.

    Raises:
      ValueError: no context is left.

    Source: rule S5.4.

    Example:
      >>> shares = {"a": {"body": {"1": 1.0}}, "b": {"body": {"1": 1.0}, "cover": {"1": 0.0, "toc": 1.0}}}
      >>> stable(world(shares, column="page_1_kind", noise=0.1)).contexts
      ('a',)
    """
    right, there = simulated.shares.argmax(axis=-1), simulated.scenes > 0.0
    first = np.take_along_axis(right, there.argmax(axis=-1)[:, None], axis=-1)
    alike = ((right == first) & (simulated.shares.max(axis=-1) == 1.0)) | ~there
    # In one scene every user has one true value of their own; in several they must be the same.
    rows = np.flatnonzero(alike.all(axis=-1) | (there.sum(axis=-1) == 1))
    if not rows.size:
        msg = f"a stable world needs a context of one true value, got none of {len(right)}; take another world."
        raise ValueError(msg)
    arrays = {name: getattr(simulated, name)[rows] for name in ("scenes", "shares", "stray", "levels")}
    return simulated._replace(
        contexts=tuple(simulated.contexts[row] for row in rows),
        values=tuple(simulated.values[row] for row in rows),
        traffic=simulated.traffic[rows] / simulated.traffic[rows].sum(),
        noise=np.zeros(len(rows)),
        drift=np.zeros(len(rows)),
        **arrays,
    )


Part = Literal["tune", "held_out"]
PARTS: tuple[Part, ...] = ("tune", "held_out")
WORLDS = ("broker", "clariq", "sharc", "cover")
BUNDLED = Path("datasets/broker")
TURN = ("question", "answer")
REFUSES = frozenset({"no", "not", "nope"})


def topic_part(key: str) -> Part:
    """Part that a topic belongs to, half and half, by the SHA-256 of its key.

    Example:
      >>> topic_part("101"), topic_part("103")
      ('tune', 'held_out')
    """
    return PARTS[sha256(key.encode()).digest()[0] % 2]


def clariq(
    folder: str | Path,
    part: Part | None = None,
    *,
    noise_per_need: float = 0.01,
    **more: Any,  # noqa: ANN401 - further fields of a world
) -> World:
    """World of ClariQ: a context a topic, its facets the hidden intents, one of them sampled for each user.

    Measured on the data: which facets a topic has, its `clarification_need`, and `names`, the share of the answers
    beginning with no that also say what is wanted instead. Assumed: facets of a topic are equally likely (the data has
    no shares); a user comes back to `at_once` topics; `drift`, that a request begins a new intent; and `noise`, since
    the data has one request a topic: a request of need 1 (clear) always wants its user's own facet, and each further
    step of need makes it want another one in `noise_per_need` of the cases, so that need 4 (very ambiguous) has three
    times that. Nothing detects a wrong facet. Topics of one facet are left out: there is nothing to ask.

    Args:
      folder: holds train.tsv and dev.tsv. part: topics of one part only, by `topic_part`; all where not given.
      noise_per_need: probability, per step of need above 1.

    Raises:
      FileNotFoundError: no such file.

    Source: Aliannejadi et al. 2020, ClariQ; rule S5.4.
    """
    facets: dict[str, dict[str, float]] = defaultdict(dict)
    need: dict[str, int] = {}
    replies: list[str] = []
    for name in ("train.tsv", "dev.tsv"):
        with (Path(folder) / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                topic = row["topic_id"]
                if part in {None, topic_part(topic)}:
                    facets[topic][row["facet_id"]] = 1.0
                    need[topic] = int(row["clarification_need"])
                    replies.append(row["answer"])
    shares = {topic: of for topic, of in facets.items() if len(of) > 1}
    noise = [noise_per_need * (need[topic] - 1) for topic in shares]
    assumed: dict[str, Any] = {"noise": noise, "drift": 0.001, "names": no_with_value_share(replies), "at_once": 4}
    return world(shares, **assumed | more)


def no_with_value_share(replies: Iterable[str]) -> float:
    """Share of the answers beginning with no that say more than no: they name what is wanted.

    Example:
      >>> no_with_value_share(["no", "no i want the address", "yes"])
      0.5
    """
    words = [split_words(reply) for reply in replies]
    rest = [" ".join(reply[1:]) for reply in words if reply and reply[0] in REFUSES]
    return sum(bool(content_words(text)) for text in rest) / len(rest) if rest else 1.0


def sharc(path: str | Path, part: Part | None = None, **more: Any) -> World:  # noqa: ANN401 - fields of a world
    """World of ShARC: a context a follow-up question of a rule tree, its hidden fact Yes or No for each user.

    Measured on the data: the share of Yes and No of each question (spellings of one question are one). Assumed: `noise`
    (a request about another person's case), `drift` (a fact that changed), and that a user comes back to `at_once`
    questions. Who says no to Yes has named No. Questions that all answer alike stay: they must not be asked for ever.

    Args:
      path: JSON file, or the folder that holds it. part: rule trees of one part only, by `topic_part`.

    Source: Saeidi et al. 2018, ShARC; rule S5.4.
    """
    place = Path(path)
    file = place if place.is_file() else next(iter(sorted(place.glob("*.json"))), place / "sharc_dev.json")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    names: dict[tuple[str, str], str] = {}  # spelt with and without blanks it is one question
    for row in json.loads(file.read_text(encoding="utf-8")):
        if part not in {None, topic_part(row["tree_id"])}:
            continue
        for turn in (*row["history"], *row["evidence"]):
            question, answer = (turn.get(f"follow_up_{key}", turn.get(f"followup_{key}")) for key in TURN)
            words = split_words(question)
            name = names.setdefault((row["tree_id"], "".join(words)), f"{row['tree_id'][:8]} {' '.join(words)}")
            counts[name][answer.capitalize()] += 1
    shares = {name: {"Yes": float(of["Yes"]), "No": float(of["No"])} for name, of in counts.items()}
    traffic = [sum(of.values()) for of in shares.values()]
    return world(shares, traffic=traffic, **{"noise": 0.01, "drift": 0.001, "at_once": 4} | more)


def cover(share: float = 0.4, *, noise_columns: int = 20, **more: Any) -> World:  # noqa: ANN401 - fields of a world
    """World of case 12, which needs no data: on cover sheets page 1 names no vendor, and comes back empty.

    Args:
      share: of the requests that are about a contract with a cover sheet. noise_columns: beside `page_1_kind`.

    Source: rule S5.6.
    """
    shares = {"body": {PAGE_1: 1.0, CONTENTS: 0.0}, "coversheet": {PAGE_1: 0.0, CONTENTS: 1.0}}
    mix = {"body": 1.0 - share, "coversheet": share}
    return world(
        {f"{VENDOR}/contract": shares},
        column=COLUMNS[0],
        mix=mix,
        **{"detects": 1.0, "noise_columns": noise_columns} | more,
    )


def load_world(name: str, path: str | Path | None, part: Part | None = None, **more: Any) -> World:  # noqa: ANN401
    """World by name, from the folder or file that holds its data.

    Raises:
      ValueError: an unknown name, or no path for a set whose data is not here.
    """
    if name not in WORLDS:
        msg = f"world must be one of {', '.join(WORLDS)}, got {name!r}; choose one of them."
        raise ValueError(msg)
    if name == "cover":
        return cover(**more)
    place = path or (BUNDLED if name == "broker" and BUNDLED.is_dir() else None)
    if place is None:
        msg = f"world {name} needs the path of its data, got none; give it, or take world cover."
        raise ValueError(msg)
    return broker(place, **more) if name == "broker" else (clariq if name == "clariq" else sharc)(place, part, **more)
