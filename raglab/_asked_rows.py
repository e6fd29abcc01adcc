"""Default rows of a block of users as arrays: what a request meets, how it votes, when a row splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raglab._strata import gathers
from raglab._users import Array, World
from raglab._votes import (
    CORRECTED,
    FAILED,
    N_COUNTS,
    NAMED,
    NO,
    PLACE,
    SILENT,
    YES,
    Learner,
    Votes,
    aged,
    confidence,
    for_and_against,
    mean,
    scheduled,
    top,
    voted,
    votes_of,
)

Index = NDArray[np.intp]
Small = NDArray[np.int16]
NONE = -1


@dataclass
class Rows:
    """Default rows of U users, changed in place: of each slot the parent, then one for each level L it may split into.

    counts, n, confidence, met, day: of every row, R = U · slots · (1 + L). The others: of the parents, P = U · slots.
    met: requests that met the row. day: of its last vote. strata: by column and level, as of `ClarificationDefault`.
    column: a row was split by it at request split_at; -1 not. there: whether the split made a row for a level.

    Values that tie go by the order of the candidates, where `ClarificationDefault` takes the first that was voted on.
    """

    learner: Learner
    slots: int
    n_levels: int
    counts: Array  # [R, V, 6]
    n: Array
    confidence: Array
    met: NDArray[np.int32]
    day: Array
    strata: Array | None  # [P, M, L, V, 6]; none where rows never split
    looks: NDArray[np.int16]
    column: Small
    split_at: NDArray[np.int32]
    there: NDArray[np.bool_]  # [P, L]

    def at(self, who: Index, slot: Small, level: Small) -> tuple[Index, Index]:
        """Most specific row that each user's request meets, [U], and the parent of its slot."""
        parent = who * self.slots + slot
        if self.strata is None:
            return parent, parent
        column, row = self.column[parent], parent * (1 + self.n_levels)
        if not (column >= 0).any():
            return row, parent
        own = level[np.arange(len(who)), column].astype(np.intp)
        return row + np.where((column >= 0) & self.there[parent, own], 1 + own, 0), parent

    def asks(self, row: Index) -> NDArray[np.bool_]:
        """Whether the request that meets each row now is asked: as `default_learner.asks`."""
        return scheduled(self.confidence[row], self.met[row], self.learner)

    def liking(self, row: Index, offered: NDArray[np.bool_]) -> Array:
        """Score by which `suggest` takes the first best of the values offered, [U, V]; 0 without a vote for it."""
        votes = Votes(self.counts[row], self.n[row])
        liked = votes_of(votes)
        score = np.where(liked > 0.0, mean(votes, self.learner) if self.learner.rule == "posterior" else liked, 0.0)
        return np.where(offered, score, -np.inf)

    def gain(self, row: Index, offered: NDArray[np.bool_], error_cost: float) -> Array:
        """What a question between the values offered saves, [U]: as `worth_asking` of `shares`."""
        for_it, _ = for_and_against(Votes(self.counts[row], self.n[row]))
        weight = np.where(offered, self.learner.prior_yes + for_it, 0.0)
        return np.asarray(error_cost * np.maximum(1.0 - weight.max(axis=1) / weight.sum(axis=1), 0.0))

    def vote(self, row: Index, value: Index, signal: Index, named: Index, day: float) -> None:
        """One signal to each row, all different."""
        before = Votes(self.counts[row], self.n[row])
        if self.learner.half_life_days > 0.0:
            before = aged(before, 0.5 ** ((day - self.day[row]) / self.learner.half_life_days))
        after = voted(before, value, signal, named)
        self.counts[row], self.n[row], self.day[row] = after.counts, after.n, day
        self.confidence[row] = confidence(after, self.learner)

    def stratum(self, parent: Index, value: Index, signal: Index, named: Index, level: Small) -> None:
        """The same signal to the counts by condition of rows that are not split."""
        if self.strata is None:
            return
        column = np.arange(level.shape[1])

        def more(there: NDArray[np.bool_], place: Index, what: Any) -> None:  # noqa: ANN401 - one, or one a user
            of = np.flatnonzero(there & (self.column[parent] < 0))
            where = np.broadcast_to(what, there.shape)[of][:, None]
            self.strata[parent[of][:, None], column, level[of], place[of][:, None], where] += 1.0  # type: ignore[index]

        more(signal >= 0, value, PLACE[signal])
        if (named >= 0).any():
            more(named >= 0, named, NAMED)
            more(named >= 0, value, CORRECTED)

    def look(self, parent: Index, request: int, day: float) -> None:
        """Test rows whose failures reached a look, and split those with evidence: as `_strata.stratify`."""
        if self.strata is None or not len(parent):
            return
        row = parent * (1 + self.n_levels)
        failures = self.counts[row][..., FAILED].sum(axis=-1)
        due = (self.column[parent] < 0) & (failures >= self.learner.first_look * 2.0 ** self.looks[parent])
        if not due.any():
            return
        parent, row = parent[due], row[due]
        lead = top(Votes(self.counts[row], self.n[row]), self.learner)
        parent, row, lead = (part[lead >= 0] for part in (parent, row, lead))
        self.looks[parent] += 1
        seen = self.strata[parent]  # [D, M, L, V, 6]
        of_lead = np.take_along_axis(seen, lead[:, None, None, None, None], axis=3)[..., 0, :]
        tried = of_lead.sum(axis=-1) > 0.0
        tried &= tried.sum(axis=-1, keepdims=True) > 1
        failed = np.where(tried, np.rint(of_lead[..., FAILED]), 0.0)
        signals = np.where(tried, np.rint(of_lead[..., [YES, SILENT, NO, FAILED]].sum(axis=-1)), 0.0)
        sums = (part.sum(axis=-1, keepdims=True) for part in (failed, signals))
        p = np.where(tried, gathers(failed, signals, *sums), np.inf).reshape(len(parent), -1)
        bar = self.learner.alpha / 2.0 ** self.looks[parent] / np.maximum(tried.sum(axis=(1, 2)), 1)
        best = p.argmin(axis=1)
        for place in np.flatnonzero(p[np.arange(len(p)), best] <= bar):
            self._split(int(parent[place]), int(best[place]) // self.n_levels, request, day)

    def _split(self, parent: int, column: int, request: int, day: float) -> None:
        """Rows of the levels of a column, with the votes that were cast under them: as `_strata.split`."""
        if self.strata is None:
            return
        first = parent * (1 + self.n_levels)
        counts = self.strata[parent, column].copy()  # [L, V, 6]
        self.there[parent] = counts.sum(axis=(1, 2)) > 0.0
        self.column[parent], self.split_at[parent] = column, request
        counts[..., FAILED] = 0.0
        n = counts[..., [YES, SILENT, NO]].sum(axis=(1, 2))
        votes = Votes(counts, n)
        if self.learner.half_life_days > 0.0:
            total = self.strata[parent, column][..., [YES, SILENT, NO, FAILED]].sum()
            votes = aged(votes, np.full(len(n), self.n[first] / total))
        rows = first + 1 + np.arange(self.n_levels)
        self.counts[rows], self.n[rows], self.day[rows] = votes.counts, votes.n, day
        self.confidence[rows] = confidence(votes, self.learner)


def opened(world: World, users: int, learner: Learner) -> Rows:
    """Rows without a vote."""
    n_columns, n_values = len(world.columns) + world.noise_columns, world.shares.shape[-1]
    splits = learner.stratify and n_columns > 0
    n_levels, parents = world.n_levels if splits else 0, users * world.slots
    size = parents * (1 + n_levels)
    strata: Any = np.zeros((parents, n_columns, n_levels, n_values, N_COUNTS)) if splits else None
    return Rows(
        learner,
        world.slots,
        n_levels,
        np.zeros((size, n_values, N_COUNTS)),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size, np.int32),
        np.zeros(size),
        strata,
        np.zeros(parents, np.int16),
        np.full(parents, NONE, np.int16),
        np.full(parents, NONE, np.int32),
        np.zeros((parents, n_levels), bool),
    )
