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
from raglab.default_learner.simulation import MOST_NUMBERED, World, check_simulated_world, world
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
    noise: float = 0.01,
    drift: float = 0.0,
    notices: float = 0.5,
    detects: float = 0.99,
    at_once: int = 6,
    per_day: float = 5.0,
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
    chunks = load_corpus(corpus).chunks if isinstance(corpus, str | Path) else tuple(corpus)
    folder = Path(corpus) if isinstance(corpus, str | Path) else None
    if pack is None:
        pack = load_pack(folder / PACK) if folder is not None and (folder / PACK).is_dir() else GENERIC
    if stated is None:
        labelled = folder is not None and (folder / LABELS).is_file()
        stated = read_fields(folder / LABELS) if folder is not None and labelled else vendor_pages(chunks)
    documents: dict[str, list[Chunk]] = defaultdict(list)
    for chunk in chunks:
        documents[chunk.document].append(chunk)
    named = list(stated)
    paths = full_sources([field.document for field in named], documents)
    fields = [field._replace(document=path) for field, path in zip(named, paths, strict=True)]
    found = [(one, field_scope(one, documents[one.document], pack=pack)) for one in fields if one.document in documents]
    if not found:
        msg = "a world needs documents that state a field, got none; give a corpus with a vendor in its tags."
        raise ValueError(msg)
    tags = {name: dict(of[0].tags) for name, of in documents.items()}
    more: dict[str, Any] = {"notices": notices, "detects": detects, "at_once": at_once, "per_day": per_day}
    return _document_world(found, tags, noise, drift, **more)


def field_scope(one: FieldPage, chunks: Sequence[Chunk], *, pack: Pack = GENERIC) -> str:
    """Narrowest scope that holds a field: page 1, else the pages of the table of contents, else the document.

    Args:
      chunks: of that document. pack: whose titles lead to the field.
    """
    if one.page == 1:
        return PAGE_1
    return CONTENTS if one.page in contents_pages(one.field, chunks, pack=pack) else DOCUMENT


def vendor_pages(chunks: Sequence[Chunk], field: str = VENDOR, *, without: str = "") -> tuple[FieldPage, ...]:
    """Where each document first names its vendor.

    Args:
      field: whose value the vendor's name is. without: domain whose documents are nobody's but the house's own.
    """
    first: dict[str, int] = {}
    for chunk in chunks:
        vendor = str(chunk.tags.get("vendor", "")).lower()
        if (
            vendor
            and chunk.page
            and vendor in chunk.full_text.lower()
            and chunk.tags.get("domain") != (without or None)
        ):
            first[chunk.document] = min(chunk.page, first.get(chunk.document, chunk.page))
    return tuple(FieldPage(name, field, page) for name, page in first.items())


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
    found: Sequence[tuple[FieldPage, str]],
    tags: Mapping[str, Mapping[str, str]],
    noise: float,
    drift: float,
    **more: Any,  # noqa: ANN401 - further fields of a world
) -> World:
    """World whose scenes are documents."""
    # A context is a field asked of one kind of document; its scenes are the documents, as likely as they are many.
    by_context: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for one, scope in found:
        by_context[f"{one.field}/{tags[one.document].get('doc_type', 'document')}"].append((one.document, scope))
    if len(found) > MOST_NUMBERED:
        refuse(f"a world of documents must have at most {MOST_NUMBERED:,} values", f"{len(found):,}", "leave some out")
    known = {name: sorted({tags[one.document].get(name, "") for one, _ in found}) for name in COLUMNS}
    shape = (len(by_context), max(map(len, by_context.values())))
    # Contexts of fewer documents than the largest are padded with scenes of probability 0.
    scenes, levels = np.zeros(shape), np.zeros((*shape, len(COLUMNS)), np.int16)
    shares = np.zeros((*shape, len(SCOPES)))
    for row, of in enumerate(by_context.values()):
        for place, (document, scope) in enumerate(of):
            scenes[row, place] = 1.0 / len(of)
            levels[row, place] = [known[name].index(tags[document].get(name, "")) for name in COLUMNS]
            shares[row, place, SCOPES.index(scope)] = 1.0
    traffic = np.array([len(of) for of in by_context.values()], np.float64)
    return check_simulated_world(
        World(
            contexts=tuple(by_context),
            values=(SCOPES,) * len(traffic),
            traffic=traffic / traffic.sum(),
            scenes=scenes,
            shares=shares,
            stray=np.ones_like(shares),
            noise=np.full(len(traffic), noise),
            drift=np.full(len(traffic), drift),
            columns=COLUMNS,
            levels=levels,
            **more,
        )
    )


def stable(made: World) -> World:
    """Part of a world whose defaults are stable: no noise, no drift, and contexts in which a user has one true value.

    Raises:
      ValueError: no context is left.

    Source: rule S5.4.

    Example:
      >>> shares = {"a": {"body": {"1": 1.0}}, "b": {"body": {"1": 1.0}, "cover": {"1": 0.0, "toc": 1.0}}}
      >>> stable(world(shares, column="page_1_kind", noise=0.1)).contexts
      ('a',)
    """
    right, there = made.shares.argmax(axis=-1), made.scenes > 0.0
    first = np.take_along_axis(right, there.argmax(axis=-1)[:, None], axis=-1)
    alike = ((right == first) & (made.shares.max(axis=-1) == 1.0)) | ~there
    # In one scene every user has one true value of their own; in several they must be the same.
    kept = alike.all(axis=-1) | (there.sum(axis=-1) == 1)
    if not kept.any():
        msg = f"a stable world needs a context of one true value, got none of {len(kept)}; take another world."
        raise ValueError(msg)
    of = np.flatnonzero(kept)
    nothing = np.zeros(len(of))
    return check_simulated_world(
        made._replace(
            contexts=tuple(made.contexts[at] for at in of),
            values=tuple(made.values[at] for at in of),
            traffic=made.traffic[of] / made.traffic[of].sum(),
            scenes=made.scenes[of],
            shares=made.shares[of],
            stray=made.stray[of],
            levels=made.levels[of],
            noise=nothing,
            drift=nothing,
        )
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
    drift: float = 0.001,
    notices: float = 0.5,
    at_once: int = 4,
    per_day: float = 5.0,
) -> World:
    """World of ClariQ: a context a topic, its facets the hidden intents, one of them sampled for each user.

    Measured on the data: which facets a topic has, its `clarification_need`, and `names`, the share of the answers
    beginning with no that also say what is wanted instead. Assumed: facets of a topic are equally likely (the data has
    no shares); a user comes back to `at_once` topics; and `noise`, since the data has one request a topic: a request of
    need 1 (clear) always wants its user's own facet, and each further step of need makes it want another one in
    `noise_per_need` of the cases, so that need 4 (very ambiguous) has three times that. Nothing detects a wrong facet.
    Topics of one facet are left out: there is nothing to ask.

    Args:
      folder: holds train.tsv and dev.tsv. part: topics of one part only, by `topic_part`; all where not given.
      noise_per_need: probability, per step of need above 1. drift: probability that a request begins a new intent.

    Raises:
      FileNotFoundError: no such file.

    Source: Aliannejadi et al. 2020, ClariQ; rule S5.4.
    """
    facets: dict[str, dict[str, None]] = defaultdict(dict)
    need: dict[str, int] = {}
    replies: list[str] = []
    for name in ("train.tsv", "dev.tsv"):
        with (Path(folder) / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                topic = row["topic_id"]
                if part is not None and topic_part(topic) != part:
                    continue
                facets[topic][row["facet_id"]] = None
                need[topic] = int(row["clarification_need"])
                replies.append(row["answer"])
    shares = {topic: dict.fromkeys(of, 1.0) for topic, of in facets.items() if len(of) > 1}
    noise = [noise_per_need * (need[topic] - 1) for topic in shares]
    return world(
        shares,
        noise=noise,
        drift=drift,
        notices=notices,
        names=no_with_value_share(replies),
        at_once=at_once,
        per_day=per_day,
    )


def no_with_value_share(replies: Iterable[str]) -> float:
    """Share of the answers beginning with no that say more than no: they name what is wanted.

    Example:
      >>> no_with_value_share(["no", "no i want the address", "yes"])
      0.5
    """
    spoken = [split_words(reply) for reply in replies]
    noes = [" ".join(one[1:]) for one in spoken if one and one[0] in REFUSES]
    return sum(bool(content_words(rest)) for rest in noes) / len(noes) if noes else 1.0


def sharc(
    path: str | Path,
    part: Part | None = None,
    *,
    noise: float = 0.01,
    drift: float = 0.001,
    notices: float = 0.5,
    at_once: int = 4,
    per_day: float = 5.0,
) -> World:
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
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    names: dict[tuple[str, str], str] = {}  # spelt with and without blanks it is one question
    for row in json.loads(file.read_text(encoding="utf-8")):
        if part is not None and topic_part(row["tree_id"]) != part:
            continue
        for turn in (*row["history"], *row["evidence"]):
            question, answer = (turn.get(f"follow_up_{key}", turn.get(f"followup_{key}")) for key in TURN)
            key = row["tree_id"], "".join(split_words(question))
            names.setdefault(key, f"{row['tree_id'][:8]} {' '.join(split_words(question))}")
            seen[names[key]][answer.capitalize()] += 1
    shares = {key: {"Yes": float(of["Yes"]), "No": float(of["No"])} for key, of in seen.items()}
    traffic = [sum(of.values()) for of in shares.values()]
    more: dict[str, Any] = {"notices": notices, "at_once": at_once, "per_day": per_day}
    return world(shares, traffic=traffic, noise=noise, drift=drift, **more)


def cover(share: float = 0.4, *, noise_columns: int = 20, **more: Any) -> World:  # noqa: ANN401 - fields of a world
    """World of case 12, which needs no data: on cover sheets page 1 names no vendor, and comes back empty.

    Args:
      share: of the requests that are about a contract with a cover sheet. noise_columns: beside `page_1_kind`.

    Source: rule S5.6.
    """
    shares = {"body": {PAGE_1: 1.0, CONTENTS: 0.0}, "coversheet": {PAGE_1: 0.0, CONTENTS: 1.0}}
    mix = {"body": 1.0 - share, "coversheet": share}
    given = {"detects": 1.0, "noise_columns": noise_columns} | more
    return world({f"{VENDOR}/contract": shares}, column=COLUMNS[0], mix=mix, **given)


def load_world(name: str, path: str | Path | None, part: Part | None = None, **more: Any) -> World:  # noqa: ANN401
    """World by name, from the folder or file that holds its data.

    Raises:
      ValueError: an unknown name, or no path for a set that is not bundled.
    """
    if name not in WORLDS:
        msg = f"world must be one of {', '.join(WORLDS)}, got {name!r}; choose one of them."
        raise ValueError(msg)
    if name == "cover":
        return cover(**more)
    if name == "broker":
        if path is None and not BUNDLED.is_dir():
            msg = f"world broker needs its documents, got no folder {BUNDLED} here; give the path, or take world cover."
            raise ValueError(msg)
        return broker(path or BUNDLED, **more)
    if path is None:
        msg = f"world {name} needs the path of its data, got none; it is not bundled."
        raise ValueError(msg)
    return (clariq if name == "clariq" else sharc)(path, part, **more)
