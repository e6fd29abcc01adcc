"""Default rows of many users as arrays (algebra): votes, gate and splits at once (S5.4 to S5.6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raglab.default_learner.confidence import (
    FAILED,
    N_COUNTS,
    NAMED,
    NO,
    SILENT,
    YES,
    DefaultLearner,
    Votes,
    add_signal,
    decay_votes,
    mean,
    question_schedule,
    vote_confidence,
    vote_counts,
)
from raglab.default_learner.simulated_users import Array, Small, World
from raglab.default_learner.stratification import doubts, evidence

Index = NDArray[np.intp]

NONE = -1


@dataclass
class DefaultRowArrays:
    """Default rows of U users, changed in place.

    Of each slot the parent, then one for each level L it may split into.

    counts, n, confidence, met, day: of every row, R = U · slots · (1 + L). The others: of the
    parents, P = U · slots. met: requests that met the row. day: of its last vote. strata: by column
    and level, as of `ClarificationDefault`. column: a row was split by it at request split_at; -1
    not. there: whether the split made a row for a level.

    Values that tie go by the order of the candidates, where `ClarificationDefault` takes the first
    that was voted on.
    """

    learner: DefaultLearner
    slots: int
    n_levels: int
    counts: Array  # [R, V, 7]
    n: Array
    confidence: Array
    met: NDArray[np.int32]
    day: Array
    strata: Array  # [P, M, L, V, 7]; L is 0 where rows never split
    column: Small
    split_at: NDArray[np.int32]
    there: NDArray[np.bool_]  # [P, L]

    def at(self, who: Index, slot: Small, level: Small) -> tuple[Index, Index]:
        """Most specific row that each user's request meets, [U], and the parent of its slot."""
        parent = who * self.slots + slot
        column, row = self.column[parent], parent * (1 + self.n_levels)
        if not (column >= 0).any():
            return row, parent
        own = level[np.arange(len(who)), column].astype(np.intp)
        return row + np.where((column >= 0) & self.there[parent, own], 1 + own, 0), parent

    def asks(self, row: Index) -> NDArray[np.bool_]:
        """Whether the request that meets each row now is asked: as `default_learner.asks`."""
        return question_schedule(self.confidence[row], self.met[row], self.learner)

    def liking(self, row: Index, offered: NDArray[np.bool_]) -> Array:
        """Score by which `suggest` takes the first best of the values offered, [U, V].

        0 without a vote for it.
        """
        votes = Votes(self.counts[row], self.n[row])
        liked = vote_counts(votes)
        score = np.where(
            liked > 0.0,
            mean(votes, self.learner) if self.learner.rule == "posterior" else liked,
            0.0,
        )
        return np.where(offered, score, -np.inf)

    def vote(self, row: Index, value: Index, signal: Index, named: Index, day: float) -> None:
        """One signal to each row, all different."""
        before = Votes(self.counts[row], self.n[row])
        if self.learner.half_life_days > 0.0:
            before = decay_votes(
                before, 0.5 ** ((day - self.day[row]) / self.learner.half_life_days)
            )
        after = add_signal(before, value, signal, named, self.learner)
        self.counts[row], self.n[row], self.day[row] = after.counts, after.n, day
        self.confidence[row] = vote_confidence(after, self.learner)

    def stratum(
        self, parent: Index, value: Index, signal: Index, named: Index, level: Small
    ) -> None:
        """The same signal to the counts by condition of rows that are not split."""
        if not self.n_levels:
            return
        is_whole = self.column[parent] < 0
        levels = level[is_whole]
        cell = (parent[is_whole][:, None], np.arange(levels.shape[1]), levels)
        votes = Votes(self.strata[cell], np.zeros(levels.shape))
        about, kind, right = (part[is_whole][:, None] for part in (value, signal, named))
        self.strata[cell] = add_signal(votes, about, kind, right).counts

    def stratify(
        self, parent: Index, success: Index, level: Small, request: int, day: float
    ) -> None:
        """Split those of the rows, all different, that a rule parts: as `default_learner.stratify`.

        Args:
          success: value that each row's last signal was a success of, -1 none.
          level: of its request, [D, M].
        """
        if not self.n_levels:
            return
        going = self.column[parent] < 0
        parent, success, level = parent[going], success[going], level[going]
        if not len(parent):
            return
        if self.learner.split == "source":
            self._stratify_at_success(parent, success, level, request, day)
            return
        # Votes may age, strata do not; each request has a value of every column.
        counts = np.moveaxis(self.strata[parent], 2, 3)  # [D, M, V, L, 7]
        # trials of a value and those that were wrong: as `stratification.outcomes`
        wrong = np.rint(counts[..., NO] + counts[..., FAILED]).astype(np.int64)
        of = wrong + np.rint(counts[..., YES] + counts[..., SILENT]).astype(np.int64)
        parts = (of > 0).sum(axis=-1)
        tried = (parts > 1) & (wrong.any(axis=-1))  # where nothing was wrong nothing is found
        e_values = np.zeros(tried.shape)
        there = of[tried]
        e_values[tried] = (
            np.where(there > 0, evidence(wrong[tried], there), 0.0).sum(axis=-1) / parts[tried]
        )
        e_values = e_values.reshape(len(parent), -1)
        bar = np.maximum((parts > 1).sum(axis=(1, 2)), 1) / self.learner.alpha
        best = e_values.argmax(axis=1)
        enough = e_values[np.arange(len(e_values)), best] >= bar
        if enough.any():
            self._split(parent[enough], best[enough] // counts.shape[2], request, day)

    def _stratify_at_success(
        self, parent: Index, success: Index, level: Small, request: int, day: float
    ) -> None:
        """Split rows at a success with another candidate than one that failed there.

        As `source_split`.
        """
        there = success >= 0
        parent, success, level = parent[there], success[there], level[there]
        if not len(parent):
            return
        right = self.strata[parent][..., [YES, NAMED, SILENT]].sum(axis=-1)  # [D, M, L, V]
        row, column = np.arange(len(parent))[:, None], np.arange(level.shape[1])
        here = right[row, column, level]  # [D, M, V]
        failed = self.strata[parent[:, None], column, level][..., FAILED] > 0.0
        failed[np.arange(len(parent)), :, success] = False
        # Never right here counts before right elsewhere: no row has so many signals.
        # The shape is [D, M].
        score = np.where(failed, (here == 0.0) * _ALL_SIGNALS + right.sum(axis=2) - here, -1.0).max(
            axis=2
        )
        enough = score.max(axis=1) >= 0.0
        if enough.any():
            self._split(parent[enough], score.argmax(axis=1)[enough], request, day)

    def _split(self, parent: Index, column: Index, request: int, day: float) -> None:
        """Rows of the levels of a column, with the votes that were cast under them.

        As `default_learner.split`.
        """
        first = parent * (1 + self.n_levels)
        counts = self.strata[parent, column]  # [D, L, V, 7]
        total = counts[..., [YES, SILENT, NO, FAILED]].sum(axis=(1, 2, 3))
        self.there[parent] = counts.sum(axis=(2, 3)) > 0.0
        self.column[parent], self.split_at[parent] = column, request
        counts[..., FAILED] = 0.0
        n = counts[..., [YES, SILENT, NO]].sum(axis=(2, 3))
        votes = doubts(Votes(counts, n), self.learner)
        if self.learner.half_life_days > 0.0:
            votes = decay_votes(votes, np.broadcast_to((self.n[first] / total)[:, None], n.shape))
        rows = first[:, None] + 1 + np.arange(self.n_levels)
        self.counts[rows], self.n[rows], self.day[rows] = votes.counts, votes.n, day
        self.confidence[rows] = vote_confidence(votes, self.learner)


_ALL_SIGNALS = 2.0**40  # more than a row ever has


def empty_rows(world: World, users: int, learner: DefaultLearner) -> DefaultRowArrays:
    """Rows without a vote."""
    n_columns, n_values = len(world.columns) + world.noise_columns, world.shares.shape[-1]
    splits = learner.stratify and n_columns > 0
    n_levels, parents = world.n_levels if splits else 0, users * world.slots
    size = parents * (1 + n_levels)
    strata = np.zeros((parents, n_columns, n_levels, n_values, N_COUNTS))
    return DefaultRowArrays(
        learner,
        world.slots,
        n_levels,
        np.zeros((size, n_values, N_COUNTS)),
        np.zeros(size),
        np.zeros(size),
        np.zeros(size, np.int32),
        np.zeros(size),
        strata,
        np.full(parents, NONE, np.int16),
        np.full(parents, NONE, np.int32),
        np.zeros((parents, n_levels), bool),
    )
