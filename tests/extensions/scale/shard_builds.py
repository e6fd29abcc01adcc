"""What shards are made of, here and by workers that read by an encoder of words."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from live_worlds import WordEncoder, stand_ins
from raglab.live import retriever
from raglab.store.loaders import load_cases, load_corpus
from stored_traces import stored
from trades import BROKER
from worlds import random_trace

OPTIONS: dict[str, Any] = {"shard": 2, "batch_size": 1, "cache": None}


@cache
def inputs():
    """A part of the bundled documents, and eight questions that name none of them."""
    corpus = load_corpus(BROKER / "documents")
    corpus = corpus._replace(chunks=corpus.chunks[::48])
    cases = [case for case in load_cases(BROKER / "cases.jsonl") if not case.selected_sources][
        ::30
    ][:8]
    return corpus, [case._replace(expect_sources=(), expect_sources_any=()) for case in cases]


class InterruptedEncoder(WordEncoder):
    """The encoder of words; something happens to its process when it comes to the last question."""

    def __init__(self, happens):
        super().__init__()
        self.happens, self.last = happens, inputs()[1][-1].query

    def both(self, texts, *, query=False):
        """Sentence and token embeddings."""
        if query and self.last in texts:
            self.happens()
        return super().both(texts, query=query)


def read_words(happens=bool):
    """Have this process read by an encoder of words.

    No worker takes ten seconds to load a model.
    """
    for name, value in stand_ins(InterruptedEncoder(happens)).items():
        setattr(retriever, name, value)


def workers_read_words(client, happens):
    """Have each worker of a cluster read so, also one that takes the place of another."""
    from distributed import WorkerPlugin

    class Words(WorkerPlugin):  # type: ignore[misc]
        def setup(self, worker):
            del worker
            read_words(happens)

    client.register_plugin(Words())


SPLITS = ("tune", "certify", "report")


def split_world(n_cases=7, seed=0):
    """Trace of some cases in turn of each split."""
    plain = random_trace(seed, n_cases=n_cases, arms=2, depths=2)
    cases = tuple(case._replace(split=SPLITS[row % 3]) for row, case in enumerate(plain.cases))
    return stored(dataclasses.replace(plain, cases=cases))
