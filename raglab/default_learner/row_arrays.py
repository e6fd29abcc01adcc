"""Default rows of many users as arrays (algebra): votes, gate and splits at once (S5.4 to S5.6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raglab.default_learner.simulated_users import Array, Small, World
from raglab.default_learner.stratification import doubts, evidence
from raglab.default_learner.votes import (
    FAILED_PLACE,
    N_COUNTS,
    NAMED_PLACE,
    NO_PLACE,
    SILENT_PLACE,
    YES_PLACE,
    DefaultLearner,
    Votes,
    add_signal,
    decay_votes,
    mean,
    question_schedule,
    vote_confidence,
    vote_counts,
)

Index = NDArray[np.intp]

NO_NUMBER = -1


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

    def at(
        self, user_numbers: Index, request_slots: Small, request_levels: Small
    ) -> tuple[Index, Index]:
        """Most specific row that each user's request meets, [U], and the parent of its slot."""
        parent_rows = user_numbers * self.slots + request_slots
        split_columns, first_rows = self.column[parent_rows], parent_rows * (1 + self.n_levels)
        if not (split_columns >= 0).any():
            return first_rows, parent_rows
        own_levels = request_levels[np.arange(len(user_numbers)), split_columns].astype(np.intp)
        return first_rows + np.where(
            (split_columns >= 0) & self.there[parent_rows, own_levels], 1 + own_levels, 0
        ), parent_rows

    def asks(self, row_indices: Index) -> NDArray[np.bool_]:
        """Whether the request that meets each row now is asked: as `default_learner.asks`."""
        return question_schedule(self.confidence[row_indices], self.met[row_indices], self.learner)

    def liking(self, row_indices: Index, offered_values: NDArray[np.bool_]) -> Array:
        """Score by which `suggest` takes the first best of the values offered, [U, V].

        0 without a vote for it.
        """
        row_votes = Votes(self.counts[row_indices], self.n[row_indices])
        value_votes = vote_counts(row_votes)
        value_scores = np.where(
            value_votes > 0.0,
            mean(row_votes, self.learner) if self.learner.rule == "posterior" else value_votes,
            0.0,
        )
        return np.where(offered_values, value_scores, -np.inf)

    def vote(
        self,
        row_indices: Index,
        voted_values: Index,
        signal: Index,
        named_values: Index,
        day: float,
    ) -> None:
        """One signal to each row, all different."""
        votes_before = Votes(self.counts[row_indices], self.n[row_indices])
        if self.learner.half_life_days > 0.0:
            votes_before = decay_votes(
                votes_before, 0.5 ** ((day - self.day[row_indices]) / self.learner.half_life_days)
            )
        votes_after = add_signal(votes_before, voted_values, signal, named_values, self.learner)
        self.counts[row_indices], self.n[row_indices], self.day[row_indices] = (
            votes_after.counts,
            votes_after.n,
            day,
        )
        self.confidence[row_indices] = vote_confidence(votes_after, self.learner)

    def stratum(
        self,
        parent_rows: Index,
        voted_values: Index,
        signal: Index,
        named_values: Index,
        request_levels: Small,
    ) -> None:
        """The same signal to the counts by condition of rows that are not split."""
        if not self.n_levels:
            return
        is_unsplit = self.column[parent_rows] < 0
        unsplit_levels = request_levels[is_unsplit]
        stratum_cells = (
            parent_rows[is_unsplit][:, None],
            np.arange(unsplit_levels.shape[1]),
            unsplit_levels,
        )
        stratum_votes = Votes(self.strata[stratum_cells], np.zeros(unsplit_levels.shape))
        value_places, signal_places, named_places = (
            vote_part[is_unsplit][:, None] for vote_part in (voted_values, signal, named_values)
        )
        self.strata[stratum_cells] = add_signal(
            stratum_votes, value_places, signal_places, named_places
        ).counts

    def stratify(
        self, parent_rows: Index, success: Index, request_levels: Small, request: int, day: float
    ) -> None:
        """Split those of the rows, all different, that a rule parts: as `default_learner.stratify`.

        Args:
          success: value that each row's last signal was a success of, -1 none.
          request_levels: of its request, [D, M].
        """
        if not self.n_levels:
            return
        is_unsplit = self.column[parent_rows] < 0
        parent_rows, success, request_levels = (
            parent_rows[is_unsplit],
            success[is_unsplit],
            request_levels[is_unsplit],
        )
        if not len(parent_rows):
            return
        if self.learner.split == "source":
            self._stratify_at_success(parent_rows, success, request_levels, request, day)
            return
        # Votes may age, strata do not; each request has a value of every column.
        stratum_counts = np.moveaxis(self.strata[parent_rows], 2, 3)  # [D, M, V, L, 7]
        # trials of a value and those that were wrong: as `stratification.outcomes`
        wrong_counts = np.rint(
            stratum_counts[..., NO_PLACE] + stratum_counts[..., FAILED_PLACE]
        ).astype(np.int64)
        trial_counts = wrong_counts + np.rint(
            stratum_counts[..., YES_PLACE] + stratum_counts[..., SILENT_PLACE]
        ).astype(np.int64)
        n_levels_tried = (trial_counts > 0).sum(axis=-1)
        # where nothing was wrong nothing is found
        is_tried = (n_levels_tried > 1) & (wrong_counts.any(axis=-1))
        e_values = np.zeros(is_tried.shape)
        tried_counts = trial_counts[is_tried]
        e_values[is_tried] = (
            np.where(tried_counts > 0, evidence(wrong_counts[is_tried], tried_counts), 0.0).sum(
                axis=-1
            )
            / n_levels_tried[is_tried]
        )
        e_values = e_values.reshape(len(parent_rows), -1)
        evidence_bar = np.maximum((n_levels_tried > 1).sum(axis=(1, 2)), 1) / self.learner.alpha
        best_place = e_values.argmax(axis=1)
        is_enough = e_values[np.arange(len(e_values)), best_place] >= evidence_bar
        if is_enough.any():
            self._split(
                parent_rows[is_enough],
                best_place[is_enough] // stratum_counts.shape[2],
                request,
                day,
            )

    def _stratify_at_success(
        self,
        parent_rows: Index,
        successful_values: Index,
        request_levels: Small,
        request: int,
        day: float,
    ) -> None:
        """Split rows at a success with another candidate than one that failed there.

        As `source_split`.
        """
        has_success = successful_values >= 0
        parent_rows, successful_values, request_levels = (
            parent_rows[has_success],
            successful_values[has_success],
            request_levels[has_success],
        )
        if not len(parent_rows):
            return
        # of shape [D, M, L, V]
        right_counts = self.strata[parent_rows][..., [YES_PLACE, NAMED_PLACE, SILENT_PLACE]].sum(
            axis=-1
        )
        row_places, column_places = (
            np.arange(len(parent_rows))[:, None],
            np.arange(request_levels.shape[1]),
        )
        right_here = right_counts[row_places, column_places, request_levels]  # [D, M, V]
        has_failed = (
            self.strata[parent_rows[:, None], column_places, request_levels][..., FAILED_PLACE]
            > 0.0
        )
        has_failed[np.arange(len(parent_rows)), :, successful_values] = False
        # Never right here counts before right elsewhere: no row has so many signals.
        # The shape is [D, M].
        split_scores = np.where(
            has_failed,
            (right_here == 0.0) * _MORE_THAN_ALL_SIGNALS + right_counts.sum(axis=2) - right_here,
            -1.0,
        ).max(axis=2)
        is_enough = split_scores.max(axis=1) >= 0.0
        if is_enough.any():
            self._split(
                parent_rows[is_enough], split_scores.argmax(axis=1)[is_enough], request, day
            )

    def _split(self, parent_rows: Index, split_columns: Index, request: int, day: float) -> None:
        """Rows of the levels of a column, with the votes that were cast under them.

        As `default_learner.split`. D: parents that split, each by its column. Behind the row of a
        parent stand those of its levels.
        """
        first_rows = parent_rows * (1 + self.n_levels)
        stratum_counts = self.strata[parent_rows, split_columns]  # [D, L, V, 7]
        total_signals = stratum_counts[..., [YES_PLACE, SILENT_PLACE, NO_PLACE, FAILED_PLACE]].sum(
            axis=(1, 2, 3)
        )
        self.there[parent_rows] = stratum_counts.sum(axis=(2, 3)) > 0.0
        self.column[parent_rows], self.split_at[parent_rows] = split_columns, request
        stratum_counts[..., FAILED_PLACE] = 0.0
        signal_counts = stratum_counts[..., [YES_PLACE, SILENT_PLACE, NO_PLACE]].sum(axis=(2, 3))
        level_votes = doubts(Votes(stratum_counts, signal_counts), self.learner)
        if self.learner.half_life_days > 0.0:
            # strata do not forget: a level keeps the share of its votes that its parent remembers
            level_votes = decay_votes(
                level_votes,
                np.broadcast_to((self.n[first_rows] / total_signals)[:, None], signal_counts.shape),
            )
        level_rows = first_rows[:, None] + 1 + np.arange(self.n_levels)
        self.counts[level_rows], self.n[level_rows], self.day[level_rows] = (
            level_votes.counts,
            level_votes.n,
            day,
        )
        self.confidence[level_rows] = vote_confidence(level_votes, self.learner)


_MORE_THAN_ALL_SIGNALS = 2.0**40  # more than a row ever has


def empty_rows(world: World, users: int, learner: DefaultLearner) -> DefaultRowArrays:
    """Rows without a vote."""
    n_columns, n_values = len(world.columns) + world.noise_columns, world.shares.shape[-1]
    has_splits = learner.stratify and n_columns > 0
    n_levels, n_parents = world.n_levels if has_splits else 0, users * world.slots
    n_rows = n_parents * (1 + n_levels)
    strata = np.zeros((n_parents, n_columns, n_levels, n_values, N_COUNTS))
    return DefaultRowArrays(
        learner,
        world.slots,
        n_levels,
        np.zeros((n_rows, n_values, N_COUNTS)),
        np.zeros(n_rows),
        np.zeros(n_rows),
        np.zeros(n_rows, np.int32),
        np.zeros(n_rows),
        strata,
        np.full(n_parents, NO_NUMBER, np.int16),
        np.full(n_parents, NO_NUMBER, np.int32),
        np.zeros((n_parents, n_levels), bool),
    )
