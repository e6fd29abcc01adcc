"""Field model (shore): fitted to labelled documents of a trade, with its margin chosen on documents left out.

One logistic regression for each kind of value tells by the words around a value which field of the pack it is, if any
(see `learned_values`), and a second one by the words alone. Documents are left out a fold at a time, so
that a document and its wording are never on both sides; the margin is the least at which values given on left-out
documents are as rarely wrong as asked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from raglab.documents import chunk_documents, full_sources
from raglab.extensions.clarification.fields import read_chunk, seen_values
from raglab.extensions.clarification.learned_values import RULE_FEATURES, ValueCandidate, lead_of, learned_value
from raglab.packs import NO_FIELD, FieldModel, KindModel, Pack, ValueKind
from raglab.store.files import input_error, json_lines, shown_value
from raglab.values import Chunk

if TYPE_CHECKING:
    from raglab.extensions.clarification.field_rules import ChunkReading

MAX_LINE_BYTES = 2**16
MARGINS = tuple(round(0.02 * n, 2) for n in range(2, 48))  # that are tried, the least first
STRENGTH = 2.0  # inverse of the ridge penalty
FOLDS = 20
LEAST_DOCUMENTS = 2  # that have a feature
LEAST_WEIGHT = 0.05  # of a feature that is kept
DIGITS = 2
WORDS_MARGIN = 0.2  # lead of a value by the words alone; it halved the wrong ones of writers that were left out
Documents = Mapping[str, Sequence["ChunkReading"]]


class FieldLabel(NamedTuple):
    """What a document states of a field: its value as printed, None for none; accept: other right spellings."""

    document: str
    field: str
    value: str | None
    accept: tuple[str, ...] = ()

    def holds(self, value: str) -> bool:
        """Whether a value is the labelled one, but for blanks and case."""
        return _plain(value) in {_plain(text) for text in (self.value, *self.accept) if text is not None}

    def names(self, value: str) -> bool:
        """Whether a value is the labelled one or a part of it, or has it as a part: the right place, if not whole."""
        ours = f" {_plain(value)} "
        texts = (f" {_plain(text)} " for text in (self.value, *self.accept) if text is not None)
        return any(text in ours or ours in text for text in texts)


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[,;]", " ", text).split()).lower().rstrip(".")


class LeftOut(NamedTuple):
    """What a model that had not seen a label's document takes for its value, and by what leads; None for nothing.

    lead: with what the rules say of the values. by_words: without.
    """

    label: FieldLabel
    value: str | None
    lead: float
    by_words: float

    def is_given(self, margin: float) -> bool:
        """Whether the value is given at a margin."""
        return self.value is not None and self.lead >= margin and self.by_words >= WORDS_MARGIN


class _Example(NamedTuple):
    """A value of a document with what a model sees of it, and the field that it is, or `NO_FIELD`."""

    document: str
    candidate: ValueCandidate
    seen: Mapping[str, float]
    field: str


def read_field_labels(path: str | Path) -> tuple[FieldLabel, ...]:
    """Labels of a JSON-lines file: `doc`, `field`, `value` (null where the document states none), `accept`.

    Raises:
      ValueError: a line without `doc` or `field`; names file, line and rule.
    """
    made = []
    for where, row in json_lines(Path(path), MAX_LINE_BYTES):
        if not isinstance(row.get("doc"), str) or not isinstance(row.get("field"), str):
            raise input_error(where, "a label must have doc and field", "add them", shown_value(dict(row)))
        made.append(FieldLabel(row["doc"], row["field"], row.get("value"), tuple(row.get("accept") or ())))
    return tuple(made)


def fit_field_model(
    chunks: Iterable[Chunk],
    labels: Sequence[FieldLabel],
    *,
    pack: Pack,
    most_wrong: float = 0.02,
    trained_by: str = "raglab.fit_field_model",
) -> FieldModel:
    """Model that tells which value of a document is which field, for the pack's key `field_model`.

    Args:
      chunks: of the labelled documents. labels: of every field that a document might state, also where it states none;
        a document by its path or a file name that it alone has.
      pack: whose readings say of what kind a field is. most_wrong: share of the values given on documents left out that
        may be of another place, in [0, 1]; the margin is the least that keeps it. trained_by: command, for the record.

    Raises:
      ValueError: a label of a field without a kind or of a document that is not there, or fewer than two documents.

    Source: rule S5.10; the penalty and the folds are the usual ones, the margin is chosen and not certified.
    """
    passages = tuple(chunks)
    paths = full_sources([label.document for label in labels], chunk_documents(passages))
    labels = [label._replace(document=path) for label, path in zip(labels, paths, strict=True)]
    documents = _read(passages, labels, pack)
    kinds: dict[ValueKind, KindModel] = {}
    words: dict[ValueKind, KindModel] = {}
    left_out: list[LeftOut] = []
    for kind, own in _by_kind(labels, pack).items():
        examples = _examples(kind, documents, own, pack)
        if len({one.field for one in examples}) < 2:  # no value of the kind is labelled
            continue
        kinds[kind], words[kind] = _fit(examples), _fit(_by_words(examples))
        left_out += cross_fitted(examples, own)
    margin = next((one for one in MARGINS if _wrong_share(left_out, one) <= most_wrong), MARGINS[-1])
    given = [one for one in left_out if one.is_given(margin)]
    return FieldModel(
        trained_by=trained_by,
        documents=len(documents),
        labels=len(labels),
        margin=margin,
        filled=len(given),
        right=sum(one.label.holds(str(one.value)) for one in given),
        kinds=kinds,
        words=words,
        words_margin=WORDS_MARGIN,
    )


def _wrong_share(left_out: Sequence[LeftOut], margin: float) -> float:
    """Share of the values given that are of another place than the label's."""
    given = [one for one in left_out if one.is_given(margin)]
    wrong = sum(not one.label.names(str(one.value)) for one in given)
    return wrong / len(given) if given else 0.0


def _by_kind(labels: Iterable[FieldLabel], pack: Pack) -> dict[ValueKind, list[FieldLabel]]:
    by_kind: dict[ValueKind, list[FieldLabel]] = defaultdict(list)
    for label in labels:
        by_kind[pack.readings[label.field].kind or "text"].append(label)
    return {kind: by_kind[kind] for kind in sorted(by_kind)}


def _read(chunks: Iterable[Chunk], labels: Sequence[FieldLabel], pack: Pack) -> Documents:
    """Readings of the labelled documents by their name."""
    named = {label.document for label in labels}
    ordered = sorted((chunk for chunk in chunks if chunk.document in named), key=lambda chunk: chunk.document)
    documents = {
        name: [read_chunk(n, chunk) for n, chunk in enumerate(group)]
        for name, group in groupby(ordered, key=lambda chunk: chunk.document)
    }
    for label in labels:
        reading = pack.readings.get(label.field)
        if label.document not in documents or reading is None or reading.kind is None:
            rule = "a label must be of a document that is given and of a field whose reading has a kind"
            msg = f"{rule}, got {label.field!r} of {label.document!r}; correct or leave it out."
            raise ValueError(msg)
    if len(documents) < 2:
        msg = f"a field model needs two labelled documents or more, got {len(documents)}; label more."
        raise ValueError(msg)
    return documents


def cross_fitted(examples: Sequence[_Example], labels: Sequence[FieldLabel]) -> list[LeftOut]:
    """For each label of a kind what a model fitted without its document says; documents in folds by their name."""
    fold = {name: int(sha256(name.encode()).hexdigest(), 16) % FOLDS for name in {one.document for one in examples}}
    made: list[LeftOut] = []
    for number in sorted(set(fold.values())):
        inside = [one for one in examples if fold[one.document] != number]
        known = {one.field for one in inside}
        models = (_fit(inside), _fit(_by_words(inside))) if len(known) > 1 else None
        for label in labels:
            if fold.get(label.document) == number:
                own = [(one.candidate, one.seen) for one in examples if one.document == label.document]
                made.append(_left_out(label, own, models if label.field in known else None))
    return made + [LeftOut(label, None, 0.0, 0.0) for label in labels if label.document not in fold]


def _left_out(
    label: FieldLabel,
    own: Sequence[tuple[ValueCandidate, Mapping[str, float]]],
    models: tuple[KindModel, KindModel] | None,
) -> LeftOut:
    """What models, the second one by words alone, say of the values of a label's document."""
    choice = None if models is None else learned_value(models[0], label.field, own)
    if models is None or choice is None:
        return LeftOut(label, None, 0.0, 0.0)
    value = choice.candidate.value
    return LeftOut(label, value.text, choice.lead, lead_of(models[1], label.field, own, value.key))


def _by_words(examples: Iterable[_Example]) -> list[_Example]:
    """Examples without what the rules say of them."""
    return [
        one._replace(seen={name: value for name, value in one.seen.items() if not name.startswith(RULE_FEATURES)})
        for one in examples
    ]


def _examples(kind: ValueKind, documents: Documents, labels: Sequence[FieldLabel], pack: Pack) -> list[_Example]:
    """Every value of a kind that the labelled documents state."""
    own: dict[str, list[FieldLabel]] = defaultdict(list)
    for label in labels:
        own[label.document].append(label)
    made = []
    for name in sorted(own):
        for one, seen in seen_values(kind, tuple(documents[name]), pack)[1]:
            meant = (label.field for label in own[name] if label.value is not None and label.holds(one.value.text))
            made.append(_Example(name, one, seen, next(meant, NO_FIELD)))
    return made


def _fit(examples: Sequence[_Example]) -> KindModel:
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    # what one document alone has tells nothing about another
    documents: dict[str, set[str]] = defaultdict(set)
    for one in examples:
        for name in one.seen:
            documents[name].add(one.document)
    common = {name for name, of in documents.items() if len(of) >= LEAST_DOCUMENTS}
    table = DictVectorizer()
    seen = table.fit_transform(
        [{name: value for name, value in one.seen.items() if name in common} for one in examples]
    )
    model = LogisticRegression(C=STRENGTH, max_iter=1000, tol=1e-3).fit(seen, [one.field for one in examples])
    classes = tuple(map(str, model.classes_))
    # of two classes scikit-learn keeps the weights of the second against the first
    halves = len(classes) == 2
    weights = np.vstack((-model.coef_, model.coef_)) / 2 if halves else model.coef_
    starts = np.r_[-model.intercept_, model.intercept_] / 2 if halves else model.intercept_
    kept = {
        str(name): tuple(round(float(weight), DIGITS) for weight in column)
        for name, column in zip(table.get_feature_names_out(), weights.T, strict=True)
        if np.abs(column).max() >= LEAST_WEIGHT
    }
    intercepts = tuple(round(float(one), DIGITS) for one in starts)
    return KindModel(classes=classes, intercepts=intercepts, weights=kept)
