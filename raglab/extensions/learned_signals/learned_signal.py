"""Learned signal (shore): the chance that hits can answer a question, from labelled cases.

The features compare question and passages word by word (see `evidence_features`); the encoder is
the one that the trace was made with, and stays as it is. What is fitted is small: a logistic or
boosted trees, chosen by cross-validation. It is cross-fitted: a question that it was fitted on has
its value from a model that saw neither that question nor any other of its article, document or
conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from threadpoolctl import threadpool_limits

from raglab import metrics
from raglab.decision.measurement import measured_tables
from raglab.decision.trace_view import answered_traces, check_in_memory
from raglab.extensions.learned_signals.evidence_features import (
    FEATURES,
    GROUPS,
    WordVectors,
    evidence_features,
    retrieval_features,
    word_vectors,
)
from raglab.extensions.learned_signals.score_models import (
    DEPTHS,
    STRENGTHS,
    BoolArray,
    FloatArray,
    IntArray,
    Recipe,
    ScoreModel,
    choose_recipe,
    fit_score_model,
    model_record,
    parse_model,
)
from raglab.gating.expected_cost import OUTCOME_CLASSES
from raglab.lab.answer_basis import check_recorded
from raglab.lab.decision_fitting import check_kinds, decision_cases
from raglab.lab.held_out_groups import grouped_folds
from raglab.live.measured_signals import add_signals, signal_rows
from raglab.live.signal_functions import SignalFunction
from raglab.models.files import BUNDLED
from raglab.models.loaders import Encoder, identifier_of, load_encoder
from raglab.progress import progress
from raglab.retrieval.dense import EmbeddingCache, default_cache, embed
from raglab.signals import check_name
from raglab.store.case_labels import check_split_names
from raglab.store.files import Where, input_error, read_json, write_text
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.values import refuse
from raglab.words.canonical import canonical_json, digest
from raglab.words.characters import plain_question
from raglab.words.results import Result, Summary

if TYPE_CHECKING:
    import pandas as pd

Target = Literal["answerable", "right"]
TARGETS: Mapping[str, str] = {
    "answerable": "ok against refuse, by label; ambiguous cases are left out",
    "right": "cases that would be answered right against all others",
}
NEEDS = ("query", "hits.text", "hits.cosine", "hits.l2", "hits.s_rerank")
HITS = 10  # whose scores are read
PASSAGES = 4  # of them, whose texts are read
BATCH = 64
FOLDS = 5
# of `Case.extra`: cases of one stand in one fold
GROUP_KEYS = ("article", "document", "conversation_id")
FORMAT = 1  # of the file; to be raised too with every change of what a feature measures
MOST_BYTES = 2**26  # of the file
WHOLE = tuple(GROUPS)
RECIPES = (  # the simpler first
    *(Recipe(("retrieval",), "logistic", strength) for strength in STRENGTHS),
    *(Recipe(("coverage", "retrieval"), "logistic", strength) for strength in STRENGTHS),
    *(Recipe(WHOLE, "logistic", strength) for strength in STRENGTHS),
    *(Recipe(WHOLE, "trees", float(depth)) for depth in DEPTHS),
)


class SignalReport(NamedTuple):
    """Discrimination of a signal for its target.

    cases, positive: how many were judged, and how many of them should be answered. auroc: with its
    interval.
    """

    cases: int
    positive: int
    auroc: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class EvidenceReader:
    """Features of questions and their hits. encoder: of the tokens. cache: of its embeddings.

    None keeps none.
    """

    encoder: Encoder = field(repr=False)
    cache: EmbeddingCache | None = field(repr=False)

    def features(self, rows: pd.DataFrame) -> FloatArray:
        """Features of rows, [Q, F] in the order of `FEATURES`.

        A row without a word is NaN throughout.
        """
        questions = self._words(list(dict.fromkeys(rows["query"])), query=True)
        passages = self._words(
            list(dict.fromkeys(text for of in rows["hits.text"] for text in of[:PASSAGES])),
            query=False,
        )
        features = np.full((len(rows), len(FEATURES)), np.nan)
        columns = [rows[name] for name in NEEDS]
        for row, (query, texts, *scores) in enumerate(zip(*columns, strict=True)):
            values = evidence_features(
                questions[query], [passages[text] for text in texts[:PASSAGES]]
            )
            if values:
                values |= retrieval_features(*scores)
                features[row] = [values[name] for name in FEATURES]
        return features

    def _words(self, texts: list[str], *, query: bool) -> dict[str, WordVectors]:
        """Words of texts by text; questions are encoded with the model's prompt of questions."""
        prompts = self.encoder.prompts
        # the cache keeps what is encoded as a passage
        if query and prompts.query != prompts.passage:
            tokens = self.encoder.tokens(texts, query=True)
        else:
            tokens = embed(self.encoder, texts, self.cache, tokens=True).tokens or []
        words_by_text = {}
        for text, span, token in zip(
            texts, self.encoder.spans(texts, query=query), tokens, strict=True
        ):
            if len(span) != len(token):
                mismatch = f"{len(token)} embeddings for {len(span)} tokens of {text[:40]!r}"
                refuse(
                    "the encoder must embed the tokens of the text as it stands",
                    mismatch,
                    "take another encoder",
                )
            words_by_text[text] = word_vectors(text, span, token)
        return words_by_text


@dataclass(frozen=True, eq=False, repr=False)
class LearnedSignal(Result):
    """A signal learned from labels; see `fit_signal`.

    Attributes:
      name: of the signal.
      target: distinction that it learns, of `TARGETS`.
      encoder: identifier of the encoder whose tokens it reads.
      model: fitted on all cases.
      fold_models: one a fold, fitted without that fold.
      fold_of: digest of each question that was fitted on -> its fold.
      report: cross-fitted, of the cases that were fitted on.
      loaded: the encoder, where it is loaded.
      cache: of embeddings.
    """

    name: str
    target: Target
    encoder: str
    model: ScoreModel = field(repr=False)
    fold_models: tuple[ScoreModel, ...] = field(repr=False)
    fold_of: Mapping[str, int] = field(repr=False)
    report: SignalReport
    loaded: str | Encoder | None = field(default=None, repr=False)
    cache: EmbeddingCache | Literal["default"] | None = field(default="default", repr=False)

    @property
    def record(self) -> dict[str, Any]:
        """What the file holds: numbers and names alone, of no question its text."""
        return {
            "format": FORMAT,
            "name": self.name,
            "target": self.target,
            "encoder": self.encoder,
            "model": model_record(self.model),
            "fold_models": [model_record(fold_model) for fold_model in self.fold_models],
            "fold_of": dict(sorted(self.fold_of.items())),
            "report": list(self.report),
        }

    @cached_property
    def version(self) -> str:
        """Digest of all numbers; the version of the signal."""
        return digest(canonical_json(self.record), 16)

    @cached_property
    def reader(self) -> EvidenceReader:
        """What reads the features; loads the encoder."""
        return EvidenceReader(encoder_by_identifier(self.encoder, self.loaded), _store(self.cache))

    @property
    def table(self) -> pd.DataFrame:
        """Report as a row.

        Name, target, cases and positive ones, cross-fitted AUROC with its interval.
        """
        import pandas as pd

        return pd.DataFrame([{"name": self.name, "target": self.target, **self.report._asdict()}])

    def _summary(self) -> Summary:
        report = self.report
        facts = [
            ("name", self.name),
            ("target", self.target),
            ("encoder", self.encoder),
            ("learned from", f"{report.cases:,} cases, {report.positive:,} of them positive"),
            ("AUROC, cross-fitted", f"{report.auroc:.3f}, {report.low:.3f} to {report.high:.3f}"),
            ("version", self.version),
        ]
        return Summary(facts)

    def values(self, rows: pd.DataFrame) -> list[float]:
        """Probability of each row, NaN where there is no word to compare.

        Rows as `signal_function` needs them.

        A question of the fit gets the probability of its fold's model, also live.

        Args:
          rows: with the columns that `signal_function` names.
        """
        x = self.reader.features(rows)
        fold = np.array(
            [
                # files of raglab 0.1.0 know questions as they were written
                self.fold_of.get(query_key(query), self.fold_of.get(digest(query, 16), -1))
                for query in rows["query"]
            ],
            dtype=np.int64,
        )
        p = self.model.probabilities(x, FEATURES)
        for number, model in enumerate(self.fold_models):
            p = np.where(fold == number, model.probabilities(x, FEATURES), p)
        probabilities: list[float] = np.where(np.isnan(x).all(axis=1), np.nan, p).tolist()
        return probabilities

    def signal_function(self) -> SignalFunction:
        """The signal as a function, for `raglab.add_signals` and `raglab.register_signal`.

        So it serves live answers too.
        """
        return SignalFunction(
            self.name,
            self.values,
            NEEDS,
            higher="surer",
            unit="probability",
            version=self.version,
            n_hits=HITS,
            batch=BATCH,
        )

    def with_signal(self, trace: Trace, *, cache: str | Path | None = None) -> Trace:
        """Trace with the column; see `raglab.add_signals`.

        Args:
          trace: with the texts of its hits.
          cache: file of finished values.
        """
        check_in_memory(trace, "a learned signal")
        return add_signals(trace, self.signal_function(), cache=cache)

    def judge(
        self,
        trace: Trace,
        *,
        policy: Policy | None = None,
        arm: str | None = None,
        cache: str | Path | None = None,
        level: float = 0.95,
    ) -> SignalReport:
        """Judgement of the signal on a labelled trace, which may be of another domain.

        Args:
          trace: labelled, with the texts of its hits.
          policy: as for `fit_signal`.
          arm: as for `fit_signal`.
          cache: file of finished values.
          level: of the interval.
        """
        check_in_memory(trace, "a learned signal")
        rows, y = labelled_rows(trace, self.target, policy, arm)
        values = self.with_signal(trace, cache=cache).signal(self.name, arm)
        return signal_report(y, np.asarray(values, dtype=np.float64)[rows], level)

    def save(self, path: str | Path) -> None:
        """Write the signal as one JSON file, whole or not at all.

        The same signal gives the same bytes.

        Args:
          path: of the JSON file.
        """
        write_text(canonical_json(self.record) + "\n", Path(path))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        encoder: str | Encoder | None = None,
        cache: EmbeddingCache | Literal["default"] | None = "default",
    ) -> Self:
        """Read a signal.

        Args:
          path: of the JSON file.
          encoder: where the encoder lies, if it is neither a bundled one nor in the local model
            cache.
          cache: of embeddings.

        Raises:
          InputError: the file is none, or a number of it is not what it must be.
        """
        record, where = read_json(Path(path), MOST_BYTES), Where(str(path))
        try:
            return cls(**_parsed(record), loaded=encoder, cache=cache)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            rule = "a learned signal must be as LearnedSignal.save wrote it"
            raise input_error(
                where, rule, "learn it again", f"{type(error).__name__}: {error}"[:200]
            ) from error


def _parsed(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Fields of a signal from the record of a file.

    Raises:
      ArithmeticError, AttributeError, LookupError, TypeError, ValueError: a field that is none.
    """
    fields = dict(record)
    models = tuple(parse_model(fold_model, GROUPS) for fold_model in fields["fold_models"])
    folds = {str(key): int(fold) for key, fold in fields["fold_of"].items()}
    own = fields.pop("format") == FORMAT and fields["target"] in TARGETS
    if not own or not set(folds.values()) <= set(range(len(models))):
        rule = f"format must be {FORMAT}, target one of {', '.join(TARGETS)}, each fold of a model"
        refuse(rule, "another", "learn it again")
    return fields | {
        "name": check_name(fields["name"]),
        "encoder": str(fields["encoder"]),
        "model": parse_model(fields["model"], GROUPS),
        "fold_models": models,
        "fold_of": folds,
        "report": SignalReport(*map(int, fields["report"][:2]), *map(float, fields["report"][2:])),
    }


def query_key(query: str) -> str:
    """What a question is known by in the file: a digest of its plain form, not its text."""
    return digest(plain_question(query), 16)


@cache
def _loaded_encoder(source: str | None) -> Encoder:
    return load_encoder(source)


def encoder_by_identifier(identifier: str, source: str | Encoder | None = None) -> Encoder:
    """The encoder of an identifier, as a trace or a signal names it.

    Args:
      source: the encoder itself, or where it lies; else the bundled one, or one of that name in the
        local model cache.

    Raises:
      ValueError: there is another one, or none.
    """
    if source is None and not identifier.startswith(f"{BUNDLED}=="):
        # a name of the hub with its commit; a folder has to be given
        source = identifier.partition("+prompts.")[0]
    try:
        encoder = source if isinstance(source, Encoder) else _loaded_encoder(source)
    except ValueError as error:
        remedy = "pass the folder that holds it as `encoder`"
        refuse(f"the encoder {identifier} must be on this machine", error, remedy)
    if encoder.name != identifier:
        refuse(
            f"the encoder must be {identifier}",
            encoder.name,
            "pass that one as `encoder`, or learn anew",
        )
    return encoder


def labelled_rows(
    trace: Trace, target: str, policy: Policy | None = None, arm: str | None = None
) -> tuple[IntArray, BoolArray]:
    """Cases that have a label for a target, ascending, and whether each should be answered.

    Raises:
      ValueError: another target, or too many answers missing of cases judged by text.
    """
    if target not in TARGETS:
        meanings = "; ".join(f"{name}: {what}" for name, what in TARGETS.items())
        refuse(f"target must be one of {', '.join(TARGETS)}", repr(target), meanings)
    if target == "right":
        start = policy if policy is not None else Policy.load()
        check_recorded(trace, start, arm, "a signal")
        evidence = measured_tables(trace, start, arm).evidence
        return np.arange(len(trace)), decision_cases(evidence).classes == OUTCOME_CLASSES.index(
            "right"
        )
    status = np.array([case.expect_status for case in trace.cases])
    rows = np.flatnonzero(np.isin(status, ("ok", "refuse")))
    return rows, status[rows] == "ok"


def signal_report(y: BoolArray, values: FloatArray, level: float = 0.95) -> SignalReport:
    """How well values tell true from false; a missing value counts as the least of all.

    Args:
      y: [Q].
      values: [Q].
      level: of the interval.
    """
    known = np.where(np.isnan(values), -1.0, values)
    low, high = metrics.auroc_interval(y, known, level)
    return SignalReport(
        len(y), int(y.sum()), float(metrics.auroc(y, known)), float(low), float(high)
    )


def case_groups(trace: Trace, rows: IntArray, groups: str | Sequence[object] | None) -> IntArray:
    """Number of the group of each of some cases.

    What they share, and cases of the same question together.

    Args:
      groups: a key of `Case.extra`, one value a case, or None: the first of `GROUP_KEYS` that a
        case has.

    Raises:
      ValueError: another number of values than cases, or a key that no case has.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    cases = [trace.cases[row] for row in rows]
    if groups is None or isinstance(groups, str):
        keys = GROUP_KEYS if groups is None else (groups,)
        if groups is not None and not any(groups in case.extra for case in cases):
            refuse(
                "groups must be a key of the cases' extra",
                repr(groups),
                "leave it out, or pass one value a case",
            )
        shared = [
            next((f"{key} {case.extra[key]}" for key in keys if key in case.extra), case.id)
            for case in cases
        ]
    elif len(groups) == len(trace):
        shared = [str(groups[row]) for row in rows]
    else:
        value = f"{len(groups)} for {len(trace)} cases"
        refuse("groups must have one value a case", value, "leave it out, or complete it")
    queries = [plain_question(case.query) for case in cases]
    own, of_query = (np.unique(texts, return_inverse=True)[1] for texts in (shared, queries))
    # what is linked through a group or a question is one
    n = len(cases)
    links = coo_array((np.ones(n), (own, n + of_query)), shape=(2 * n, 2 * n))
    parts = connected_components(links, directed=False)[1][own]
    return np.unique(parts, return_inverse=True)[1]


def trace_encoder(trace: Trace, source: str | Encoder | None = None) -> str:
    """Identifier of the encoder that a trace was made with.

    Of the given or the bundled one where it names none.
    """
    used = trace.meta.get("parameters", {}).get("encoder")
    if used:
        return str(used)
    return source.name if isinstance(source, Encoder) else identifier_of(source)


def case_features(
    trace: Trace,
    rows: IntArray,
    *,
    arm: str | None = None,
    encoder: str | Encoder | None = None,
    cache: EmbeddingCache | Literal["default"] | None = "default",
) -> FloatArray:
    """Features of some cases at the first search, [R, F] in the order of `FEATURES`.

    A case without a hit, or without a word, is NaN throughout. Arguments as for `fit_signal`.
    """
    import pandas as pd

    reader = EvidenceReader(
        encoder_by_identifier(trace_encoder(trace, encoder), encoder), _store(cache)
    )
    features = SignalFunction(  # many values a row
        "features",
        reader.features,  # type: ignore[arg-type]
        NEEDS,
        n_hits=HITS,
    )
    feature_rows = signal_rows(
        trace.subset(rows),
        features,
        [trace.arm(arm or trace.arms[0])],
        Policy.load().structure,
        None,
    )
    places = {
        key: [place[0] for place in at if place[2] == 0] for key, at in feature_rows.places.items()
    }
    keys = [key for key, cases in places.items() if cases]
    x = np.full((len(rows), len(FEATURES)), np.nan)
    batches = [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]
    for some in progress(batches, "read", "case", size=len, total=len(keys)):
        cells = zip(*(feature_rows.cells[key] for key in some), strict=True)
        table = pd.DataFrame(dict(zip(NEEDS, map(list, cells), strict=True)))
        for key, values in zip(some, reader.features(table), strict=True):
            x[places[key]] = values
    return x


def _store(cache: EmbeddingCache | Literal["default"] | None) -> EmbeddingCache | None:
    return default_cache() if cache == "default" else cache


class FoldModels(NamedTuple):
    """Models of the same cases, and what they say of each that they did not see.

    model: of all cases. fold_models: without one fold each. fold: of every case, [Q]. held_out:
    probability of every case by the model of its fold, [Q].
    """

    model: ScoreModel
    fold_models: tuple[ScoreModel, ...]
    fold: IntArray
    held_out: FloatArray


def cross_fit(
    x: FloatArray,
    y: BoolArray,
    groups: IntArray,
    recipes: Sequence[Recipe] = RECIPES,
    *,
    folds: int = FOLDS,
    seed: int = 0,
) -> FoldModels:
    """Fit on all cases, and without each fold in turn.

    Each time the recipe is chosen by cross-validation inside.

    Args:
      x: features, [Q, F] in the order of `FEATURES`.
      y: whether each case should be answered, [Q].
      groups: number of its group, [Q].
      recipes, folds, seed: as for `fit_signal`.

    Raises:
      ValueError: fewer than 10 cases to answer or 10 others, or too few groups.
    """
    check_kinds(y, "a signal must be learned from", "cases to answer")
    seeds = np.random.SeedSequence(seed).spawn(2)
    fold = grouped_folds(y, groups, folds, np.random.default_rng(seeds[0]))
    models, held_out = [], np.zeros(len(y))
    for fold_number in progress(range(int(fold.max()) + 2), "fit", "fold"):
        is_train = fold != fold_number  # one beyond the last fold: all cases
        numbers = np.unique(groups[is_train], return_inverse=True)[1]
        inner = grouped_folds(y[is_train], numbers, folds, np.random.default_rng(seeds[1]))
        recipe = choose_recipe(x[is_train], y[is_train], FEATURES, GROUPS, recipes, inner)
        models.append(fit_score_model(x[is_train], y[is_train], FEATURES, GROUPS, recipe))
        held_out[~is_train] = models[-1].probabilities(x[~is_train], FEATURES)
    return FoldModels(models[-1], tuple(models[:-1]), fold, held_out)


@answered_traces("trace")
def fit_signal(
    trace: Trace,
    *,
    name: str = "learned",
    target: Target = "answerable",
    policy: Policy | None = None,
    arm: str | None = None,
    groups: str | Sequence[object] | None = None,
    recipes: Sequence[Recipe] = RECIPES,
    encoder: str | Encoder | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    cache: EmbeddingCache | Literal["default"] | None = "default",
) -> LearnedSignal:
    """Signal that separates the cases to answer from the others.

    It is learned on split `tune` where there is one, else on all cases. Everything is cross-fitted,
    the choice of the recipe too: for each fold a recipe is chosen by cross-validated log-loss among
    the other folds, and fitted on them. The model for all other questions is made in the same way
    from all cases.

    Args:
      trace: labelled, in memory, with the texts of its hits.
      name: of the signal.
      target: `answerable` (ok against refuse, by label) or `right` (answered right against all
        others).
      policy: the policy that chooses the hits, for the target `right`; the published one where not
        given.
      arm: the arm of the hits that it learns from.
      groups: key that keeps cases in one fold: a key of `Case.extra`, or one value a case; by
        default the article, document or conversation that a case names. Cases of the same question
        are always together.
      recipes: to choose from, the simpler first.
      encoder: where the trace's encoder lies, if it is neither a bundled one nor in the local model
        cache.
      folds: at least 2.
      seed: of the folds.
      cache: of embeddings.

    Raises:
      ValueError: fewer than 10 cases to answer or 10 others, or fewer than two groups of them.
      TypeError: a trace of shards, whose texts of all hits are needed at once.

    Example: `raglab.fit_signal(trace).with_signal(trace)`
    """
    check_name(name)
    check_in_memory(trace, "fit_signal")
    check_split_names(case.split for case in trace.cases)
    here = trace.split("tune") if any(case.split == "tune" for case in trace.cases) else trace
    if groups is not None and not isinstance(groups, str) and len(groups) == len(trace) > len(here):
        groups = [
            group for group, case in zip(groups, trace.cases, strict=True) if case.split == "tune"
        ]
    rows, y = labelled_rows(here, target, policy, arm)
    identifier = trace_encoder(here, encoder)
    x = case_features(here, rows, arm=arm, encoder=encoder, cache=cache)
    there = ~np.isnan(x).all(axis=1)
    rows, y, x = rows[there], y[there], x[there]
    # hundreds of small fits, over which threads would only wait for each other
    with threadpool_limits(1):
        fit = cross_fit(x, y, case_groups(here, rows, groups), recipes, folds=folds, seed=seed)
    fold_of = {
        query_key(here.cases[row].query): int(fold_number)
        for row, fold_number in zip(rows, fit.fold, strict=True)
    }
    report = signal_report(y, fit.held_out)
    return LearnedSignal(
        name, target, identifier, fit.model, fit.fold_models, fold_of, report, encoder, cache
    )
