"""A small collection, its questions, and models of words that stand in for the bundled ones."""

from __future__ import annotations

import zlib

import numpy as np

from generators import Fixed
from raglab.live.system import System, build_index
from raglab.models.loaders import Encoding
from raglab.store.policies import Policy
from raglab.values import Case, Chunk, Corpus

DIM = 8


def chunk(number, source, page, text, **tags):
    """Passage of the small collection."""
    return Chunk(f"{source}#{number}", text, f"docs/{source}", page, None, tags, ())


CORPUS = Corpus(
    "small",
    (
        chunk(
            1,
            "motor.md",
            1,
            "The motor excess is 250 pounds for each claim.",
            domain="motor",
            doc_type="wording",
        ),
        chunk(
            2,
            "motor.md",
            2,
            "Windscreen repair under the motor policy has no excess.",
            domain="motor",
        ),
        chunk(3, "motor.md", 3, "A courtesy car is provided for fourteen days.", domain="motor"),
        chunk(
            4,
            "home.md",
            1,
            "The home excess is 100 pounds, or 1,000 pounds for subsidence.",
            domain="home",
        ),
        chunk(5, "home.md", 2, "Escape of water is covered up to the sum insured.", domain="home"),
        chunk(6, "home.md", 2, "Gardens and fences are not covered against storm.", domain="home"),
        chunk(
            7,
            "travel.md",
            1,
            "Cancellation is covered up to 5,000 pounds a person.",
            domain="travel",
            vendor="Alba",
        ),
        chunk(
            8,
            "travel.md",
            2,
            "Lost baggage must be reported within 24 hours.",
            domain="travel",
            vendor="Alba",
        ),
        chunk(
            9,
            "travel.md",
            3,
            "Winter sports need the extra premium to be paid.",
            domain="travel",
            vendor="Bora",
        ),
        chunk(10, "faq.txt", None, "Claims are reported by telephone or on the web site."),
        chunk(
            11, "faq.txt", None, "La franchise est le montant qui reste à la charge de l'assuré."
        ),
        chunk(
            12,
            "faq.txt",
            None,
            "The policy can be cancelled within fourteen days of its start. " * 20,
        ),
    ),
)
CASES = (
    Case("a", "What is the motor excess?", "ok", ("motor.md#1",)),
    Case("b", "Is a courtesy car provided?", "ok", ("motor.md#3",)),
    Case("c", "excess", "ambiguous"),
    Case(
        "d",
        "How soon must lost baggage be reported to the insurer after the flight has landed?",
        "ok",
    ),
    Case("e", "What is the excess?", "ok", selected_sources=("home.md",)),
    Case("f", "What is covered?", "ok", selected_sources=("home.md#2", "faq.txt")),
    Case("g", "", "refuse"),
)
SMALL = {"fetch_k": 6, "rerank_k": 4}


class WordEncoder:
    """Each word has a fixed direction.

    What is encoded beside a text moves its last bits, as in a real encoder.
    """

    name = "words"
    dim = DIM
    max_tokens = None

    def __init__(self):
        self.seen = []

    def both(self, texts, *, query=False):
        """Sentence and token embeddings; no prompt goes before either kind."""
        del query
        self.seen.extend(texts)
        beside = 1e-4 * (zlib.crc32(repr(list(texts)).encode()) % 7)
        tokens = [
            np.array([_direction(word) for word in text.lower().split()]).reshape(-1, DIM)
            for text in texts
        ]
        sums = np.array([rows.sum(axis=0) + _direction("") + beside for rows in tokens])
        unit = (sums / np.linalg.norm(sums, axis=1, keepdims=True)).astype(np.float32)
        return Encoding(unit, [rows.astype(np.float16) for rows in tokens])

    def sentences(self, texts, *, query=False):
        """Sentence embeddings."""
        return self.both(texts, query=query).sentences


def _direction(word):
    row = np.random.default_rng(zlib.crc32(word.encode())).normal(size=DIM)
    return row / np.linalg.norm(row)


class PairEncoder:
    """A cross-encoder whose logits depend on how many pairs it is given at once."""

    name = "pairs"

    def logits(self, pairs):
        """Logit of each pair."""
        return np.array([len(set(a.split()) & set(b.split())) - 2 for a, b in pairs]) + 1e-3 * len(
            pairs
        )


def stand_ins(words):
    """What of `retriever` stands in for the bundled model and its name, by name."""
    return {
        "load_encoder": lambda _, **__: words,
        "load_cross_encoder": lambda _: PairEncoder(),
        "identifier_of": lambda name: "words" if name is None else name,
        "pinned_name": lambda name, **_: name,
    }


class Calls:
    """Sizes of the batches that are retrieved from now on; `stop_after` so many, the run breaks."""

    def __init__(self):
        self.sizes = []
        self.stop_after = 1_000

    def clear(self, stop_after=1_000):
        """Count anew."""
        self.sizes, self.stop_after = [], stop_after


OPEN = {gate: {"enabled": False} for gate in ("l2", "similarity", "gap", "support")}


def opener(
    folder,
    base,
    generator=Fixed(),  # noqa: B008 - a tuple
    **building,
):
    """What opens a system over the small corpus, with an index in a folder."""
    build_index(CORPUS, folder, cache=None, **SMALL, **building)

    def make(policy=None, **more):
        stated = Policy.from_mapping(base | (policy or {}))
        return System.open(
            folder, **{"policy": stated, "cache": False, "generator": generator, **more}
        )

    return make


UNGATED = {
    name: {"enabled": False} for name in ("l2", "similarity", "gap", "support", "confidence")
}


def opened_on_disk(disk, **more):
    """System over the index of a disk."""
    policy = Policy.from_mapping(UNGATED | {"strategy": {"arm": more.pop("stated", "hybrid")}})
    return System.open(disk / "i", policy=policy, **{"generator": Fixed(), **more})
