"""ClariQ, ShARC and case 12 worlds, and a world's part of stable defaults, for clarification.

They serve to simulate clarification.
"""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np

from raglab.default_learner import World, world
from raglab.words.text import content_words
from raglab.words.tokeniser import split_words

Part = Literal["tune", "held_out"]
PARTS: tuple[Part, ...] = ("tune", "held_out")
TURN = ("question", "answer")
REFUSES = frozenset({"no", "not", "nope"})


def stable(simulated: World) -> World:
    """Part of a world whose defaults are stable.

    No noise, no drift, and contexts in which a user has one true value.

    Raises:
      ValueError: no context is left.

    Source: rule S5.4.

    Example:
      >>> shares = {
      ...     "a": {"body": {"1": 1.0}},
      ...     "b": {"body": {"1": 1.0}, "cover": {"1": 0.0, "toc": 1.0}},
      ... }
      >>> stable(world(shares, column="page_1_kind", noise=0.1)).contexts
      ('a',)
    """
    right, there = simulated.shares.argmax(axis=-1), simulated.scenes > 0.0
    first = np.take_along_axis(right, there.argmax(axis=-1)[:, None], axis=-1)
    alike = ((right == first) & (simulated.shares.max(axis=-1) == 1.0)) | ~there
    # In one scene every user has one true value of their own; in several they must be the same.
    rows = np.flatnonzero(alike.all(axis=-1) | (there.sum(axis=-1) == 1))
    if not rows.size:
        msg = (
            f"a stable world needs a context of one true value, got none of {len(right)}; take "
            "another world."
        )
        raise ValueError(msg)
    arrays = {
        name: getattr(simulated, name)[rows] for name in ("scenes", "shares", "stray", "levels")
    }
    return simulated._replace(
        contexts=tuple(simulated.contexts[row] for row in rows),
        values=tuple(simulated.values[row] for row in rows),
        traffic=simulated.traffic[rows] / simulated.traffic[rows].sum(),
        noise=np.zeros(len(rows)),
        drift=np.zeros(len(rows)),
        **arrays,
    )


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
    """World of ClariQ.

    A context a topic, its facets the hidden intents, one of them sampled for each user.

    Measured on the data: which facets a topic has, its `clarification_need`, and `names`, the share
    of the answers beginning with no that also say what is wanted instead. Assumed: facets of a
    topic are equally likely (the data has no shares); a user comes back to `at_once` topics;
    `drift`, that a request begins a new intent; and `noise`, since the data has one request a
    topic: a request of need 1 (clear) always wants its user's own facet, and each further step of
    need makes it want another one in `noise_per_need` of the cases, so that need 4 (very ambiguous)
    has three times that. Nothing detects a wrong facet. Topics of one facet are left out: there is
    nothing to ask.

    Args:
      folder: holds train.tsv and dev.tsv.
      part: topics of one part only, by `topic_part`; all where not given.
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
    assumed: dict[str, Any] = {
        "noise": noise,
        "drift": 0.001,
        "names": no_with_value_share(replies),
        "at_once": 4,
    }
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


# fields of a world
def sharc(path: str | Path, part: Part | None = None, **more: Any) -> World:  # noqa: ANN401
    """World of ShARC.

    A context a follow-up question of a rule tree, its hidden fact Yes or No for each user.

    Measured on the data: the share of Yes and No of each question (spellings of one question are
    one). Assumed: `noise` (a request about another person's case), `drift` (a fact that changed),
    and that a user comes back to `at_once` questions. Who says no to Yes has named No. Questions
    that all answer alike stay: they must not be asked for ever.

    Args:
      path: JSON file, or the folder that holds it.
      part: rule trees of one part only, by `topic_part`.

    Source: Saeidi et al. 2018, ShARC; rule S5.4.
    """
    place = Path(path)
    file = (
        place
        if place.is_file()
        else next(iter(sorted(place.glob("*.json"))), place / "sharc_dev.json")
    )
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    names: dict[tuple[str, str], str] = {}  # spelt with and without blanks it is one question
    for row in json.loads(file.read_text(encoding="utf-8")):
        if part not in {None, topic_part(row["tree_id"])}:
            continue
        for turn in (*row["history"], *row["evidence"]):
            question, answer = (
                turn.get(f"follow_up_{key}", turn.get(f"followup_{key}")) for key in TURN
            )
            words = split_words(question)
            name = names.setdefault(
                (row["tree_id"], "".join(words)), f"{row['tree_id'][:8]} {' '.join(words)}"
            )
            counts[name][answer.capitalize()] += 1
    shares = {name: {"Yes": float(of["Yes"]), "No": float(of["No"])} for name, of in counts.items()}
    traffic = [sum(of.values()) for of in shares.values()]
    return world(shares, traffic=traffic, **{"noise": 0.01, "drift": 0.001, "at_once": 4} | more)


# fields of a world
def cover(share: float = 0.4, *, noise_columns: int = 20, **more: Any) -> World:  # noqa: ANN401
    """World of case 12, which needs no data.

    On cover sheets page 1 names no vendor, and comes back empty.

    Args:
      share: share of the requests that are about a contract with a cover sheet.
      noise_columns: number of columns beside `page_1_kind`.

    Source: rule S5.6.
    """
    shares = {"body": {"1": 1.0, "toc": 0.0}, "coversheet": {"1": 0.0, "toc": 1.0}}
    mix = {"body": 1.0 - share, "coversheet": share}
    return world(
        {"vendor_name/contract": shares},
        column="page_1_kind",
        mix=mix,
        **{"detects": 1.0, "noise_columns": noise_columns} | more,
    )
