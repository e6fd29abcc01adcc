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
    PENALTY_STRENGTHS,
    TREES_BY_DEPTH,
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
from raglab.values import BoolArray, FloatArray, IntArray, refuse
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
SIGNAL_INPUTS = ("query", "hits.text", "hits.cosine", "hits.l2", "hits.s_rerank")
SCORED_HITS = 10  # whose scores are read
READ_PASSAGES = 4  # of them, whose texts are read
CASES_PER_BATCH = 64
DEFAULT_FOLDS = 5
# of `Case.extra`: cases of one stand in one fold
GROUP_KEYS = ("article", "document", "conversation_id")
SIGNAL_FORMAT = 1  # of the file; to be raised too with every change of what a feature measures
MAX_SIGNAL_BYTES = 2**26  # of the file
ALL_GROUPS = tuple(GROUPS)
RECIPES = (  # the simpler first
    *(Recipe(("retrieval",), "logistic", strength) for strength in PENALTY_STRENGTHS),
    *(Recipe(("coverage", "retrieval"), "logistic", strength) for strength in PENALTY_STRENGTHS),
    *(Recipe(ALL_GROUPS, "logistic", strength) for strength in PENALTY_STRENGTHS),
    *(Recipe(ALL_GROUPS, "trees", float(depth)) for depth in TREES_BY_DEPTH),
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
            list(
                dict.fromkeys(
                    passage_text
                    for hit_texts in rows["hits.text"]
                    for passage_text in hit_texts[:READ_PASSAGES]
                )
            ),
            query=False,
        )
        feature_table = np.full((len(rows), len(FEATURES)), np.nan)
        input_columns = [rows[column_name] for column_name in SIGNAL_INPUTS]
        for case_index, (question, passage_texts, *hit_scores) in enumerate(
            zip(*input_columns, strict=True)
        ):
            feature_values = evidence_features(
                questions[question],
                [passages[passage_text] for passage_text in passage_texts[:READ_PASSAGES]],
            )
            if feature_values:
                feature_values |= retrieval_features(*hit_scores)
                feature_table[case_index] = [
                    feature_values[column_name] for column_name in FEATURES
                ]
        return feature_table

    def _words(self, texts: list[str], *, query: bool) -> dict[str, WordVectors]:
        """Words of texts by text; questions are encoded with the model's prompt of questions."""
        prompts = self.encoder.prompts
        # the cache keeps what is encoded as a passage
        if query and prompts.query != prompts.passage:
            vectors_by_text = self.encoder.tokens(texts, query=True)
        else:
            vectors_by_text = embed(self.encoder, texts, self.cache, tokens=True).tokens or []
        words_by_text = {}
        for text, token_spans, token_vectors in zip(
            texts, self.encoder.spans(texts, query=query), vectors_by_text, strict=True
        ):
            if len(token_spans) != len(token_vectors):
                n_vectors = len(token_vectors)
                n_spans = len(token_spans)
                refuse(
                    "the encoder must embed the tokens of the text as it stands",
                    f"{n_vectors} embeddings for {n_spans} tokens of {text[:40]!r}",
                    "take another encoder",
                )
            words_by_text[text] = word_vectors(text, token_spans, token_vectors)
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
            "format": SIGNAL_FORMAT,
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
        features = self.reader.features(rows)
        fold_numbers = np.array(
            [
                # files of raglab 0.1.0 know questions as they were written
                self.fold_of.get(query_key(question), self.fold_of.get(digest(question, 16), -1))
                for question in rows["query"]
            ],
            dtype=np.int64,
        )
        probabilities = self.model.probabilities(features, FEATURES)
        for fold_number, fold_model in enumerate(self.fold_models):
            probabilities = np.where(
                fold_numbers == fold_number,
                fold_model.probabilities(features, FEATURES),
                probabilities,
            )
        probability_list: list[float] = np.where(
            np.isnan(features).all(axis=1), np.nan, probabilities
        ).tolist()
        return probability_list

    def signal_function(self) -> SignalFunction:
        """The signal as a function, for `raglab.add_signals` and `raglab.register_signal`.

        So it serves live answers too.
        """
        return SignalFunction(
            self.name,
            self.values,
            SIGNAL_INPUTS,
            higher="surer",
            unit="probability",
            version=self.version,
            n_hits=SCORED_HITS,
            batch=CASES_PER_BATCH,
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
        case_indices, labels = labelled_rows(trace, self.target, policy, arm)
        values = self.with_signal(trace, cache=cache).signal(self.name, arm)
        return signal_report(labels, np.asarray(values, dtype=np.float64)[case_indices], level)

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
        record = read_json(Path(path), MAX_SIGNAL_BYTES)
        where = Where(str(path))
        try:
            return cls(**_parsed(record), loaded=encoder, cache=cache)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise input_error(
                where,
                "a learned signal must be as LearnedSignal.save wrote it",
                "learn it again",
                f"{type(error).__name__}: {error}"[:200],
            ) from error


def _parsed(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Fields of a signal from the record of a file.

    Raises:
      ArithmeticError, AttributeError, LookupError, TypeError, ValueError: a field that is none.
    """
    signal_fields = dict(record)
    fold_models = tuple(
        parse_model(fold_model, GROUPS) for fold_model in signal_fields["fold_models"]
    )
    fold_by_question = {
        str(question_digest): int(fold_number)
        for question_digest, fold_number in signal_fields["fold_of"].items()
    }
    is_readable = (
        signal_fields.pop("format") == SIGNAL_FORMAT and signal_fields["target"] in TARGETS
    )
    if not is_readable or not set(fold_by_question.values()) <= set(range(len(fold_models))):
        refuse(
            (
                f"format must be {SIGNAL_FORMAT}, target one of {', '.join(TARGETS)}, "
                "each fold of a model"
            ),
            "another",
            "learn it again",
        )
    return signal_fields | {
        "name": check_name(signal_fields["name"]),
        "encoder": str(signal_fields["encoder"]),
        "model": parse_model(signal_fields["model"], GROUPS),
        "fold_models": fold_models,
        "fold_of": fold_by_question,
        "report": SignalReport(
            *map(int, signal_fields["report"][:2]), *map(float, signal_fields["report"][2:])
        ),
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
    except ValueError as load_error:
        refuse(
            f"the encoder {identifier} must be on this machine",
            load_error,
            "pass the folder that holds it as `encoder`",
        )
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
        target_meanings = "; ".join(
            f"{target_name}: {meaning}" for target_name, meaning in TARGETS.items()
        )
        refuse(f"target must be one of {', '.join(TARGETS)}", repr(target), target_meanings)
    if target == "right":
        start_policy = policy if policy is not None else Policy.load()
        check_recorded(trace, start_policy, arm, "a signal")
        evidence = measured_tables(trace, start_policy, arm).evidence
        return np.arange(len(trace)), decision_cases(evidence).classes == OUTCOME_CLASSES.index(
            "right"
        )
    label_names = np.array([case.expect_status for case in trace.cases])
    case_indices = np.flatnonzero(np.isin(label_names, ("ok", "refuse")))
    return case_indices, label_names[case_indices] == "ok"


def signal_report(labels: BoolArray, predictions: FloatArray, level: float = 0.95) -> SignalReport:
    """How well values tell true from false; a missing value counts as the least of all.

    Args:
      labels: [Q].
      predictions: [Q].
      level: of the interval.
    """
    complete = np.where(np.isnan(predictions), -1.0, predictions)
    lower_bound, upper_bound = metrics.auroc_interval(labels, complete, level)
    return SignalReport(
        len(labels),
        int(labels.sum()),
        float(metrics.auroc(labels, complete)),
        float(lower_bound),
        float(upper_bound),
    )


def case_groups(
    trace: Trace, case_indices: IntArray, groups: str | Sequence[object] | None
) -> IntArray:
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

    cases = [trace.cases[case_index] for case_index in case_indices]
    if groups is None or isinstance(groups, str):
        group_keys = GROUP_KEYS if groups is None else (groups,)
        if groups is not None and not any(groups in case.extra for case in cases):
            refuse(
                "groups must be a key of the cases' extra",
                repr(groups),
                "leave it out, or pass one value a case",
            )
        group_names = [
            next(
                (
                    f"{group_key} {case.extra[group_key]}"
                    for group_key in group_keys
                    if group_key in case.extra
                ),
                case.id,
            )
            for case in cases
        ]
    elif len(groups) == len(trace):
        group_names = [str(groups[case_index]) for case_index in case_indices]
    else:
        refuse(
            "groups must have one value a case",
            f"{len(groups)} for {len(trace)} cases",
            "leave it out, or complete it",
        )
    questions = [plain_question(case.query) for case in cases]
    group_numbers, question_numbers = (
        np.unique(case_texts, return_inverse=True)[1] for case_texts in (group_names, questions)
    )
    # what is linked through a group or a question is one
    n_cases = len(cases)
    shared_links = coo_array(
        (np.ones(n_cases), (group_numbers, n_cases + question_numbers)),
        shape=(2 * n_cases, 2 * n_cases),
    )
    components = connected_components(shared_links, directed=False)[1][group_numbers]
    return np.unique(components, return_inverse=True)[1]


def trace_encoder(trace: Trace, source: str | Encoder | None = None) -> str:
    """Identifier of the encoder that a trace was made with.

    Of the given or the bundled one where it names none.
    """
    encoder_name = trace.meta.get("parameters", {}).get("encoder")
    if encoder_name:
        return str(encoder_name)
    return source.name if isinstance(source, Encoder) else identifier_of(source)


def case_features(
    trace: Trace,
    case_indices: IntArray,
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
        SIGNAL_INPUTS,
        n_hits=SCORED_HITS,
    )
    feature_rows = signal_rows(
        trace.subset(case_indices),
        features,
        [trace.arm(arm or trace.arms[0])],
        Policy.load().structure,
        None,
    )
    case_positions = {
        feature_key: [position[0] for position in positions if position[2] == 0]
        for feature_key, positions in feature_rows.places.items()
    }
    feature_keys = [feature_key for feature_key, cases in case_positions.items() if cases]
    feature_table = np.full((len(case_indices), len(FEATURES)), np.nan)
    key_batches = [
        feature_keys[first_key : first_key + CASES_PER_BATCH]
        for first_key in range(0, len(feature_keys), CASES_PER_BATCH)
    ]
    for key_batch in progress(key_batches, "read", "case", size=len, total=len(feature_keys)):
        columns_of_batch = zip(
            *(feature_rows.cells[feature_key] for feature_key in key_batch), strict=True
        )
        batch_rows = pd.DataFrame(
            dict(zip(SIGNAL_INPUTS, map(list, columns_of_batch), strict=True))
        )
        for feature_key, feature_values in zip(key_batch, reader.features(batch_rows), strict=True):
            feature_table[case_positions[feature_key]] = feature_values
    return feature_table


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
    folds: int = DEFAULT_FOLDS,
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
    seed_sequences = np.random.SeedSequence(seed).spawn(2)
    fold_numbers = grouped_folds(y, groups, folds, np.random.default_rng(seed_sequences[0]))
    fitted_models = []
    held_out = np.zeros(len(y))
    for fold_number in progress(range(int(fold_numbers.max()) + 2), "fit", "fold"):
        is_training = fold_numbers != fold_number  # one beyond the last fold: all cases
        group_numbers = np.unique(groups[is_training], return_inverse=True)[1]
        inner_folds = grouped_folds(
            y[is_training], group_numbers, folds, np.random.default_rng(seed_sequences[1])
        )
        recipe = choose_recipe(
            x[is_training], y[is_training], FEATURES, GROUPS, recipes, inner_folds
        )
        fitted_models.append(
            fit_score_model(x[is_training], y[is_training], FEATURES, GROUPS, recipe)
        )
        held_out[~is_training] = fitted_models[-1].probabilities(x[~is_training], FEATURES)
    return FoldModels(fitted_models[-1], tuple(fitted_models[:-1]), fold_numbers, held_out)


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
    folds: int = DEFAULT_FOLDS,
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
    tuning_trace = (
        trace.split("tune") if any(case.split == "tune" for case in trace.cases) else trace
    )
    if (
        groups is not None
        and not isinstance(groups, str)
        and len(groups) == len(trace) > len(tuning_trace)
    ):
        groups = [
            group_name
            for group_name, case in zip(groups, trace.cases, strict=True)
            if case.split == "tune"
        ]
    case_indices, labels = labelled_rows(tuning_trace, target, policy, arm)
    identifier = trace_encoder(tuning_trace, encoder)
    feature_table = case_features(tuning_trace, case_indices, arm=arm, encoder=encoder, cache=cache)
    has_features = ~np.isnan(feature_table).all(axis=1)
    case_indices, labels, feature_table = (
        case_indices[has_features],
        labels[has_features],
        feature_table[has_features],
    )
    # hundreds of small fits, over which threads would only wait for each other
    with threadpool_limits(1):
        fold_fit = cross_fit(
            feature_table,
            labels,
            case_groups(tuning_trace, case_indices, groups),
            recipes,
            folds=folds,
            seed=seed,
        )
    fold_by_question = {
        query_key(tuning_trace.cases[case_index].query): int(fold_number)
        for case_index, fold_number in zip(case_indices, fold_fit.fold, strict=True)
    }
    report = signal_report(labels, fold_fit.held_out)
    return LearnedSignal(
        name,
        target,
        identifier,
        fold_fit.model,
        fold_fit.fold_models,
        fold_by_question,
        report,
        encoder,
        cache,
    )
