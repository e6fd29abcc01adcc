"""The system (shore): an index opened with its policy, models and caches; `Lab`, `build_index`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from raglab.answering.extractive import Extractive
from raglab.answering.question_vocabulary import Vocabulary, build_vocabulary
from raglab.answering.support import WordSupport
from raglab.arms import LIVE_ARMS
from raglab.canonical import digest
from raglab.decision.measurement import check_model
from raglab.decision.signal_values import STORED, used_signals
from raglab.live.clarification_requests import Clarifier, Parser
from raglab.live.question_signals import DocumentReader
from raglab.live.response import Generator, SupportScorer, TableFirst
from raglab.live.trace_building import RetrievalSettings, Retriever, check_settings, index_fingerprint, retriever
from raglab.packs import Pack
from raglab.patterns import chunk_entities
from raglab.policy import check_pack
from raglab.retrieval.arms import DepthHits, Rewriter, walk
from raglab.retrieval.dense import EmbeddingCache, default_cache, embed
from raglab.store.files import Where, input_error, read_json, write_text
from raglab.store.loaders import Policy, hash_corpus, load_corpus, load_pack, save_corpus
from raglab.text import composed, word_set
from raglab.values import FLOAT_FIELDS, SCHEMA_VERSION, Case, Chunk, Corpus, Hits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from raglab.audit.log import AuditLog
    from raglab.live.online_bandit import Online

SIZE = 2**30  # bytes; the least recently stored go first


class Key(NamedTuple):
    """What an answer hangs on: policy_id and fingerprint name thresholds, patterns, documents and models."""

    policy_id: str
    fingerprint: str
    arm: str
    question: str
    documents: tuple[str, ...]

    def digest(self, *more: object) -> str:
        """SHA-256 over the key and what else the value hangs on."""
        text = json.dumps([*self._replace(documents=tuple(sorted(self.documents))), *more], ensure_ascii=False)
        return digest(text)


def normalise_question(question: str) -> str:
    """A question without what tells no two apart: form of its characters and runs of blanks.

    Case stays: the encoder and the patterns may read it.

    Example:
      >>> normalise_question("  What is   the excess? ")
      'What is the excess?'
    """
    return " ".join(composed(question).split())


class Caches:
    """The answer cache and the strategy cache of a folder, shared by processes; values are JSON, never pickles.

    answers: whole responses. strategies: the arm taken and what it retrieved, depth by depth.
    """

    __slots__ = ("answers", "strategies")

    def __init__(self, folder: str | Path) -> None:
        """Open both caches, making the folder on the way."""
        from diskcache import Cache, JSONDisk

        self.answers: Any = Cache(str(Path(folder) / "answers"), disk=JSONDisk, size_limit=SIZE)
        self.strategies: Any = Cache(str(Path(folder) / "strategies"), disk=JSONDisk, size_limit=SIZE)

    def clear(self) -> None:
        """Empty both."""
        self.answers.clear()
        self.strategies.clear()

    def close(self) -> None:
        """Let go of the files."""
        self.answers.close()
        self.strategies.close()


def pack_depths(found: Sequence[DepthHits]) -> list[dict[str, Any]]:
    """Depths of a retrieval as JSON holds them; floats keep every bit, NaN is null."""

    def plain(name: str, field: Any) -> Any:  # noqa: ANN401 - an array or a list
        values = field.ravel().tolist()
        return [None if value != value else value for value in values] if name in FLOAT_FIELDS else values  # noqa: PLR0124

    return [
        {"query": one.query, "hits": {name: plain(name, field) for name, field in one.hits._asdict().items()}}
        for one in found
    ]


def unpack_depths(rows: Sequence[Mapping[str, Any]]) -> list[DepthHits]:
    """Depths of a retrieval from JSON; they took no time."""

    def field(name: str, values: Sequence[Any]) -> Any:  # noqa: ANN401 - an array
        if name in FLOAT_FIELDS:
            return np.array([np.nan if value is None else value for value in values], dtype=np.float64)[
                None, None, None
            ]
        whole = np.array(values, dtype=np.int32)
        return whole.reshape(1, 1, 1) if name == "n_reranked" else whole[None, None, None]

    return [
        DepthHits(row["query"], Hits(**{name: field(name, row["hits"][name]) for name in Hits._fields}), {})
        for row in rows
    ]


CORPUS, INDEX, EMBEDDINGS, CACHE = "corpus.jsonl", "index.json", "embeddings.sqlite", "cache"
_MAX_BYTES = 2**20
READ_AT_ONCE = 4096  # passages that are kept as they were read


@dataclass(frozen=True, slots=True, eq=False)
class Lab:
    """What answers a question: see `ask`.

    policy: every threshold and pattern. retriever: index and arms. fingerprint: of corpus, models and parameters.
    pack: what the trade calls things, as the policy names it. reader: of the documents, for signals of the parser.
    generator, scorer: what writes answers and what checks them. caches: None keeps nothing. entities: of each chunk,
    under the policy's patterns. arm: that answers, whatever the policy says, where given. online: chooses where arm or
    policy say `bandit`; None where it is switched off. audit: logs every question; None keeps no log. clarifier: asks
    for what a question leaves out; None answers as ever.
    """

    policy: Policy
    retriever: Retriever = field(repr=False)
    fingerprint: str
    generator: Generator
    scorer: SupportScorer
    caches: Caches | None = field(repr=False)
    entities: tuple[tuple[str, ...], ...] = field(repr=False)
    pack: Pack = field(repr=False)
    reader: DocumentReader = field(repr=False)
    arm: str | None = None
    online: Online | None = field(default=None, repr=False)
    audit: AuditLog | None = field(default=None, repr=False)
    clarifier: Clarifier | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Stop where clarifications would be lost, or no question could be decided."""
        check_model(self.policy.structure, self.arm or self.policy.strategy.arm)
        if self.clarifier is not None and self.audit is None:
            msg = "clarifications need the audit log, which holds what was learned; open the lab with audit=True."
            raise ValueError(msg)

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        policy: Policy | str | Path | None = None,
        generator: Generator | None = None,
        scorer: SupportScorer | None = None,
        rewriter: Rewriter | None = None,
        arm: str | None = None,
        cache: bool = True,
        clarify: bool | None = None,
        parser: Parser | None = None,
        audit: bool = True,
    ) -> Self:
        """System over an index that `build_index` made.

        Args:
          folder: of the index. policy: a policy or its file; the published defaults where not given.
          generator: None is extractive. scorer: None is the embedded word scorer. rewriter: None is RM3.
          arm: one of the index's arms, router or bandit; the policy's `strategy.arm` where not given. The bandit's
            settings are those of the environment (`raglab.live.settings`), which may switch it on or off for all that
            state no arm here.
          cache: whether answers and retrievals are kept in the folder.
          clarify: whether a question that leaves something out is asked about, once, and the default learned; as the
            environment says where not given, which is no. parser: reads questions; None is the rules.
          audit: whether questions, decisions and what is learned are logged in the folder, unless the environment says
            otherwise (`raglab.live.settings`); texts older than its keep_days are blanked.

        Raises:
          InputError: no index there, or one that was altered or made by another version; a wrong variable.
          ValueError: clarify without the log, or another pack than that of the index or of what its log has learned.
        """
        from raglab.live.settings import AuditSettings, BanditSettings, ClarifySettings

        # A wrong variable or a wrong index stops before any model is loaded.
        place, bandit = Path(folder), BanditSettings.read()
        corpus, wanted = _index_at(place)
        fingerprint = index_fingerprint(hash_corpus(corpus), wanted.parameters(rewriter))
        chosen = policy if isinstance(policy, Policy) else Policy.load(policy)
        pack = load_pack(chosen.pack)
        remedy = "put that pack back, or make the index again"
        check_pack(read_json(place / INDEX, _MAX_BYTES).get("pack"), pack.stored, f"the index {place}", remedy)
        # Models and indexes; embeddings of the corpus are kept beside it, so that only the first start encodes them.
        stored = EmbeddingCache(place / EMBEDDINGS)
        ready = retriever(corpus, wanted, stored, rewriter=rewriter, pack=pack)
        tables = ready.indexes.tables
        base = Extractive(pack=pack) if generator is None else generator
        kept = Caches(place / CACHE) if cache else None
        named = chunk_entities(ready.chunks, chosen.pattern_lists.entities)
        judge = scorer or WordSupport()
        _read_passages(ready.chunks, base, judge)
        reader = DocumentReader(tuple(corpus.chunks), pack)
        if any(name in STORED for name in used_signals(chosen)):  # so that no first question pays for it
            reader.parsed(Case("start", "", "ok"))
        # A row of a table answers for itself; what is no row goes to the generator.
        writer = base if tables is None else TableFirst.over(base, tables, ready.chunks)
        # The bandit needs an arm that answers live, and can be switched off from outside the policy.
        stated = arm or ("bandit" if bandit.enabled else None)
        off = bandit.enabled is False or not set(ready.strategies) & set(LIVE_ARMS)
        online = None if off else bandit.online(place, tuple(ready.strategies))
        if online is not None and (stated or chosen.strategy.arm) == "bandit":
            for strategy in ready.strategies.values():  # so that no arm's first question pays for a start
                next(walk(strategy, ready.question(corpus.chunks[0].text)))
        # The audit log comes before the clarifier, which learns from it; old texts are blanked at every start.
        asking, logging = ClarifySettings.read(), AuditSettings.read()
        asks = asking.enabled is True if clarify is None else clarify
        log = logging.audit_log(place, asking.learner) if audit and logging.enabled else None
        if log is not None and log.keep_days:
            log.forget()
        clarifier = None
        if asks or (asking.options and clarify is not False):
            words = _words(corpus.chunks, ready, stored, pack) if asks else None  # choices among options need none
            clarifier = Clarifier(
                costs=asking, learner=asking.learner, chunks=corpus.chunks, vocabulary=words, pack=pack, parser=parser
            )
            if log is not None:
                remedy = "put that pack back, or move the log away and learn anew"
                check_pack(log.pack(), pack.digest, f"what the log of {place} has learned", remedy)
        return cls(
            policy=chosen,
            retriever=ready,
            fingerprint=fingerprint,
            generator=writer,
            scorer=judge,
            caches=kept,
            entities=named,
            pack=pack,
            reader=reader,
            arm=stated,
            online=online,
            audit=log,
            clarifier=clarifier,
        )

    def replace(self, policy: Policy) -> Self:
        """The same system under another policy, whatever pack that names: the index was opened with this one.

        Raises:
          ValueError: the policy names another pack.
        """
        check_pack(self.pack.stored, policy.pack_hash, "an open index", "open it again under that policy")
        named = chunk_entities(self.retriever.chunks, policy.pattern_lists.entities)
        return dataclasses.replace(self, policy=policy, entities=named)


def _index_at(place: Path) -> tuple[Corpus, RetrievalSettings]:
    """Corpus and settings of the index in a folder.

    Raises:
      InputError: no index there, or one that was altered or made by another version.
    """
    where = Where(str(place / INDEX))
    if not (place / INDEX).is_file():
        raise input_error(where, "an index must be a folder that holds index.json", "make it with `raglab index`")
    head = read_json(place / INDEX, _MAX_BYTES)
    corpus = load_corpus(place / CORPUS)
    wanted = check_settings(head["settings"])
    if head.get("schema_version") != SCHEMA_VERSION or head.get("corpus_hash") != hash_corpus(corpus):
        came = f"version {head.get('schema_version')} of corpus {str(head.get('corpus_hash'))[:12]}"
        rule = f"an index must be version {SCHEMA_VERSION} of the corpus beside it"
        raise input_error(where, rule, "make it again with `raglab index`", came)
    return corpus, wanted


def _words(chunks: Sequence[Chunk], ready: Retriever, stored: EmbeddingCache, pack: Pack) -> Vocabulary:
    """Field vocabulary of a corpus; its embeddings are kept, those of questions are not."""

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        return embed(ready.encoder, list(texts), None).vectors

    known = build_vocabulary(chunks, lambda texts: embed(ready.encoder, list(texts), stored).vectors, pack=pack)
    return known._replace(encode=encode)


def _read_passages(chunks: Sequence[Chunk], generator: Generator, scorer: SupportScorer) -> None:
    """Read a corpus of ordinary size once, so that no question waits for a passage to be cut into words."""
    if len(chunks) > READ_AT_ONCE or not (isinstance(generator, Extractive) and isinstance(scorer, WordSupport)):
        return
    for chunk in chunks:
        generator.answer(chunk.source, [chunk])
        scorer.support(chunk.source, [chunk.text])
        word_set(chunk.text)


def build_index(
    corpus: Corpus,
    folder: str | Path,
    *,
    arms: Sequence[str] = LIVE_ARMS,
    cache: EmbeddingCache | Literal["default"] | None = "default",
    progress: bool = False,
    policy: Policy | None = None,
    **settings: Any,  # noqa: ANN401 - fields of Settings
) -> str:
    """Index a corpus into a folder: its chunks, and their embeddings; the rest is derived from them on loading.

    Args:
      folder: made where it is not there; an index of the same corpus and settings is left as it is.
      arms: that may answer. cache: from which embeddings are copied where it has them. policy: whose pack the index is
        for, and no other; any where it names none.
      settings: further fields of `RetrievalSettings`.

    Returns: the fingerprint.

    Raises:
      ValueError: no chunks, an unknown setting or arm.
    """
    if not corpus.chunks:
        msg = "an index needs at least one chunk, got none; check the folder of the documents."
        raise ValueError(msg)
    place = Path(folder)
    wanted = check_settings({"arms": tuple(arms), **settings})
    place.mkdir(parents=True, exist_ok=True)
    save_corpus(corpus, place / CORPUS)
    stored = load_corpus(place / CORPUS)
    behind = default_cache() if cache == "default" else cache
    retriever(stored, wanted, EmbeddingCache(place / EMBEDDINGS, behind), progress=progress)
    fingerprint = index_fingerprint(hash_corpus(stored), wanted.parameters(None))
    head = {
        "schema_version": SCHEMA_VERSION,
        "fingerprint": fingerprint,
        "corpus": stored.name,
        "n_chunks": len(stored.chunks),
        "corpus_hash": hash_corpus(stored),
        "settings": wanted._asdict() | {"arms": list(wanted.arms)},
    }
    pack = None if policy is None else load_pack(policy.pack).stored
    if pack is not None:
        head["pack"] = pack
    write_text(json.dumps(head, indent=2) + "\n", place / INDEX)
    return fingerprint
