"""The learned signal: cross-fitted, the same live and stored, kept as numbers."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from raglab import metrics, trace_from_frame
from raglab.extensions.learned_signals.evidence_features import FEATURES, GROUPS
from raglab.extensions.learned_signals.learned_signal import (
    SIGNAL_INPUTS,
    LearnedSignal,
    case_groups,
    cross_fit,
    encoder_by_identifier,
    fit_signal,
    labelled_rows,
    signal_report,
)
from raglab.extensions.learned_signals.score_models import Recipe
from raglab.models.loaders import load_encoder
from raglab.store.files import InputError
from raglab.store.traces import Trace
from tiny_models import save_encoder

PERILS = ["storm", "hail", "fire", "flood", "frost", "theft", "smoke", "water"]
OBJECTS = ["roof", "door", "wall", "floor", "boat", "shed"]
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "is",
    "the",
    "damaged",
    "by",
    "covered",
    "?",
    ".",
]
PLAIN = [Recipe(("coverage",), "logistic", 0.1)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """Return a tiny encoder with random weights that knows the words of the set."""
    words = [*VOCABULARY, *PERILS, *OBJECTS]
    return load_encoder(
        str(save_encoder(tmp_path_factory.mktemp("models") / "tiny-encoder", words=words))
    )


def made_trace(encoder, n=48, split="tune"):
    """Questions after a peril and an object.

    Every second one has a hit with both, the others have another peril.
    """
    rng = np.random.default_rng(3)
    rows = []
    for number in range(n):
        peril, thing = rng.choice(PERILS, size=2, replace=False), rng.choice(OBJECTS)
        ok = number % 2 == 0
        case = {
            "case_id": f"q{number}",
            "query": f"is the {thing} damaged by {peril[0]} covered?",
            "split": split,
        }
        case |= {"label": "ok", "expect_sources": [f"d{number}.md"]} if ok else {"label": "refuse"}
        text = f"the {thing} damaged by {peril[0 if ok else 1]} is covered."
        rows.append(
            {**case, "hit_id": f"d{number}", "source": f"d{number}.md", "text": text, "score": 0.5}
        )
    trace = trace_from_frame(pd.DataFrame(rows), score="cosine", name="made")
    if encoder is None:
        return trace
    parameters = {**trace.meta.get("parameters", {}), "encoder": encoder.name}
    return Trace(
        **{
            **{name: getattr(trace, name) for name in trace.__dataclass_fields__},
            "meta": {**trace.meta, "parameters": parameters},
        }
    )


@pytest.fixture(scope="module")
def signal(encoder):
    """Return a signal learned from 48 questions."""
    return fit_signal(made_trace(encoder), recipes=PLAIN, folds=4, encoder=encoder, cache=None)


class TestLearnedSignal:
    """The whole way, with a tiny encoder made here."""

    def test_it_tells_apart(self, signal):
        """A missing peril is plain to see.

        cross-fitted AUROC is high, and the report counts the cases.
        """
        assert signal.report[:2] == (48, 24)
        assert signal.report.auroc > 0.95
        assert signal.report.low < signal.report.auroc <= signal.report.high
        assert len(repr(signal)) < 500  # without the numbers of its models
        assert f"{signal.report.auroc:.3f}" in signal._repr_html_()
        assert signal.frame().to_dict("records") == [
            {"name": "learned", "target": signal.target, **signal.report._asdict()}
        ]

    def test_its_column_is_cross_fitted(self, signal, encoder, tmp_path):
        """The stored column is the report's; other questions have the model of all."""
        trace = made_trace(encoder)
        column = signal.with_signal(trace, cache=tmp_path / "signals.sqlite").signal("learned")
        _, y = labelled_rows(trace, "answerable")
        assert metrics.auroc(y, column.to_numpy()) == signal.report.auroc
        row = {name: [()] for name in SIGNAL_INPUTS} | {
            "query": ["is the new boat covered?"],
            "hits.text": [("the boat .",)],
        }
        rows = pd.DataFrame(row | {name: [(0.5,)] for name in SIGNAL_INPUTS[2:]})
        x = signal.reader.features(rows)
        assert signal.values(rows) == signal.model.probabilities(x, FEATURES).tolist()

    def test_it_is_a_signal_function(self, signal, encoder):
        """It keeps the rules of signal functions.

        The same alone and among others, the direction as declared.
        """
        from signal_checks import check_signal

        found = check_signal(signal.signal_function(), made_trace(encoder, 16))
        assert found.missing == 0.0
        assert found.auroc > 0.95

    def test_it_is_kept_as_numbers(self, signal, encoder, tmp_path):
        """Saved and loaded, it has the same version, bytes and values.

        The file holds no question.
        """
        path = tmp_path / "learned.json"
        signal.save(path)
        assert "damaged" not in path.read_text(encoding="utf-8")
        known = LearnedSignal.load(path, encoder=encoder, cache=None)
        assert known.version == signal.version
        known.save(tmp_path / "again.json")
        assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
        trace, store = made_trace(encoder, 8, "report"), tmp_path / "s.sqlite"
        assert known.judge(trace, cache=store) == signal.judge(trace, cache=tmp_path / "t.sqlite")

    def test_another_encoder_is_refused(self, signal, encoder):
        """Numbers of one encoder are not read with another."""
        with pytest.raises(ValueError, match="must be other"):
            encoder_by_identifier("other@123", encoder)
        with pytest.raises(ValueError, match="pass the folder that holds it as `encoder`"):
            encoder_by_identifier("no-such-model@123")
        assert encoder_by_identifier(signal.encoder, encoder) is encoder

    @pytest.mark.parametrize("query", [False, True])
    def test_spans_are_those_of_the_tokens(self, tmp_path, *, query):
        """One span a token of the text, whatever prompt stands before it.

        A text that is cut included.
        """
        prompts = {"query": "what does ", "document": "the policy "}
        for name, given in (("plain", None), ("prompted", prompts)):
            encoder = load_encoder(str(save_encoder(tmp_path / name, given)))
            texts = ["does the policy cover?", "", "water " * 60]
            spans, tokens = encoder.spans(texts, query=query), encoder.tokens(texts, query=query)
            assert [len(one) for one in spans] == [len(one) for one in tokens]
            assert spans[0].tolist() == [[0, 4], [5, 8], [9, 15], [16, 21], [21, 22]]


def random_cases(n_groups, size, seed=0):
    """Features that are the same in a group, and a label a group that hangs on nothing."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), size)
    x = rng.normal(size=(n_groups, len(FEATURES)))[groups] + 0.01 * rng.normal(
        size=(n_groups * size, len(FEATURES))
    )
    return x, (rng.permutation(n_groups) % 2 == 0)[groups], groups


def test_a_group_is_never_seen():
    """Labels that only a group's own features tell.

    By groups nothing is learned, case by case nearly everything.
    """
    x, y, groups = random_cases(24, 10)
    recipe = [Recipe(tuple(GROUPS), "logistic", 0.1)]
    apart = cross_fit(x, y, groups, recipe, folds=4)
    leaking = cross_fit(x, y, np.arange(len(y)), recipe, folds=4)
    assert metrics.auroc(y, apart.held_out) < 0.75
    assert metrics.auroc(y, leaking.held_out) > 0.95
    assert all(len({*apart.fold[groups == one].tolist()}) == 1 for one in range(24))


def test_a_case_does_not_change_its_own_value():
    """Whatever the features of one case are, the model that scores it is the same."""
    x, y, groups = random_cases(12, 6)
    recipe = [Recipe(("coverage",), "logistic", 0.1)]
    before = cross_fit(x, y, groups, recipe, folds=3)
    other = x.copy()
    other[groups == 0] += 5.0
    after = cross_fit(other, y, groups, recipe, folds=3)
    one = int(before.fold[0])
    assert np.array_equal(before.fold, after.fold)
    for first, second in zip(
        before.fold_models[one].body, after.fold_models[one].body, strict=True
    ):
        assert np.array_equal(first, second)


def test_too_few_cases_are_refused():
    """Nine of a kind are too few, and the message says how many there are."""
    x, _, groups = random_cases(20, 1)
    with pytest.raises(
        ValueError, match=r"at least 10 cases to answer and 10 others, got 9 and 10; label more"
    ):
        cross_fit(x[1:], np.arange(19) < 9, groups[1:])


def case_frame(queries, labels, **extra):
    """Trace of questions with one hit each."""
    frame = pd.DataFrame(
        {
            "case_id": [f"q{n}" for n in range(len(queries))],
            "query": queries,
            "label": labels,
            **extra,
        }
    )
    frame = frame.assign(hit_id="d", source="d.md", text="a passage", score=0.5)
    frame["expect_sources"] = [["d.md"] if label == "ok" else [] for label in labels]
    return trace_from_frame(frame, score="cosine")


def test_groups_by_question_key_and_value():
    """Cases of a question are together; a key of extra, and one value a case."""
    trace = case_frame(["a", "b", "a", "c"], ["ok", "refuse", "ok", "refuse"])
    rows = np.arange(4)
    assert case_groups(trace, rows, None).tolist() == [0, 1, 0, 2]
    # q0 and q2 ask the same
    assert case_groups(trace, rows, ["x", "x", "y", "z"]).tolist() == [0, 0, 0, 1]
    assert case_groups(trace, rows[:2], ["x", "x", "y", "z"]).tolist() == [0, 0]
    with pytest.raises(ValueError, match="one value a case, got 2 for 4"):
        case_groups(trace, rows, ["x", "y"])
    with pytest.raises(ValueError, match="key of the cases' extra, got 'article'"):
        case_groups(trace, rows, "article")


def test_targets():
    """Answerable leaves ambiguous cases out.

    Right counts whether the hits hold what is expected.
    """
    trace = case_frame(["a", "b", "c"], ["ok", "refuse", "ambiguous"])
    rows, y = labelled_rows(trace, "answerable")
    assert (rows.tolist(), y.tolist()) == ([0, 1], [True, False])
    rows, y = labelled_rows(trace, "right")
    assert (rows.tolist(), y.tolist()) == ([0, 1, 2], [True, False, False])
    with pytest.raises(ValueError, match="target must be one of answerable, right, got 'sure'"):
        labelled_rows(trace, "sure")


def record():
    """A file's content."""
    x, y, groups = random_cases(12, 6)
    fit = cross_fit(x, y, groups, PLAIN, folds=3)
    report = signal_report(y, fit.held_out)
    one = LearnedSignal(
        "learned", "answerable", "tiny@1", fit.model, fit.fold_models, {"0" * 16: 1}, report
    )
    return one.record


def test_a_broken_file_is_refused(tmp_path):
    """Each field is checked, and the message names the file and what to do."""
    path, whole = tmp_path / "learned.json", record()
    for changes in (
        {},
        {"format": 2},
        {"target": "sure"},
        {"name": "a.b"},
        {"fold_of": {"0": 9}},
        {"model": {}},
        {"fold_models": None},
        {"more": 1},
        {"report": [1]},
        {"report": ["many", 1, 0.5, 0.4, 0.6]},
        {"model": {**whole["model"], "bias": 10**400}},
    ):
        changed = {**whole, **changes} if changes else []
        path.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(InputError, match=r"learned\.json.*LearnedSignal\.save wrote it"):
            LearnedSignal.load(path)
    path.write_text(json.dumps(whole), encoding="utf-8")
    assert LearnedSignal.load(path).record == whole
