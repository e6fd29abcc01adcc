"""A bandit at work: it chooses the arm of every question, learns from what comes back, and logs both (rule S4.6).

The log is the truth and the state a fold over it: whatever is killed between a choice and its reward, the log rebuilds
the state that there was, to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import bandit as bandits
from raglab.bandit import Bandit, State
from raglab.lab._entered import check_id, digest, mask_of, milliseconds, number, raw_of, reason
from raglab.lab._folded import (
    Features,
    Folded,
    Setup,
    context_of,
    folded,
    fresh,
    p95,
    p95_name,
    packed,
    scored,
    unpacked,
)
from raglab.reward import COMPONENTS, RewardWeights
from raglab.store.audit import Database, Entries
from raglab.store.choices import CHOICES, REWARDS, SETUPS, SNAPSHOTS, TABLES, THUMBS, choice_of, events, rounds

if TYPE_CHECKING:
    import pandas as pd

RECENT, HORIZON = 100, 2000  # pulls of an arm that its P95 latency is of, among so many events: then it is asked again


class Chosen(NamedTuple):
    """An arm, why it answers, and how probable it was to be chosen; None where no bandit chose it."""

    arm: str
    reason: str
    propensity: float | None


def _now() -> datetime:
    return datetime.now(UTC)


class Online:
    """A bandit over a log. Several processes may share a log: what one adds, the next choice of any other knows.

    The state belongs to arms, bandit and weights. The same log under others folds into another state, since it holds
    components, never rewards alone. Nothing is written over but a snapshot of the state.
    """

    def __init__(
        self,
        bandit: Bandit,
        weights: RewardWeights,
        budget_ms: float,
        log: str | Path,
        arms: Sequence[str],
        seed: int = 0,
        *,
        create: bool = True,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        """Name the log; it is opened on first use.

        Args:
          budget_ms: milliseconds of a question, the unit of `latency_ratio`; arms whose recent P95 is above it are
            left out where others are there (rule S4.5). log: a file, or a URL with `://`. seed: with the number of an
            event it gives the uniform that chooses. create: whether the log is made where it is not there.

        Raises:
          ValueError: no arms, one twice, a budget not above 0, settings out of range.
        """
        if not arms or len(set(arms)) < len(arms):
            msg = f"arms must be different and at least one, got {', '.join(arms) or 'none'}; name each once."
            raise ValueError(msg)
        if not (np.isfinite(budget_ms) and budget_ms > 0.0):
            msg = f"budget_ms must be above 0, got {budget_ms:g}; it is the milliseconds a question may take."
            raise ValueError(msg)
        if seed < 0:
            msg = f"seed must be at least 0, got {seed}; choose another."
            raise ValueError(msg)
        self.setup = Setup(tuple(arms), bandit, weights)
        self.budget_ms, self.seed = float(budget_ms), int(seed)
        self.log = Database(log, TABLES, create=create)
        self._clock, self._ready = clock, False
        fresh(self.setup)  # settings out of range stop here
        scored(dict.fromkeys(COMPONENTS, 0.0), None, weights)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms, [A]."""
        return self.setup.arms

    def choose(
        self,
        request_id: str,
        mask: Sequence[bool] | NDArray[np.bool_],
        features: Features,
        why: str | Mapping[str, str] = "",
        *,
        policy_id: str = "",
        fingerprint: str = "",
        question: str = "",
    ) -> Chosen:
        """Choose the arm of a request and log the choice with the probability of every arm.

        Args:
          mask: available arms, [A]. features: numbers by name, known before retrieval; the recent P95 of each arm over
            the budget is added. why: what speaks for the arm, by arm, for the reason. question: what tells questions
            apart, kept as a hash.

        Raises:
          ValueError: the id is no text or has had a choice, a feature is no number, no arm is available.
        """
        check_id(request_id)
        offered = mask_of(mask, len(self.arms))
        known = {name: number(name, value) for name, value in features.items()}
        self._caught_up()
        with self.log.writing() as log:
            if log.one(CHOICES, request_id=request_id) is not None:
                msg = f"request_id must be new, got {request_id!r}, which has its choice; give another or none."
                raise ValueError(msg)
            self._noted(log)
            now, last = self._now(log)
            recent = np.array([p95(log.latest(REWARDS, "ms", RECENT, last - HORIZON, arm=arm)) for arm in self.arms])
            ratios = dict(zip(map(p95_name, self.arms), (recent / self.budget_ms).tolist(), strict=True))
            known |= {name: None if np.isnan(ratio) else ratio for name, ratio in ratios.items()}
            left = bandits.guarded(offered, recent, self.budget_ms)
            share = bandits.propensities(now.state, self.setup.bandit, mask=left, context=context_of(known, self.setup))
            uniform = np.random.default_rng(np.random.SeedSequence([self.seed, last + 1])).random()
            arm = int(bandits.sample(share, uniform))
            row = {
                "at": self._at(),
                "request_id": request_id,
                "round": rounds(log) + 1,
                "policy_id": policy_id,
                "fingerprint": fingerprint,
                "question": digest(question),
                "setup": self.setup.digest,
                "arm": self.arms[arm],
                "arms": list(self.arms),
                "mask": left.tolist(),
                "propensity": float(share[arm]),
                "propensities": share.tolist(),
                "features": known,
                "state_seq": last,
                "state_hash": digest(packed(now, self.setup)["state"]),
                "seed": self.seed,
            }
            log.add(CHOICES, row)
            self._kept(log, now, last)
        return Chosen(self.arms[arm], reason(self.arms[arm], arm, now, why), float(share[arm]))

    def update(
        self,
        request_id: str,
        components: Features,
        *,
        ms: float | None = None,
        measured: Features | None = None,
    ) -> float:
        """Log the reward components of a request, learn from them, and give the reward back.

        Args:
          components: raw, each of `reward.COMPONENTS`, optional ones where they were measured. ms: that the answer
            took; latency_ratio of the budget where not given. measured: numbers known only after retrieval, kept for
            whoever studies the log.

        Raises:
          ValueError: a request without a choice, or with its reward; a component that is missing or out of range.
        """
        raw = raw_of(components)
        told = {name: number(name, value) for name, value in (measured or {}).items()}
        scored(raw, None, self.setup.weights)
        spent = float(raw["latency_ratio"] or 0.0) * self.budget_ms if ms is None else milliseconds(ms)
        self._caught_up()
        with self.log.writing() as log:
            choice = choice_of(log, request_id)
            if log.one(REWARDS, request_id=request_id) is not None:
                msg = f"request {request_id!r} has its reward, and a second would count twice; change it by a thumb."
                raise ValueError(msg)
            self._noted(log)
            now, last = self._now(log)
            thumb = log.one(THUMBS, request_id=request_id)
            up = None if thumb is None else int(thumb["up"])
            value = scored(raw, up, self.setup.weights)
            row = {
                "at": self._at(),
                "request_id": request_id,
                "arm": choice["arm"],
                "age": rounds(log) - choice["round"],
            }
            log.add(REWARDS, row | {"components": raw, "thumb": up, "reward": value, "ms": spent, "measured": told})
            self._kept(log, now, last)
        return value

    def thumbs(self, request_id: str, up: bool) -> None:  # noqa: FBT001 - feedback is up or down
        """Log a thumb up or down of a request, before or after its reward; of several the last counts.

        It changes the reward where the weights count thumbs.

        Raises:
          ValueError: a request without a choice, a thumb that is no boolean.
        """
        if not isinstance(up, bool | np.bool_):
            msg = f"up must be true or false, got {up!r}; a thumb is up or down."
            raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
        self._caught_up()
        with self.log.writing() as log:
            choice = choice_of(log, request_id)
            self._noted(log)
            now, last = self._now(log)
            known = log.one(THUMBS, request_id=request_id)
            row = {"at": self._at(), "request_id": request_id, "age": rounds(log) - choice["round"]}
            log.add(THUMBS, row | {"before": None if known is None else known["up"], "up": int(up)})
            self._kept(log, now, last)

    def state(self) -> State:
        """State after the last event."""
        with self.log.reading() as log:
            return self._now(log)[0].state

    def rebuild(self) -> State:
        """State after the last event, from the log alone: to the byte what `state` has from the snapshot."""
        with self.log.reading() as log:
            return folded(fresh(self.setup), events(log), self.setup).state

    def asked_before(self, question: str, *, policy_id: str = "", fingerprint: str = "") -> str | None:
        """Arm that last answered a question, None where none did."""
        about = {"question": digest(question), "policy_id": policy_id, "fingerprint": fingerprint}
        with self.log.reading() as log:
            row = log.one(CHOICES, **about)
        return None if row is None or row["arm"] not in self.arms else str(row["arm"])

    def frame(self) -> pd.DataFrame:
        """The log, a row a choice, as `off_policy.estimate` takes it; see `_frames.frame`."""
        from raglab.lab._frames import frame

        with self.log.reading() as log:
            return frame(log, self.setup)

    def arms_frame(self) -> pd.DataFrame:
        """Metrics of each arm (rule S4.6); see `_frames.arms_frame`."""
        from raglab.lab._frames import arms_frame

        return arms_frame(self.frame(), self.setup)

    def close(self) -> None:
        """Let go of the log's files."""
        self.log.close()

    def _at(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="microseconds")

    def _noted(self, log: Entries) -> None:
        """Note the setup in the log where it is new."""
        if log.one(SETUPS, digest=self.setup.digest) is None:
            log.add(SETUPS, {"at": self._at(), "digest": self.setup.digest, "body": self.setup.body})

    def _now(self, log: Entries) -> tuple[Folded, int]:
        """State after the last event, from the snapshot and what came since; and the number of that event."""
        kept = log.one(SNAPSHOTS, setup=self.setup.digest)
        before, after = (fresh(self.setup), 0) if kept is None else (unpacked(kept), int(kept["seq"]))
        last = log.last
        return before if after == last else folded(before, events(log, after), self.setup), last

    def _caught_up(self) -> None:
        """Fold what came so far before the first turn, beside other writers: a new setup over a long log stops none."""
        if self._ready:
            return
        with self.log.reading() as log:
            now, last = self._now(log)
        with self.log.writing() as log:
            kept = log.one(SNAPSHOTS, setup=self.setup.digest)
            if last > (0 if kept is None else int(kept["seq"])):
                log.keep(SNAPSHOTS, {"setup": self.setup.digest, "seq": last, **packed(now, self.setup)})
        self._ready = True

    def _kept(self, log: Entries, now: Folded, after: int) -> None:
        """Keep a snapshot of the state after the last event; `now` is the state after event `after`."""
        row = packed(folded(now, events(log, after), self.setup), self.setup)
        log.keep(SNAPSHOTS, {"setup": self.setup.digest, "seq": log.last, **row})
