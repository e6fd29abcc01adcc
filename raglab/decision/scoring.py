"""Scoring (algebra): which cases are scored by status alone, and the sentence that says so (S6.1, S6.3)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raglab.decision.answer_text import has_gold_answer, text_cases
from raglab.decision.measured_trace import once
from raglab.decision.trace_view import TracePart, TraceView, trace_parts
from raglab.user_warnings import warn_user
from raglab.values import Case

if TYPE_CHECKING:
    import pandas as pd


def status_only(cases: Iterable[Case]) -> NDArray[np.bool_]:
    """Whether each case is labelled ok and states no sources, so that any answer counts as correct, [Q].

    A case states sources by `expect_sources`, `expect_sources_any` or `min_sources`.
    """
    return np.array([_states_no_sources(case) for case in cases], dtype=bool)


def _states_no_sources(case: Case) -> bool:
    return case.expect_status == "ok" and not (case.expect_sources or case.expect_sources_any or case.min_sources)


def trace_status_only(trace: TraceView) -> NDArray[np.bool_]:
    """Which cases of a trace are scored by status alone, [Q]: `status_only`, and no recorded answer is judged by text.

    The hits of a part on disk are loaded only where some case may be judged by text.
    """
    parts = [once(part, "status only", partial(_part_status_only, part)) for part in trace_parts(trace)]
    return np.concatenate(parts)


def _part_status_only(part: TracePart) -> NDArray[np.bool_]:
    cases = part.cases
    alone = status_only(cases)
    return alone & ~text_cases(part.loaded()) if (alone & has_gold_answer(cases)).any() else alone


def status_only_count(trace: TraceView) -> int:
    """Number of cases of a trace that are scored by status alone.

    Source: rules S6.1, S6.3.
    """
    return int(trace_status_only(trace).sum())


def status_only_sentence(count: int, cases: int) -> str:
    """Headline of a result some of whose cases are scored by status alone; '' where there are none.

    Example:
      >>> status_only_sentence(41, 60)
      '41 of 60 cases are scored by status alone'
    """
    return f"{count:,} of {cases:,} cases {'is' if count == 1 else 'are'} scored by status alone" if count else ""


def status_only_note(alone: NDArray[np.bool_]) -> str:
    """The sentence about cases, [Q], with the reason; '' where every case labelled ok states sources."""
    sentence = status_only_sentence(int(alone.sum()), len(alone))
    return f"{sentence}: labelled ok without sources, they count any answer as correct (S6.3)." if sentence else ""


def with_headline(table: pd.DataFrame, alone: NDArray[np.bool_]) -> pd.DataFrame:
    """The table of a public function with `status_only_note` in `attrs["headline"]` and in a warning at its caller.

    Args:
      alone: whether each case is scored by status alone, [Q].
    """
    table.attrs["headline"] = status_only_note(alone)
    if table.attrs["headline"]:
        warn_user(table.attrs["headline"])
    return table
