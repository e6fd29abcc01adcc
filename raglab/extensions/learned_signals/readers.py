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
from raglab.values import FloatArray, refuse


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

    def probability(self, pairs: Sequence[tuple[str, str]]) -> FloatArray:
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


WINDOW_STRIDE = 128  # tokens that two windows of a long passage share
MAX_QUESTION_TOKENS, MAX_ANSWER_TOKENS = 64, 30  # tokens


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
        best_spans = [Span("", 0, np.nan, 1.0)] * len(pairs)
        keys = [(len(question) + len(passage), question, passage) for question, passage in pairs]
        for pair_indices, batch_spans in forward_passes(
            self.model,
            keys,
            lambda pair_indices: [self._span(*pairs[pair_index]) for pair_index in pair_indices],
        ):
            for pair_index, best_span in zip(pair_indices, batch_spans, strict=True):
                best_spans[pair_index] = best_span
        return best_spans

    def _span(self, question: str, passage: str) -> Span:
        """Best span over the windows of a passage."""
        # a tokenizer keeps its settings, which threads would change under each other
        with self._lock:
            windows = self._windows(question, passage)
        is_passage = np.array(
            [
                [sequence_id == 1 for sequence_id in windows.sequence_ids(window_number)]
                for window_number in range(len(windows["input_ids"]))
            ]
        )
        if not is_passage.any():
            return Span("", 0, np.nan, 1.0)
        start_logits, end_logits = self._window_logits(windows)
        classification = np.argmax(
            windows["input_ids"].numpy() == self.tokenizer.cls_token_id, axis=1
        )
        window_numbers = np.arange(len(start_logits))
        no_answer_score = float(
            (
                start_logits[window_numbers, classification]
                + end_logits[window_numbers, classification]
            ).min()
        )
        # One window after the other, [start, end] each, of which the first of equal sums is taken.
        token_positions = np.arange(start_logits.shape[1])
        token_distances = token_positions[None, :] - token_positions[:, None]
        is_ordered = (token_distances >= 0) & (token_distances < MAX_ANSWER_TOKENS)
        best_score = -np.inf
        best_place = (0, 0, 0)
        for window_row in window_numbers:
            is_allowed = is_ordered & np.outer(is_passage[window_row], is_passage[window_row])
            span_scores = np.where(
                is_allowed, np.add.outer(start_logits[window_row], end_logits[window_row]), -np.inf
            )
            first_token, last_token = np.unravel_index(
                int(np.argmax(span_scores)), span_scores.shape
            )
            if span_scores[first_token, last_token] > best_score:
                best_score = float(span_scores[first_token, last_token])
                best_place = (int(window_row), int(first_token), int(last_token))
        token_offsets = windows["offset_mapping"][best_place[0]]
        span_start = int(token_offsets[best_place[1]][0])
        span_end = int(token_offsets[best_place[2]][1])
        # some tokenizers count the blank before a word as part of it
        span_text = passage[span_start:span_end].strip()
        span_start += passage[span_start:span_end].find(span_text)
        return Span(
            span_text,
            span_start,
            best_score,
            float(np.exp(-np.logaddexp(0.0, best_score - no_answer_score))),
        )

    def _windows(self, question: str, passage: str) -> Any:  # noqa: ANN401 - a batch of a tokenizer
        """Tokens of question and passage, in as many windows as the passage needs."""
        n_special_tokens = self.tokenizer.num_special_tokens_to_add(pair=True)
        max_question_tokens = min(MAX_QUESTION_TOKENS, (self.max_tokens - n_special_tokens) // 2)
        question_tokens = self.tokenizer(
            question,
            add_special_tokens=False,
            truncation=True,
            max_length=max_question_tokens,
            return_offsets_mapping=True,
        )
        short_question = (
            question[: question_tokens["offset_mapping"][-1][1]]
            if question_tokens["input_ids"]
            else ""
        )
        passage_tokens = self.max_tokens - n_special_tokens - len(question_tokens["input_ids"])
        return self.tokenizer(
            short_question,
            passage,
            truncation="only_second",
            max_length=self.max_tokens,
            stride=min(WINDOW_STRIDE, passage_tokens // 2),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding=True,
            return_tensors="pt",
        )

    def _window_logits(
        self,
        windows: Any,  # noqa: ANN401
    ) -> tuple[FloatArray, FloatArray]:
        """Start and end logits of every token of every window, each [windows, tokens]."""
        model_inputs = {
            input_name: windows[input_name]
            for input_name in self.tokenizer.model_input_names
            if input_name in windows
        }
        logit_batches = []
        for first_window in range(0, len(windows["input_ids"]), BATCH_TEXTS):
            batch_inputs = {
                input_name: input_rows[first_window : first_window + BATCH_TEXTS].to(
                    self.model.device
                )
                for input_name, input_rows in model_inputs.items()
            }
            model_outputs = network_outputs(self.model, batch_inputs)
            logit_batches.append(
                np.stack(
                    [numpy_array(model_outputs.start_logits), numpy_array(model_outputs.end_logits)]
                )
            )
        start_logits, end_logits = np.concatenate(logit_batches, axis=1).astype(np.float64)
        return start_logits, end_logits


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
    names_by_label = label_names(model)
    if len(names_by_label) < 2:
        refuse(
            "a classifier must have two or more labels",
            f"{names_by_label} from {identifier}",
            "try load_cross_encoder",
        )
    label_numbers = [
        label_number
        for label_number, label_name in names_by_label.items()
        if label in (label_number, label_name)
    ]
    label_numbers = label_numbers or [
        label_number
        for label_number, label_name in names_by_label.items()
        if str(label).lower() == label_name.lower()
    ]
    if len(label_numbers) != 1 or isinstance(label, bool):
        refuse(
            f"label must be one of {names_by_label} of {identifier}, by name or number",
            repr(label),
            "correct it",
        )
    return Classifier(identifier, label_numbers[0], model)


def load_reader(name: str, *, download: bool = False) -> Reader:
    """Load an extractive reader, best trained on SQuAD 2.0 or like, with unanswerable questions.

    Args:
      name, download: as for `load_encoder`; nothing is bundled.

    Raises:
      ValueError: the name must be found and be a model with weights for question answering and a
        fast tokenizer.
    """
    model_files = find_model(name, download=download)
    from transformers import AutoModelForQuestionAnswering as Network
    from transformers import AutoTokenizer

    with (
        quiet(),
        explain_load_failure(model_files.identifier, "an extractive reader", "transformers"),
    ):
        check_weights(model_files.folder)
        safe_arguments = {"local_files_only": True, "trust_remote_code": False}
        tokenizer: Any = AutoTokenizer.from_pretrained(str(model_files.folder), **safe_arguments)
        loaded_network: Any = Network.from_pretrained(
            str(model_files.folder),
            use_safetensors=True,
            output_loading_info=True,
            **safe_arguments,
        )
        model, loading_report = loaded_network
        if loading_report["missing_keys"]:  # they would be drawn at random
            msg = f"it has no weights for {min(loading_report['missing_keys'])}"
            raise ValueError(msg)
        if not tokenizer.is_fast or tokenizer.cls_token_id is None:
            msg = (
                "its tokenizer must say where tokens stand in the text, and have a classification "
                "token"
            )
            raise ValueError(msg)
        loaded_reader = Reader(
            model_files.identifier,
            _max_tokens(tokenizer, model),
            tokenizer,
            model.to(device_name()).eval(),
        )
        loaded_reader.read([(FIRST_TEXT, FIRST_TEXT)])
    return loaded_reader


NO_TOKEN_LIMIT = 1_000_000  # from here on a tokenizer's maximum length says that it has none


# a tokenizer and a network of transformers
def _max_tokens(tokenizer: Any, model: Any) -> int:  # noqa: ANN401
    """Tokens that a network reads at once.

    The least of what its tokenizer, configuration and positions state.
    """
    stated_limits = [
        tokenizer.model_max_length,
        getattr(model.config, "max_position_embeddings", None),
    ]
    for name, module in model.named_modules():
        if (
            name.endswith("position_embeddings")
            and getattr(module, "padding_idx", None) is not None
        ):
            # RoBERTa counts from behind the padding
            stated_limits.append(module.num_embeddings - module.padding_idx - 1)
    return min(
        (
            int(stated_limit)
            for stated_limit in stated_limits
            if stated_limit is not None and 0 < stated_limit < NO_TOKEN_LIMIT
        ),
        default=NO_TOKEN_LIMIT,
    )
