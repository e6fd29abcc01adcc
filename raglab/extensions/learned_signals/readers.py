"""Readers and classifiers (shore): models that mark an answer's span, or sort pairs of texts.

transformers 5 has no pipeline for question answering any more; windows, spans and the score without
an answer are read here from the logits of its models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab.models.files import check_weights, find_model
from raglab.models.loaders import (
    BATCH_TEXTS,
    FIRST_TEXT,
    device_name,
    explain_load_failure,
    forward_passes,
    label_names,
    label_probability,
    network_outputs,
    numpy_array,
    open_cross_encoder,
    quiet,
)
from raglab.values import refuse


@dataclass(frozen=True, slots=True)
class Classifier:
    """A model that sorts pairs of texts, of which one label is wanted.

    Sufficient, grounded, relevant.

    name: stable identifier that belongs into fingerprints, beside the label. label: number of its
    logit. model: the loaded one.
    """

    name: str
    label: int
    model: Any = field(repr=False, compare=False)

    def probability(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Probability of the label for each pair, float64 [N]: softmax over all labels.

        Of a model whose labels do not exclude each other (`multi_label_classification`) it is the
        label's own sigmoid.
        """
        return label_probability(self.model, self.label, pairs)


class Span(NamedTuple):
    """What an extractive reader takes from a passage.

    text: the best span, "" where the passage has no token. start: its first character there. score:
    logit of its start plus logit of its end; NaN without a span. no_answer: probability that the
    passage does not answer the question.
    """

    text: str
    start: int
    score: float
    no_answer: float


STRIDE = 128  # tokens that two windows of a long passage share
LONGEST_QUESTION, LONGEST_ANSWER = 64, 30  # tokens


@dataclass(frozen=True, slots=True)
class Reader:
    """A model that marks the span of a passage that answers a question.

    name: stable identifier that belongs into fingerprints. max_tokens: of question and passage
    together; a longer passage is read in windows. tokenizer, model: the loaded ones.
    """

    name: str
    max_tokens: int
    tokenizer: Any = field(repr=False, compare=False)
    model: Any = field(repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def read(self, pairs: Sequence[tuple[str, str]]) -> list[Span]:
        """Best span of each (question, passage) pair, and how likely the passage holds no answer.

        The span has the highest sum of start and end logit among those of at most 30 tokens inside
        the passage, the first of equal ones. What speaks against it is the same sum at the
        classification token, the lowest over the windows; `no_answer` is the logistic function of
        that minus the span's score, so that 0.5 is where the score difference of SQuAD 2.0 is 0. Of
        a question the first 64 tokens are read. A model that was never shown a question without an
        answer gives a `no_answer` that means nothing.

        Source: Devlin et al. 2019, section 4.3; Rajpurkar et al. 2018.
        """
        spans = [Span("", 0, np.nan, 1.0)] * len(pairs)
        keys = [(len(question) + len(passage), question, passage) for question, passage in pairs]
        for at, batch_spans in forward_passes(
            self.model, keys, lambda at: [self._span(*pairs[i]) for i in at]
        ):
            for i, span in zip(at, batch_spans, strict=True):
                spans[i] = span
        return spans

    def _span(self, question: str, passage: str) -> Span:
        """Best span over the windows of a passage."""
        # a tokenizer keeps its settings, which threads would change under each other
        with self._lock:
            windows = self._windows(question, passage)
        inside = np.array(
            [
                [part == 1 for part in windows.sequence_ids(i)]
                for i in range(len(windows["input_ids"]))
            ]
        )
        if not inside.any():
            return Span("", 0, np.nan, 1.0)
        starts, ends = self._window_logits(windows)
        classification = np.argmax(
            windows["input_ids"].numpy() == self.tokenizer.cls_token_id, axis=1
        )
        rows = np.arange(len(starts))
        nothing = float((starts[rows, classification] + ends[rows, classification]).min())
        # One window after the other, [start, end] each, of which the first of equal sums is taken.
        width = np.arange(starts.shape[1])
        apart = width[None, :] - width[:, None]
        in_order = (apart >= 0) & (apart < LONGEST_ANSWER)
        best, place = -np.inf, (0, 0, 0)
        for row in rows:
            allowed = in_order & np.outer(inside[row], inside[row])
            sums = np.where(allowed, np.add.outer(starts[row], ends[row]), -np.inf)
            first, last = np.unravel_index(int(np.argmax(sums)), sums.shape)
            if sums[first, last] > best:
                best, place = float(sums[first, last]), (int(row), int(first), int(last))
        offsets = windows["offset_mapping"][place[0]]
        start, end = int(offsets[place[1]][0]), int(offsets[place[2]][1])
        # some tokenizers count the blank before a word as part of it
        text = passage[start:end].strip()
        start += passage[start:end].find(text)
        return Span(text, start, best, float(np.exp(-np.logaddexp(0.0, best - nothing))))

    def _windows(self, question: str, passage: str) -> Any:  # noqa: ANN401 - a batch of a tokenizer
        """Tokens of question and passage, in as many windows as the passage needs."""
        frame = self.tokenizer.num_special_tokens_to_add(pair=True)
        most = min(LONGEST_QUESTION, (self.max_tokens - frame) // 2)
        ids = self.tokenizer(
            question,
            add_special_tokens=False,
            truncation=True,
            max_length=most,
            return_offsets_mapping=True,
        )
        cut = question[: ids["offset_mapping"][-1][1]] if ids["input_ids"] else ""
        room = self.max_tokens - frame - len(ids["input_ids"])
        return self.tokenizer(
            cut,
            passage,
            truncation="only_second",
            max_length=self.max_tokens,
            stride=min(STRIDE, room // 2),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding=True,
            return_tensors="pt",
        )

    def _window_logits(
        self,
        windows: Any,  # noqa: ANN401
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Start and end logits of every token of every window, each [windows, tokens]."""
        read = {name: windows[name] for name in self.tokenizer.model_input_names if name in windows}
        parts = []
        for start in range(0, len(windows["input_ids"]), BATCH_TEXTS):
            inputs = {
                name: rows[start : start + BATCH_TEXTS].to(self.model.device)
                for name, rows in read.items()
            }
            outputs = network_outputs(self.model, inputs)
            parts.append(
                np.stack([numpy_array(outputs.start_logits), numpy_array(outputs.end_logits)])
            )
        starts, ends = np.concatenate(parts, axis=1).astype(np.float64)
        return starts, ends


def load_classifier(name: str, label: str | int, *, download: bool = False) -> Classifier:
    """Load a classifier of pairs with two or more labels, one of which is wanted.

    Args:
      name, download: as for `load_encoder`; nothing is bundled.
      label: name of the label in the model's configuration, capitals or not, or its number from 0.

    Raises:
      ValueError: the name must be found and be a classifier with two or more labels, one of them
        the one named.
    """
    identifier, model = open_cross_encoder(name, download=download)
    labels = label_names(model)
    if len(labels) < 2:
        refuse(
            "a classifier must have two or more labels",
            f"{labels} from {identifier}",
            "try load_cross_encoder",
        )
    named = [number for number, label_name in labels.items() if label in (number, label_name)]
    named = named or [
        number for number, label_name in labels.items() if str(label).lower() == label_name.lower()
    ]
    if len(named) != 1 or isinstance(label, bool):
        refuse(
            f"label must be one of {labels} of {identifier}, by name or number",
            repr(label),
            "correct it",
        )
    return Classifier(identifier, named[0], model)


def load_reader(name: str, *, download: bool = False) -> Reader:
    """Load an extractive reader, best trained on SQuAD 2.0 or like, with unanswerable questions.

    Args:
      name, download: as for `load_encoder`; nothing is bundled.

    Raises:
      ValueError: the name must be found and be a model with weights for question answering and a
        fast tokenizer.
    """
    files = find_model(name, download=download)
    from transformers import AutoModelForQuestionAnswering as Network
    from transformers import AutoTokenizer

    with quiet(), explain_load_failure(files.identifier, "an extractive reader", "transformers"):
        check_weights(files.folder)
        safe = {"local_files_only": True, "trust_remote_code": False}
        tokenizer: Any = AutoTokenizer.from_pretrained(str(files.folder), **safe)
        loaded: Any = Network.from_pretrained(
            str(files.folder), use_safetensors=True, output_loading_info=True, **safe
        )
        model, report = loaded
        if report["missing_keys"]:  # they would be drawn at random
            msg = f"it has no weights for {min(report['missing_keys'])}"
            raise ValueError(msg)
        if not tokenizer.is_fast or tokenizer.cls_token_id is None:
            msg = (
                "its tokenizer must say where tokens stand in the text, and have a classification "
                "token"
            )
            raise ValueError(msg)
        reader = Reader(
            files.identifier,
            _max_tokens(tokenizer, model),
            tokenizer,
            model.to(device_name()).eval(),
        )
        reader.read([(FIRST_TEXT, FIRST_TEXT)])
    return reader


MOST_TOKENS = 1_000_000  # from here on a tokenizer's maximum length says that it has none


# a tokenizer and a network of transformers
def _max_tokens(tokenizer: Any, model: Any) -> int:  # noqa: ANN401
    """Tokens that a network reads at once.

    The least of what its tokenizer, configuration and positions state.
    """
    stated = [tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None)]
    for name, part in model.named_modules():
        if name.endswith("position_embeddings") and getattr(part, "padding_idx", None) is not None:
            # RoBERTa counts from behind the padding
            stated.append(part.num_embeddings - part.padding_idx - 1)
    return min(
        (int(limit) for limit in stated if limit is not None and 0 < limit < MOST_TOKENS),
        default=MOST_TOKENS,
    )
