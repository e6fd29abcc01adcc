"""The system (shore): an index opened with its policy, models and caches.

`System`, `build_index`.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, cast, get_args

import numpy as np

from raglab.answering.extractive import Extractive
from raglab.answering.generation import ModelGenerator
from raglab.answering.required_confidence import check_confidence, confidence_switch
from raglab.answering.support import WordSupport
from raglab.arguments.user_warnings import warn_user
from raglab.decision.measurement import check_model
from raglab.decision.signal_values import used_signals
from raglab.live.certified_retrieval import check_scores, warn_of_other_retrieval
from raglab.live.clarifier import (
    Clarifier,
    FieldReader,
    GapFinder,
    QuestionParser,
    ReplyReader,
    clarifier_maker,
)
from raglab.live.index_folder import CACHE, EMBEDDINGS, Index, read_index, write_index
from raglab.live.measured_signals import LiveSignals
from raglab.live.response import (
    SupportScorer,
    behind_own_answers,
    with_own_answers,
    with_required_confidence,
)
from raglab.live.retriever import (
    RetrievalSettings,
    Retriever,
    check_settings,
    retriever,
    warn_of_unread,
)
from raglab.live.signal_families import DocumentReader
from raglab.live.signal_functions import SignalFunction, signal_functions
from raglab.policy import check_pack
from raglab.policy_parts.arms import LIVE_ARMS
from raglab.policy_parts.patterns import chunk_entities
from raglab.retrieval.arms import DepthHits, check_arm, live_arms, walk
from raglab.retrieval.dense import EmbeddingCache, default_cache
from raglab.retrieval.rewriting import Rewriter
from raglab.store.blobs import CACHE_PATIENCE_S, Blobs, own_secret, pause_after
from raglab.store.database import UnwritableLogError
from raglab.store.files import Where, input_error
from raglab.store.policies import Policy, load_pack
from raglab.values import FLOAT_FIELDS, AnyArray, Corpus, Generator, Hits, refuse
from raglab.words.canonical import digest
from raglab.words.characters import composed, visible
from raglab.words.packs import Pack

if TYPE_CHECKING:
    from raglab.audit.log import AuditLog
    from raglab.live.online_bandit import Online
    from raglab.live.settings import Settings

AUDIT = "audit"
BANDIT = "bandit"
AUDIT_UNWRITABLE = "the audit log cannot be written: questions get no row in it"
BANDIT_UNWRITABLE = "the bandit's log cannot be written: the router chooses, nothing is learned"
_UNWRITABLE = {AUDIT: AUDIT_UNWRITABLE, BANDIT: BANDIT_UNWRITABLE}
# A question waits so long for its turn in a log, where a batch of writers waits for
# `raglab.store.blobs.BUSY_S`; then the log is left alone for a while, see `pause_after`.
PATIENCE_S = 3.0

T = TypeVar("T")
MAX_CACHE_BYTES = 2**30  # bytes; the least recently stored go first


class Key(NamedTuple):
    """What an answer depends on.

    policy_id and fingerprint name thresholds, patterns, documents and models.
    """

    policy_id: str
    fingerprint: str
    arm: str
    question: str
    documents: tuple[str, ...]

    def digest(self, *value_parts: object) -> str:
        """SHA-256 over the key and what else the value depends on."""
        key_json = json.dumps(
            [*self._replace(documents=tuple(sorted(self.documents))), *value_parts],
            ensure_ascii=False,
        )
        return digest(key_json)


def normalise_question(question: str) -> str:
    """A question without what tells no two apart: form of its characters and runs of blanks.

    Case stays: the encoder and the patterns may read it.

    Example:
      >>> normalise_question("  What is   the excess? ")
      'What is the excess?'
    """
    return " ".join(composed(question).split())


class JsonCache:
    """JSON values by key.

    Only what this user's own processes wrote comes back: the digests depend on a secret.
    """

    def __init__(self, path: Path, secret: bytes) -> None:
        self._blobs = Blobs(
            path, most_bytes=MAX_CACHE_BYTES, secret=secret, patience_s=CACHE_PATIENCE_S
        )
        self.clear, self.close = self._blobs.clear, self._blobs.close

    def get(self, key: str, read_value: Callable[[Any], T]) -> T | None:
        """What `read_value` makes of the value; None if none.

        A value that it refuses is taken out.
        """
        stored_json = self._blobs.get([key]).get(key)
        with suppress(ValueError, TypeError, LookupError, OverflowError, RecursionError):
            return None if stored_json is None else read_value(json.loads(stored_json))
        self._blobs.drop([key])
        return None

    def set(self, key: str, value: object) -> None:
        """Keep a value, over one that is there."""
        self._blobs.put({key: json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()})

    def __contains__(self, key: str) -> bool:
        return bool(self._blobs.get([key]))


class Caches:
    """The answer cache and the strategy cache of a folder, shared by this user's processes.

    Values are JSON.

    A cache that came with the folder of somebody else holds nothing, since its digests depend on
    another secret.

    answers: whole responses. strategies: the arm taken and what it retrieved, depth by depth.
    """

    def __init__(self, folder: str | Path) -> None:
        """Name both caches; the folder is made by the first write."""
        secret = own_secret()
        self.answers = JsonCache(Path(folder) / "answers.sqlite", secret)
        self.strategies = JsonCache(Path(folder) / "strategies.sqlite", secret)

    def clear(self) -> None:
        """Empty both."""
        for cache in (self.answers, self.strategies):
            cache.clear()

    def close(self) -> None:
        """Let go of the files."""
        for cache in (self.answers, self.strategies):
            cache.close()


def pack_depths(depths: Sequence[DepthHits]) -> list[dict[str, Any]]:
    """Depths of a retrieval as JSON holds them; floats keep every bit, NaN is null."""
    rows = []
    for depth in depths:
        hit_fields: dict[str, list[Any]] = {}
        for name in Hits._fields:
            values: AnyArray = getattr(depth.hits, name).ravel()
            is_missing = np.isnan(values) if name in FLOAT_FIELDS else False
            hit_fields[name] = np.where(is_missing, None, values).tolist()  # type: ignore[call-overload]
        rows.append({"query": depth.query, "hits": hit_fields})
    return rows


def unpack_depths(depth_rows: Sequence[Mapping[str, Any]], n_chunks: int) -> list[DepthHits]:
    """Depths of a retrieval from JSON; they took no time.

    Args:
      n_chunks: that there are to be hit.

    Raises:
      ValueError, TypeError, KeyError: rows that are none.
    """
    depths = []
    for depth_row in depth_rows:
        hit_fields: dict[str, AnyArray] = {
            field_name: np.array(
                field_values, dtype=np.float64 if field_name in FLOAT_FIELDS else np.int32
            )
            for field_name, field_values in dict(depth_row["hits"]).items()
        }
        hits = Hits(
            **{field_name: field.reshape(1, 1, 1, -1) for field_name, field in hit_fields.items()}
        )
        field_shapes = {field.shape for field in hits[:-1]}
        hits = hits._replace(n_reranked=hits.n_reranked.reshape(1, 1, 1))
        chunks_known = ((hits.chunk >= -1) & (hits.chunk < n_chunks)).all()
        if not isinstance(depth_row["query"], str) or len(field_shapes) > 1 or not chunks_known:
            message = "a depth must hold a query and hits of known chunks, of one shape."
            raise ValueError(message)
        depths.append(DepthHits(depth_row["query"], hits, {}))
    return depths


OnError = Literal["raise", "refuse"]


def check_on_error(on_error: str) -> OnError:
    """What is done where a language model fails.

    Raises:
      ValueError: it is neither `raise` nor `refuse`.
    """
    if on_error not in get_args(OnError):
        refuse("on_error must be one of raise, refuse", f"{on_error!r:.80}", "correct it")
    return cast("OnError", on_error)


class LabOpening(NamedTuple):
    """What a system was opened with that outlives a change of its documents.

    generator: of what no row of a table answers. clarifier: makes what asks and learns from
    documents and their index, None where nothing is asked or learned.
    """

    place: Path
    settings: RetrievalSettings
    rewriter: Rewriter | None
    generator: Generator
    clarifier: Callable[..., Clarifier] | None


class LogOutages:
    """Outages of the logs of one system, shared by its threads."""

    def __init__(self) -> None:
        # by log: time of the monotonic clock before which it is not tried again, last message
        self._outages: dict[str, tuple[float, str]] = {}

    @contextmanager
    def writing(self, log: str, *, required: bool = False, ends: bool = True) -> Iterator[None]:
        """A block that writes rows of a question; the first failure of an outage is a warning.

        Args:
          log: `audit` or `bandit`.
          required: whether the question is refused without its rows; then each one tries.
          ends: whether the block writes the last row of a question, whose success ends an outage:
            on a full disk there may be room for the first.

        Raises:
          UnwritableLogError: the log cannot be written; nothing was tried where that was so a
            moment ago.
        """
        retry_time, last_message = self._outages.get(log, (0.0, ""))
        if not required and monotonic() < retry_time:
            raise UnwritableLogError(last_message)
        try:
            yield
        except UnwritableLogError as error:
            if not required:
                outage = monotonic() + pause_after(error.seconds), str(error)
                is_first = self._outages.setdefault(log, outage) is outage
                self._outages[log] = outage
                if is_first:
                    warn_user(f"{_UNWRITABLE[log]} ({error})")
            raise
        if ends:
            self._outages.pop(log, None)


@dataclass(slots=True, eq=False)
class System:
    """System that answers questions: see `ask`.

    Only `add`, `remove` and `refresh` change it, where its documents change.

    Attributes:
      policy: every threshold and pattern.
      retriever: index and arms.
      fingerprint: of corpus, models and parameters.
      generator: the generator that writes answers.
      scorer: the scorer that checks their claims.
      caches: of answers and retrievals; None stores nothing.
      entities: of each chunk, under the policy's patterns.
      pack: words of the trade, as the policy names it.
      reader: of the documents, for signals of the parser.
      arm: the arm that answers, before that of the policy; None leaves the choice to the policy.
      online: bandit that chooses where `arm` or the policy is `bandit`; None where it is switched
        off.
      audit: logs every question; None keeps no log.
      audit_required: whether a question that cannot be logged is refused.
      clarifier: asks for what a question leaves out; None never asks.
      signals: functions that measure what the policy uses besides the built-in signals.
      opening: None where the documents cannot change.
      on_error: answer to a question whose model fails, see `open`.
      log_outages: of its logs, each of them one warning.
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
    audit_required: bool = False
    clarifier: Clarifier | None = field(default=None, repr=False)
    signals: LiveSignals = field(default=LiveSignals(), repr=False)
    opening: LabOpening | None = field(default=None, repr=False)
    on_error: OnError = "raise"
    # see `RequiredConfidence`
    _confident: dict[str, bool] = field(default_factory=dict, repr=False)
    log_outages: LogOutages = field(default_factory=LogOutages, repr=False)
    # Held while this system takes up other documents, and while a request takes hold of it.
    _change: threading.Lock = field(default_factory=threading.Lock, repr=False, init=False)

    def __repr__(self) -> str:
        n_indexed = self.retriever.indexes.n_chunks
        n_documents = len({chunk.document for chunk in self.retriever.chunks[:n_indexed]})
        return (
            f"{type(self).__name__}({n_indexed:,} chunks of {n_documents:,} documents, policy "
            f"{self.policy.policy_id}, arm {self.arm or self.policy.strategy.arm!r}, generator "
            f"{self.generator.name!r}, logs={self.audit is not None}, "
            f"clarifies={self.clarifier is not None})"
        )

    def __post_init__(self) -> None:
        """Stop where clarifications would be lost, or no question could be decided."""
        if self.policy.tuned_scores is not None:
            check_scores(self.policy)
        check_model(self.policy.structure, self.arm or self.policy.strategy.arm)
        if self.clarifier is not None and self.audit is None:
            message = "clarifications need the audit log; open the system with audit=True."
            raise ValueError(message)

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
        parser: QuestionParser | None = None,
        gap_finder: GapFinder | None = None,
        reply_reader: ReplyReader | None = None,
        field_reader: FieldReader | None = None,
        reader_timeout_s: float | None = 30.0,
        audit: bool | Literal["required"] = True,
        signals: SignalFunction | Sequence[str | SignalFunction] = (),
        signal_timeout_s: float | None = 30.0,
        on_error: OnError | None = None,
    ) -> Self:
        """System over an index that `build_index` made.

        Args:
          folder: of the index.
          policy: a policy or its file; the published defaults where not given.
          generator: None is extractive.
          scorer: None is the embedded word scorer.
          rewriter: None is RM3.
          arm: one of the index's arms, router or bandit; the policy's `strategy.arm` where not
            given. The bandit's settings are those of the environment (`raglab.live.settings`),
            which may switch it on or off for all that state no arm here.
          cache: whether answers and retrievals are kept in the folder; never where the environment
            lets the log keep no text of questions, or keep texts for some days alone.
          clarify: whether a question that leaves something out is asked about, once, and the
            default learned; as in the environment where not given, else no.
          parser: callable that reads questions (`raglab.live.clarifier`); None is the default. This
            and the three below are tried on an example here. One that raises later, takes too long,
            or quotes what the documents do not hold is replaced by the default, with one warning.
          gap_finder: callable that finds what a question leaves out; None is the default.
          reply_reader: callable that reads replies; None is the default.
          field_reader: callable that reads fields of documents; None is the default.
          reader_timeout_s: seconds that all calls of these four may take for one question; None
            waits for ever.
          audit: whether questions, decisions and what is learned are logged in the folder, unless
            the environment decides otherwise (`raglab.live.settings`); texts older than its
            keep_days are blanked. Where the log cannot be written (a place for reading alone, a
            full disk, a lock, a server that is away), questions are answered without a row,
            `response.record.logged` is False, and one warning marks the beginning and one the end;
            `required` refuses them.
          signals: functions of signals that the policy uses; they take precedence over registered
            ones and entry points. The function of a calibrated signal is
            `SignalCalibration.signal_function(function)`.
          signal_timeout_s: seconds that all calls of such functions may take for one question, then
            their signals are missing; None waits for ever.
          on_error: answer to a question whose language model fails (rule S0.1). `raise`, the
            default, raises `ModelUnavailableError`; `refuse` is for a service that must answer: a
            refusal whose `error` names the failure, and which counts in no rate. As in the
            environment where not given.

        Raises:
          InputError: no index there, or one that was altered or made by another version; a wrong
            variable; a log that is required, or that clarifications need, where nothing can be
            written.
          MissingExtensionError: clarify, or a signal of the question parser in the policy, without
            `raglab/extensions/clarification`.
          ValueError: a policy tuned on scores of another system; clarify without the log, another
            pack than that of the index or of what its log has learned, or a signal in the policy
            that neither raglab nor a function measures; two functions of one name; an arm that the
            index lacks.
          TypeError: what is no signal function among signals.

        Warns:
          UserWarning: callables that nothing uses; or a policy that was certified on another arm or
            retrieval.
        """
        from raglab.live.settings import Settings

        # A wrong variable, a wrong index or a signal that is not there stops before any model is
        # loaded.
        index_path = Path(folder)
        settings = Settings.read()
        index = read_index(index_path, rewriter)
        chosen_policy = policy if isinstance(policy, Policy) else Policy.load(policy)
        live_signals = LiveSignals(signal_functions(signals), signal_timeout_s).under(chosen_policy)
        pack = load_pack(chosen_policy.pack)
        check_pack(
            index.head.pack,
            pack.stored,
            f"the index {index_path}",
            "put that pack back, or make the index again",
        )
        # The audit log comes before the clarifier, which learns from it; old texts are blanked at
        # every start.
        asks_back = settings.clarify_enabled is True if clarify is None else clarify
        learns_defaults = asks_back or (settings.clarify_options and clarify is not False)
        callables: dict[str, Any] = {
            "parser": parser,
            "gap_finder": gap_finder,
            "reply_reader": reply_reader,
            "field_reader": field_reader,
        }
        make_clarifier = None
        if learns_defaults:
            make_clarifier = partial(
                clarifier_maker(), settings, timeout_s=reader_timeout_s, asks=asks_back, **callables
            )
        unused_callables = [
            name for name, function in callables.items() if function is not None and not asks_back
        ]
        if unused_callables:
            warn_user(
                f"{', '.join(unused_callables)}: clarification is off; open the system with "
                "clarify=True."
            )
        audit_log, required = _audit_log(
            index_path, settings, audit=audit, learns_defaults=learns_defaults
        )
        if audit_log is not None and learns_defaults:
            check_pack(
                audit_log.pack(),
                pack.digest,
                f"what the log of {index_path} has learned",
                "put that pack back, or move the log away",
            )
        # caches hold questions and answers, which the log is then not to keep
        caches = None
        cache_folder = index_path / CACHE
        if cache and settings.audit_query == "text" and not settings.audit_keep_days:
            caches = Caches(cache_folder)
            if cache_folder.is_symlink():  # out of its folder
                warn_user(f"the caches {visible(str(cache_folder))} are a link, and are not used.")
                caches = None
        base_generator = Extractive(pack=pack) if generator is None else generator
        opening = LabOpening(index_path, index.settings, rewriter, base_generator, make_clarifier)
        document_fields = _documents_fields(index, opening, chosen_policy, pack)
        # The bandit needs an arm that answers live; the environment may switch it off.
        stated_arm = arm or ("bandit" if settings.bandit_enabled else None)
        wanted_arm = stated_arm or chosen_policy.strategy.arm
        check_arm(wanted_arm, document_fields["retriever"].strategies)
        warn_of_other_retrieval(
            chosen_policy,
            index.settings.parameters(rewriter),
            arm=wanted_arm,
            place=f"index {index_path}",
        )
        bandit = _online(
            index_path, document_fields["retriever"], settings, is_wanted=wanted_arm == "bandit"
        )
        return cls(
            policy=chosen_policy,
            scorer=scorer or WordSupport(),
            caches=caches,
            pack=pack,
            arm=stated_arm,
            online=bandit,
            audit=audit_log,
            audit_required=required,
            signals=live_signals,
            opening=opening,
            on_error=check_on_error(on_error or settings.answer_on_error),
            **document_fields,
        )

    def check(self) -> Self:
        """Find before the first question what would fail every question.

        A failing server or a missing confidence.

        A language model gets a handful of tokens to test what its backend can do, and one line is
        printed, which names the model of its replies where they state another than requested: a
        server may take any name. The audit log is opened for writing, and made where it does not
        exist; a log that cannot be written is a warning, at each call.

        Returns:
          This system.

        Raises:
          ModelUnavailableError: the server failed.
          UnwritableLogError: the audit log cannot be written, and is required.
          ValueError: the policy gates on a confidence that the generator does not give; the message
            names the remedies.

        Source: rules S0.1, S2.10.

        Example:
          `system = System.open("out/index", generator=ModelGenerator(OpenAIClient("m",
          url))).check()`
        """
        generator = behind_own_answers(self.generator)
        if isinstance(generator, ModelGenerator):
            model_client = generator.client
            line = model_client.capabilities(again=True).line(model_client.name)
            print(line)  # noqa: T201 - what a person asked for
        check_confidence(generator, confidence_switch(self.policy))
        if self.audit is not None:
            try:
                with self.audit.log.writing():
                    pass
            except UnwritableLogError as error:
                if self.audit_required:
                    raise
                warn_user(f"{AUDIT_UNWRITABLE} ({error})")
        return self

    def refresh(self) -> Self:
        """Answer from the index as its folder holds it now, models and logs as they are.

        A question that is being answered meanwhile is answered from the version that it began with.

        Returns:
          This system.

        Raises:
          InputError: no index there, or one that was altered.
          ValueError: another settings or pack than those that it was opened with; or it was opened
            from no folder.
        """
        opening = self.opening
        if opening is None:
            refuse("a system to refresh must be opened by System.open", "one of parts", "open it")
        index_content = read_index(opening.place, opening.rewriter)
        check_pack(
            index_content.head.pack, self.pack.stored, f"the index {opening.place}", "open it again"
        )
        if index_content.fingerprint == self.fingerprint:
            return self
        if index_content.settings != opening.settings:
            value = f"others in {opening.place}"
            refuse("an open index must keep its settings", value, "reopen it")
        document_fields = _documents_fields(
            index_content, opening, self.policy, self.pack, self.retriever
        )
        with self._change:
            for field_name, value in document_fields.items():
                setattr(self, field_name, value)
        return self

    def snapshot(self) -> Self:
        """The system as it is now, unaffected by later changes of its documents.

        It answers one request.

        Its generator is checked for the confidence that the policy gates on (rule S2.10).
        """
        with self._change:
            unchanged_system = copy.copy(self)
        generator = with_required_confidence(
            unchanged_system.generator, unchanged_system.policy, self._confident
        )
        return (
            unchanged_system
            if generator is unchanged_system.generator
            else replace(unchanged_system, generator=generator)
        )

    def check_index(self, fingerprint: str) -> None:
        """Stop a reply to a question on another index.

        Args:
          fingerprint: of the index that was asked.

        Raises:
          ValueError: this index is another one.
        """
        if fingerprint != self.fingerprint:
            refuse(
                f"a reply must go to the index that asked, {fingerprint}",
                self.fingerprint,
                "open that one, or ask again",
            )

    def replace(self, policy: Policy) -> Self:
        """The same system under another policy.

        The pack stays the one that the index was opened with.

        Args:
          policy: of the new system.

        Raises:
          ValueError: the policy names another pack, a signal that no function measures, or was
            tuned on scores of another system.
        """
        check_pack(self.pack.stored, policy.pack_hash, "an open index", "open it again")
        names = chunk_entities(self.retriever.chunks, policy.pattern_lists.of_documents)
        return replace(self, policy=policy, entities=names, signals=self.signals.under(policy))


def _documents_fields(
    index_content: Index,
    opening: LabOpening,
    policy: Policy,
    pack: Pack,
    earlier_retriever: Retriever | None = None,
) -> dict[str, Any]:
    """Fields of a `System` that depend on its documents.

    Args:
      earlier_retriever: retriever of an earlier version, whose models are used again.
    """
    # A signal that nothing measures stops before any model is loaded; documents are read before the
    # first question.
    chunks = index_content.corpus.chunks
    reader = DocumentReader(tuple(chunks), pack)
    for signal_family in reader.measuring(used_signals(policy)):
        signal_family.start()
    # Embeddings of the corpus are kept with it, so that only the first start encodes them.
    stored_embeddings = EmbeddingCache(opening.place / EMBEDDINGS)
    ready_retriever = retriever(
        index_content.corpus,
        index_content.settings,
        stored_embeddings,
        rewriter=opening.rewriter,
        pack=pack,
        like=earlier_retriever,
    )
    chunk_names = chunk_entities(ready_retriever.chunks, policy.pattern_lists.of_documents)
    make_clarifier = opening.clarifier
    return {
        "retriever": ready_retriever,
        "fingerprint": index_content.fingerprint,
        "generator": with_own_answers(opening.generator, ready_retriever.indexes),
        "entities": chunk_names,
        "reader": reader,
        "clarifier": None
        if make_clarifier is None
        else make_clarifier(chunks, ready_retriever, pack),
    }


def _online(
    index_folder: Path, ready_retriever: Retriever, settings: Settings, *, is_wanted: bool
) -> Online | None:
    """Bandit of an index.

    None where it is switched off, has no arm that answers live, or no log that it can write.

    Args:
      is_wanted: whether it is to choose the arm.
    """
    live_arm_names = tuple(arm for arm in ready_retriever.strategies if arm in LIVE_ARMS)
    if settings.bandit_enabled is False or not live_arm_names:
        return None
    online_bandit = settings.online(
        settings.log_of("bandit", index_folder), live_arm_names, patience_s=PATIENCE_S
    )
    if online_bandit.log.read_only:
        if is_wanted:
            warn_user(f"{BANDIT_UNWRITABLE}, in {visible(str(index_folder))}.")
        return None
    if is_wanted:
        # so that no arm's first question pays for a start
        for strategy in ready_retriever.strategies.values():
            next(walk(strategy, ready_retriever.question(ready_retriever.chunks[0].full_text)))
    return online_bandit


def _audit_log(
    index_folder: Path,
    settings: Settings,
    *,
    audit: bool | Literal["required"],
    learns_defaults: bool,
) -> tuple[AuditLog | None, bool]:
    """Audit log of an index, with what was to be forgotten forgotten.

    And whether each question must be in it.

    Raises:
      InputError: it cannot be written, and is required or, in a place for reading alone,
        `learns_defaults` from it.
      ValueError: it is required and switched off.
    """
    is_required = audit == "required" or settings.audit_required
    if not (audit and settings.audit_enabled):
        if is_required:
            message = (
                "a required audit log must be on; set audit=True and RAGLAB_AUDIT_ENABLED=true."
            )
            raise ValueError(message)
        return None, False
    audit_log = settings.audit(settings.log_of("audit", index_folder))
    if audit_log.log.read_only:
        if is_required or learns_defaults:
            explanation = "it is required" if is_required else "clarifications need it"
            raise input_error(
                Where(audit_log.log.shown),
                f"the audit log must be writable: {explanation}",
                "name another in RAGLAB_AUDIT_LOG",
                "read-only",
            )
        warn_user(f"{AUDIT_UNWRITABLE}, in {visible(str(index_folder))}.")
        return None, False
    # Forgetting is a batch: it waits for the readers that it needs to be gone, unlike a question.
    if audit_log.keep_days:
        try:
            audit_log.forget()
        except UnwritableLogError as error:
            # The next start forgets; until then questions are answered, and logged once the log can
            # be written.
            if is_required:
                raise
            warn_user(
                f"{AUDIT_UNWRITABLE}; texts of over {audit_log.keep_days:g} days stay ({error})"
            )
    if is_required:
        return audit_log, is_required
    audit_log.close()
    return settings.audit(
        settings.log_of("audit", index_folder), patience_s=PATIENCE_S
    ), is_required


def build_index(
    corpus: Corpus,
    folder: str | Path,
    *,
    arms: Sequence[str] | None = None,
    cache: EmbeddingCache | Literal["default"] | None = "default",
    policy: Policy | None = None,
    download: bool = False,
    **settings: Any,  # noqa: ANN401 - fields of Settings
) -> str:
    """Index a corpus into a folder: its chunks, and their embeddings.

    The rest is derived from them on loading.

    Late interaction, which reranks where no `reranker` is named, reads an embedding of each token:
    768 bytes of 384 dimensions, so that a chunk of 170 tokens takes 130 kB in the folder, and as
    much memory where the index is exact. With a `reranker`, or `rerank_k=0`, there are none: 3 kB a
    chunk. An index on disk stores the token embeddings of chunks that were reranked.

    Args:
      corpus: to index.
      folder: made where it does not exist; a new index replaces an older one at once and as a
        whole, and only new texts are encoded. Embeddings of texts that are gone stay in the folder:
        delete it first where nothing of a document may stay.
      arms: the arms that may answer; all that may answer live and are installed where not given.
      cache: from which embeddings are copied where it has them.
      policy: the policy whose pack the index is for, and no other; any where it names none.
      download: whether models that are not on this machine may be fetched from the hub; the index
        keeps the commit that it was made with.
      **settings: further fields of `RetrievalSettings`; `index` is `auto` where not given: exact up
        to 100,000 chunks, above that on disk, memory-mapped and in float16, and in memory for any
        number where pictures are embedded.

    Returns:
      The fingerprint.

    Raises:
      ValueError: no chunks, an unknown setting or arm.
      MissingExtensionError: the room of an arm is not installed.
      InputError: the folder cannot be written.
    """
    if not corpus.chunks:
        refuse("an index needs a chunk", "none", "check the folder")
    index_folder = Path(folder)
    named_settings = check_settings(
        {"arms": live_arms() if arms is None else tuple(arms), "index": "auto", **settings}
    )
    pinned_settings = named_settings.pinned(download=download).sized(corpus)
    parent_cache = default_cache() if cache == "default" else cache

    def embed_stored(stored_corpus: Corpus) -> Path | None:
        stored_corpus = stored_corpus._replace(pictures=corpus.pictures)
        ready_retriever = retriever(
            stored_corpus, pinned_settings, EmbeddingCache(index_folder / EMBEDDINGS, parent_cache)
        )
        warn_of_unread(ready_retriever, pinned_settings)
        return ready_retriever.indexes.folder

    pack_hash = None if policy is None else load_pack(policy.pack).stored
    return write_index(corpus, index_folder, pinned_settings, pack_hash, embed_stored)
