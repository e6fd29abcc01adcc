"""Abstention of reasoning models: a reply, and a second one after an intervention.

Layout of the repository's `data/out`: `stage1/SET/MODEL/{solve,unsolve}/generation_log*.jsonl` and
`stage2/SET/MODEL/{solve,unsolve}_intervention_result.jsonl`, records with `question_index`,
`input_text`, `GT_answer` and `output`. The licence (GPL-3.0) allows figures; no line of its
evaluation is copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from experiments.league.stored import stored_records
from raglab import bandit

VANILLA, INTERVENED = "vanilla", "intervened"
REPLIES = ("output", "cleaned_generated_text", "out_text", "inter_out")
KINDS = ("solve", "unsolve")  # answerable, and not
PROMPT = " Let's think step by step"  # begins what is asked besides the question


class Cell(NamedTuple):
    """Both replies of a model to the questions of a set.

    Attributes:
      group: set.
      model: name.
      table: whether each reply is right; signals of the first.
      kinds: whether a question is answerable, `solve` or `unsolve`, [Q].
      questions: texts, [Q].
      refused: whether each reply says that it does not know, [Q, 2].
    """

    group: str
    model: str
    table: bandit.Table
    kinds: list[str]
    questions: list[str]
    refused: NDArray[np.bool_]


def abstention_cells(folder: Path) -> Iterator[Cell]:
    """Cells whose four files are there.

    A reply is right where the question is answerable and its last boxed answer is the stored one,
    or where it is not and the reply says that it does not know. The cost of the second reply is 1,
    that of the first 0. Signals are of the first reply alone.

    Args:
      folder: of the layout.
    """
    for place in sorted((folder / "out/stage1").glob("*/*")):
        group, model = place.parent.name, place.name
        second = folder / "out/stage2" / group / model
        stages = [
            [*sorted(place.glob(f"{kind}/*.jsonl*")), second / f"{kind}_intervention_result.jsonl"]
            for kind in KINDS
        ]
        if not all(len(files) == 2 and all(map(Path.exists, files)) for files in stages):
            continue
        rows, kinds, questions, refused = [], [], [], []
        for kind, files in zip(KINDS, stages, strict=True):
            first, again = (
                {row["question_index"]: row for row in stored_records(path)} for path in files
            )
            for key in sorted(first.keys() & again.keys()):
                gold = str(again[key]["GT_answer"]) if kind == "solve" else None
                replies = _reply(first[key]), _reply(again[key])
                right = [float(is_right(reply, gold)) for reply in replies]
                rows.append({VANILLA: right[0], INTERVENED: right[1], **_signals(replies[0])})
                kinds.append(kind)
                questions.append(str(again[key]["input_text"]).partition(PROMPT)[0])
                refused.append([is_right(reply, None) for reply in replies])
        frame = pd.DataFrame(rows)
        table = bandit.Table.from_frame(
            frame,
            costs={VANILLA: 0.0, INTERVENED: 1.0},
            price=0.0,
            features=list(frame)[2:],
            order="given",
        )
        yield Cell(group, model, table, kinds, questions, np.array(refused))


def is_right(reply: str, gold: str | None) -> bool:
    r"""Whether a reply is right: the gold answer, or that it does not know where there is none.

    Args:
      reply: with its reasoning, which ends at `</think>`; one that does not end is wrong.
      gold: answer; None of a question without one.

    Example:
      >>> (
      ...     is_right("so </think> it is \\boxed{15}", "15.0"),
      ...     is_right("</think> I don't know.", None),
      ... )
      (True, True)
    """
    _, ended, final = reply.rpartition("</think>")
    boxed = re.findall(r"boxed\{((?:[^{}]|\{[^{}]*\})*)\}", final)
    is_unknown = "don't know" in final.lower()
    if not ended or gold is None or is_unknown or not boxed:
        return bool(ended) and gold is None and is_unknown
    answer, wanted = (
        re.sub(r"[\s$,]|\\(?:text|left|right)", "", text) for text in (boxed[-1], gold)
    )
    try:
        return float(answer) == float(wanted)
    except ValueError:
        return answer.replace("dfrac", "frac") == wanted.replace("dfrac", "frac")


def _reply(record: dict[str, Any]) -> str:
    """Reply of a record, under the name that its file has for it."""
    return str(record[next(name for name in REPLIES if name in record)])


def _signals(reply: str) -> dict[str, float]:
    """Length of the reasoning, its doubts, and how it ends."""
    thought, ended, final = reply.rpartition("</think>")
    if not ended:
        thought, final = reply, ""
    text = thought.lower()
    return {
        "length": float(np.log1p(len(text))),
        "waits": float(np.log1p(text.count("wait"))),
        "unknown": float("don't know" in final.lower()),
        "doubts": float(np.log1p(len(re.findall("missing|not enough|unclear|assum", text)))),
        "ended": float(bool(ended)),
    }
