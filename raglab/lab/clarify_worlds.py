"""Worlds of clarification from data: facets of ClariQ, facts of ShARC, pages of the bundled documents."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from raglab._users import World, world
from raglab.evidence import content_words, words
from raglab.lab._clarify_documents import (
    COLUMNS,
    CONTENTS,
    INSURER,
    PAGE_1,
    SCOPES,
    Stated,
    broker,
    insurer_pages,
    read_fields,
    scope_of,
)

__all__ = [
    "COLUMNS",
    "PARTS",
    "SCOPES",
    "WORLDS",
    "Stated",
    "broker",
    "clariq",
    "cover",
    "insurer_pages",
    "named_share",
    "read_fields",
    "scope_of",
    "sharc",
    "split_of",
    "world_of",
]

Part = Literal["tune", "held_out"]
PARTS: tuple[Part, ...] = ("tune", "held_out")
WORLDS = ("broker", "clariq", "sharc", "cover")
BUNDLED = Path("datasets/broker")
TURN = ("question", "answer")
REFUSES = frozenset({"no", "not", "nope"})


def split_of(key: str) -> Part:
    """Part that a topic belongs to, half and half, by the SHA-256 of its key.

    Example:
      >>> split_of("101"), split_of("103")
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
      folder: holds train.tsv and dev.tsv. part: topics of one part only, by `split_of`; all where not given.
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
                if part is not None and split_of(topic) != part:
                    continue
                facets[topic][row["facet_id"]] = None
                need[topic] = int(row["clarification_need"])
                replies.append(row["answer"])
    shares = {topic: dict.fromkeys(of, 1.0) for topic, of in facets.items() if len(of) > 1}
    noise = [noise_per_need * (need[topic] - 1) for topic in shares]
    return world(
        shares, noise=noise, drift=drift, notices=notices, names=named_share(replies), at_once=at_once, per_day=per_day
    )


def named_share(replies: Iterable[str]) -> float:
    """Share of the answers beginning with no that say more than no: they name what is wanted.

    Example:
      >>> named_share(["no", "no i want the address", "yes"])
      0.5
    """
    spoken = [words(reply) for reply in replies]
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
      path: JSON file, or the folder that holds it. part: rule trees of one part only, by `split_of`.

    Source: Saeidi et al. 2018, ShARC; rule S5.4.
    """
    place = Path(path)
    file = place if place.is_file() else next(iter(sorted(place.glob("*.json"))), place / "sharc_dev.json")
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    names: dict[tuple[str, str], str] = {}  # spelt with and without blanks it is one question
    for row in json.loads(file.read_text(encoding="utf-8")):
        if part is not None and split_of(row["tree_id"]) != part:
            continue
        for turn in (*row["history"], *row["evidence"]):
            question, answer = (turn.get(f"follow_up_{key}", turn.get(f"followup_{key}")) for key in TURN)
            key = row["tree_id"], "".join(words(question))
            names.setdefault(key, f"{row['tree_id'][:8]} {' '.join(words(question))}")
            seen[names[key]][answer.capitalize()] += 1
    shares = {key: {"Yes": float(of["Yes"]), "No": float(of["No"])} for key, of in seen.items()}
    traffic = [sum(of.values()) for of in shares.values()]
    more: dict[str, Any] = {"notices": notices, "at_once": at_once, "per_day": per_day}
    return world(shares, traffic=traffic, noise=noise, drift=drift, **more)


def cover(share: float = 0.4, *, noise_columns: int = 20, **more: Any) -> World:  # noqa: ANN401 - fields of a world
    """World of case 12, which needs no data: on cover sheets page 1 names no insurer, and comes back empty.

    Args:
      share: of the requests that are about a contract with a cover sheet. noise_columns: beside `page_1_kind`.

    Source: rule S5.6.
    """
    shares = {"body": {PAGE_1: 1.0, CONTENTS: 0.0}, "coversheet": {PAGE_1: 0.0, CONTENTS: 1.0}}
    mix = {"body": 1.0 - share, "coversheet": share}
    given = {"detects": 1.0, "noise_columns": noise_columns} | more
    return world({f"{INSURER}/contract": shares}, column=COLUMNS[0], mix=mix, **given)


def world_of(name: str, path: str | Path | None, part: Part | None = None, **more: Any) -> World:  # noqa: ANN401
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
