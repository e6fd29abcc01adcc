"""Language of a corpus and of questions (shore): what is not in English (S1.7).

Warnings where its encoder knows no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import numpy as np
import regex

from raglab.arguments.user_warnings import warn_user
from raglab.models.files import BUNDLED
from raglab.policy_parts.arms import ARMS
from raglab.values import TraceData
from raglab.words.text import ENGLISH_FUNCTION_WORDS, is_foreign, split_code
from raglab.words.tokeniser import split_words

SAMPLED_TEXTS = 2_000  # texts at most, a seeded sample of a corpus
MIN_JUDGED_WORDS = (
    12  # words, or letters of another script, that a text is judged by; of fewer it is not
)
MIN_ENGLISH_SHARE = (
    0.15  # share of English function words: below it no prose is English; see rule S1.7
)
# share of the texts not in English above which a warning says so; of the bundled sets 0.25 at most
MAX_FOREIGN_SHARE = 1 / 3

_LETTER = regex.compile(r"\p{L}")
_OTHER_LETTER = regex.compile(r"[^\P{L}\p{Latin}]")


def count_english(texts: Sequence[str]) -> tuple[int, int]:
    """How many texts are not in English, and how many are long enough to tell.

    By letter script and share of English function words.

    Example:
      >>> count_english(["The fee is paid by the owner and is due at once, for each of the parts."])
      (0, 1)
      >>> count_english(["水管爆裂造成的室内财产损失由本保单赔偿,每次事故的免赔额为500元。"])
      (1, 1)
    """
    generator = Random(0)  # noqa: S311 - no secret
    sampled_texts = generator.sample(list(texts), min(len(texts), SAMPLED_TEXTS))
    verdicts = [is_english(text) for text in sampled_texts]
    return verdicts.count(False), len(verdicts) - verdicts.count(None)


def is_english(text: str) -> bool | None:
    """Whether a text is in English; None where it is too short to tell.

    Code and tables are left out.
    """
    prose_lines = [
        prose_line for prose_line in split_code(text.splitlines()) if isinstance(prose_line, str)
    ]
    prose = "\n".join(
        prose_line for prose_line in prose_lines if not prose_line.lstrip().startswith("|")
    )
    n_letters = len(_LETTER.findall(prose))
    n_foreign_letters = 0 if prose.isascii() else len(_OTHER_LETTER.findall(prose))
    if 2 * n_foreign_letters > n_letters:
        return False if n_letters >= MIN_JUDGED_WORDS else None
    prose_words = [word for word in split_words(prose) if word.isalpha()]
    if len(prose_words) < MIN_JUDGED_WORDS:
        return None
    return sum(word in ENGLISH_FUNCTION_WORDS for word in prose_words) >= MIN_ENGLISH_SHARE * len(
        prose_words
    )


def warn_of_language(texts: Sequence[str], encoder: str, arms: Iterable[str]) -> None:
    """Say how many texts are not in English if the encoder is the bundled one, trained on English.

    The languages of other encoders are not known here: of them nothing is said.

    Args:
      texts: of the chunks.
      encoder: name of the encoder, as fingerprints have it.
      arms: that are asked; where none of them compares embeddings, nothing is said.

    Warns:
      UserWarning: more than a third of the texts that are long enough to tell are in other
        languages.
    """
    if not encoder.startswith(f"{BUNDLED}==") or not any(ARMS[arm].dense for arm in arms):
        return
    n_foreign, n_judged = count_english(texts)
    if n_foreign > MAX_FOREIGN_SHARE * n_judged:
        warn_user(
            f"{n_foreign:,} of {n_judged:,} chunks that were looked at are not in English, "
            f"the language of the bundled encoder {encoder}: its distances mean little for them; "
            "name another (encoder=...), or compare with keywords alone: "
            'build_trace(..., arms=("hybrid", "bm25")).'
        )


def foreign_questions(trace: TraceData) -> list[int]:
    """Cases whose question neither the passages found for it nor the bundled encoder can read.

    None under another encoder, whose languages are not known.

    Args:
      trace: of the questions.

    Returns:
      Their positions.
    """
    encoder_name: str = trace.meta.get("parameters", {}).get("encoder", "")
    if not encoder_name.startswith(f"{BUNDLED}=="):
        return []
    texts = [chunk.full_text for chunk in trace.chunks]
    return [
        case_index
        for case_index, case in enumerate(trace.cases)
        if is_foreign(
            case.query,
            (
                texts[chunk_index]
                for chunk_index in np.unique(trace.hits.chunk[case_index])
                if chunk_index >= 0
            ),
        )
    ]


def warn_of_questions(trace: TraceData) -> None:
    """Say how many questions of a trace are in a language that is not shared.

    Warns:
      UserWarning: some are, see `foreign_questions`.
    """
    if case_indices := foreign_questions(trace):
        warn_user(
            f"{len(case_indices):,} of {len(trace):,} questions, such as case "
            f"{trace.cases[case_indices[0]].id!r}, seem to be in a language that passages and "
            "bundled encoder do not share: what is found for them means little; "
            "name an encoder of that language (encoder=...)."
        )
