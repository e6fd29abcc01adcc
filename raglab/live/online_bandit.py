"""Online bandit (shore): a learner at work, its log and state, frames, Prometheus (S4.6).

The log is the truth and the state a fold over it: whatever is killed between a choice and its
reward, the log rebuilds the state that there was, to the byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raglab import bandit as bandits
from raglab.bandit import Bandit, State
from raglab.bandit.learner import (
    CHOSEN,
    REVISED,
    REWARDED,
    Stats,
    Steps,
    bandit_of,
    is_success,
    stored_settings,
)
from raglab.bandit.persistence import CENTRED
from raglab.reward import COMPONENTS, OPTIONAL, RewardWeights, reward
from raglab.store.database import Database, check_no_folder
from raglab.store.files import InputError
from raglab.store.log_rows import Entries, as_written
from raglab.store.log_tables import (
    BANDIT_LOG,
    CHOICE_TABLES,
    CHOICES,
    REQUEST_TABLES,
    REWARDS,
    SETUPS,
    SNAPSHOTS,
    THUMBS,
    Event,
    check_id,
    events,
    request_row,
    rounds,
)
from raglab.words.canonical import canonical_json, decimals, digest, utc_text

if TYPE_CHECKING:
    import pandas as pd

INTERCEPT = "intercept"
FEATURES = (
    "words",
    "entities",
    "graph",
    "table",
    "complexity",
    "documents",
    "path",
    "answer_cached",
    "strategy_cached",
    "bm25_hits",
    "list_overlap",
)  # known of a question before an arm retrieves (rule S4.2): what `context` and `list_features` of
# `raglab.live.arm_choice` measure, and both caches
# came after logs were written: a row without them is one of 0
LATER = ("bm25_hits", "list_overlap")
Features = Mapping[str, float | None]
_BATCH = 4096  # events that are folded at once
_STEPS = {"choice": CHOSEN, "reward": REWARDED, "thumb": REVISED}


class Setup(NamedTuple):
    """Settings that determine a state together with the log.

    Another setup folds the same log into another state.

    arms: their names in order; events of an arm that is not among them are passed over. features:
    of a question, in the order of the context; a log of before has fewer. initial: a linear
    learner's state before the first event; None: it knows nothing. unread_mean: prior_mean that a
    setup of a linear learner of before states and its learner did not read, so that `bandit` has 0
    there; None in all other setups.
    """

    arms: tuple[str, ...]
    bandit: Bandit
    weights: RewardWeights
    features: tuple[str, ...] = FEATURES
    initial: State | None = None
    unread_mean: float | None = None

    @property
    def stated_bandit(self) -> Bandit:
        """Settings as the log and its snapshots state them."""
        return (
            self.bandit
            if self.unread_mean is None
            else self.bandit._replace(prior_mean=self.unread_mean)
        )

    @property
    def body(self) -> dict[str, Any]:
        """The setup as JSON holds it.

        What is new is there only where it is used, so that the digests of setups in logs of before
        stay as they are.
        """
        history = self.bandit.history
        stated = (
            None
            if history is None
            else {name: np.asarray(row).tolist() for name, row in history._asdict().items()}
        )
        body: dict[str, Any] = {
            "arms": list(self.arms),
            "bandit": stored_settings(self.stated_bandit) | {"history": stated},
            "weights": self.weights._asdict(),
            "context": [INTERCEPT, *self.features, *(p95_name(arm) for arm in self.arms)],
        }
        if self.bandit.linear and self.unread_mean is None:
            body[CENTRED] = True
        if self.initial is not None:
            body["initial"] = bandits.dumps(self.initial, self.bandit)
        return body

    @property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON."""
        return digest(canonical_json(self.body, ensure_ascii=True), 16)


class OnlineState(NamedTuple):
    """A learner's state and, for people, how many rewards each arm has and their sum, [A]."""

    state: State
    n: NDArray[np.float64]
    total: NDArray[np.float64]


def p95_name(arm: str) -> str:
    """Name of the feature that is the arm's recent P95 latency over the budget."""
    return f"p95_{arm}"


def linear_context(features: Features, setup: Setup) -> NDArray[np.float64] | None:
    """Context of a linear policy, [1 + F + A]; None for a policy that knows none.

    The intercept 1; each of the setup's features, near [0, 1]; for each arm its recent P95 over the
    budget. An arm that never answered has no P95 yet: it stands in the log as null and enters here
    as 0, as do those of `LATER`.

    Raises:
      ValueError: a feature of `FEATURES` is missing.
    """
    if not setup.bandit.linear:
        return None
    missing = [name for name in setup.features if name not in LATER and features.get(name) is None]
    if missing:
        msg = (
            f"features of a linear policy must name {', '.join(FEATURES)}; {missing[0]} is "
            "missing: measure it."
        )
        raise ValueError(msg)
    known = [float(features.get(name) or 0.0) for name in setup.features]
    recent = [float(features.get(p95_name(arm)) or 0.0) for arm in setup.arms]
    return np.array([1.0, *known, *recent])


def initial_state(setup: Setup) -> OnlineState:
    """State before the first event.

    The one that the setup begins with, whose rewards count for people too.

    Raises:
      ValueError: settings out of range; a first state of other arms or features, or of a learner
        without a context.
    """
    n_arms = len(setup.arms)
    width = 1 + len(setup.features) + n_arms if setup.bandit.linear else 0
    none = np.zeros(n_arms)
    state, first = bandits.init(n_arms, bandit=setup.bandit, n_features=width), setup.initial
    if first is None:
        return OnlineState(state, none, none)
    if not setup.bandit.linear:
        rule = "a first state must be of a linear learner"
        msg = f"{rule}, got {setup.bandit.algorithm}; give it a Bandit.history instead."
        raise ValueError(msg)
    if [part.shape for part in first] != [part.shape for part in state]:
        msg = (
            f"a first state must be of {n_arms} arms and {width} features, got "
            f"{first.moment.shape}; "
            "make it with logged_state for these arms."
        )
        raise ValueError(msg)
    return OnlineState(first, first.n, first.total)


def logged_state(choices: pd.DataFrame, setup: Setup, *, weight: float = 1.0) -> State:
    """State of a linear learner after another log, such as a uniform policy's.

    What `Online(initial=)` begins with.

    Args:
      choices: `Online.frame()` of that log.
      setup: of the learner that goes on.
      weight: of an old round against a new one.

    Raises:
      ValueError: a learner without a context, an arm that the setup does not know, a feature that
        is missing.
    """
    if not setup.bandit.linear:
        msg = (
            f"a first state must be of a linear learner, got {setup.bandit.algorithm}; history_of "
            "makes its history."
        )
        raise ValueError(msg)
    width = 1 + len(setup.features) + len(setup.arms)
    context = np.array([linear_context(row, setup) for row in choices["features"]]).reshape(
        len(choices), width
    )
    rows = choices[["arm", "reward"]]
    return bandits.learned_state(
        rows, setup.bandit, arms=setup.arms, features=context, weight=weight
    )


def replay_events(before: OnlineState, events: Iterable[Event], setup: Setup) -> OnlineState:
    """State after some events, in order.

    A choice counts the round, a reward its arm, a thumb what it makes of it.
    """
    for batch in _batches(events):
        before = apply_events(before, batch, setup)
    return before


def _batches(events: Iterable[Event]) -> Iterator[list[Event]]:
    waiting = iter(events)
    while batch := list(islice(waiting, _BATCH)):
        yield batch


def apply_events(before: OnlineState, events: Sequence[Event], setup: Setup) -> OnlineState:
    """State after some events that are at hand, whose rewards are made all at once."""
    counted = bool(np.any(np.greater(setup.weights.thumbs, 0.0)))
    mine = [
        event
        for event in events
        if event.arm in setup.arms
        and (
            event.kind == "choice"
            or (event.components is not None and (counted or event.kind == "reward"))
        )
    ]
    if not mine:
        return before
    kind = np.array([_STEPS[event.kind] for event in mine])
    arm = np.array([setup.arms.index(event.arm) for event in mine])
    has_reward, changed = kind != CHOSEN, kind == REVISED
    reward_rows = [
        (event.components or {}, event.thumb) for event in mine if event.kind != "choice"
    ]
    reward_rows += [
        (event.components or {}, event.before) for event in mine if event.kind == "thumb"
    ]
    new, old, rewards = (
        np.zeros(len(mine)),
        np.zeros(len(mine)),
        rewards_with_thumbs(reward_rows, setup.weights),
    )
    new[has_reward], old[changed] = np.split(rewards, [int(has_reward.sum())])
    context = np.zeros((len(mine), before.state.moment.shape[-1]))
    if setup.bandit.linear:
        context[:] = [linear_context(event.features, setup) for event in mine]
    age = np.array([event.age for event in mine])
    state = bandits.fold(before.state, Steps(kind, arm, old, new, age, context), setup.bandit)
    n, total = before.n.copy(), before.total.copy()
    np.add.at(n, arm[kind == REWARDED], 1.0)
    np.add.at(total, arm[has_reward], (new - old)[has_reward])
    return OnlineState(state, n, total)


def reward_with_thumb(components: Features, thumb: int | None, weights: RewardWeights) -> float:
    """Reward of raw components with a thumb, in [0, 1]."""
    row = {name: np.nan if value is None else value for name, value in components.items()}
    return float(reward(row | {"thumbs": np.nan if thumb is None else float(thumb)}, weights))


def rewards_with_thumbs(
    rows: Sequence[tuple[Features, int | None]], weights: RewardWeights
) -> NDArray[np.float64]:
    """Rewards [N] of raw components, each with a thumb or none.

    NaN where a component is missing.
    """
    columns = component_columns([components for components, _ in rows])
    columns["thumbs"] = np.array([np.nan if thumb is None else float(thumb) for _, thumb in rows])
    return np.asarray(reward(columns, weights), np.float64)


def component_columns(rows: Sequence[Features]) -> dict[str, NDArray[np.float64]]:
    """Raw components as arrays [N] by name, NaN where a row has none."""
    return {
        name: np.array(
            [np.nan if (value := row.get(name)) is None else value for row in rows],
            dtype=np.float64,
        )
        for name in (*COMPONENTS, *OPTIONAL)
    }


def pack_snapshot(now: OnlineState, setup: Setup) -> dict[str, str]:
    """State and sums as a snapshot keeps them."""
    sums = json.dumps({"n": now.n.tolist(), "total": now.total.tolist()})
    state = bandits.dumps(now.state, setup.stated_bandit, centred=setup.unread_mean is None)
    return {"state": state, "sums": sums}


def unpack_snapshot(row: Mapping[str, str]) -> OnlineState:
    """State and sums of a snapshot."""
    sums = json.loads(row["sums"])
    return OnlineState(
        bandits.loads(row["state"]).state, np.array(sums["n"]), np.array(sums["total"])
    )


def setup_of(body: Mapping[str, Any]) -> Setup:
    """Setup of the JSON that `Setup.body` gives.

    Of a linear learner of before with the prior_mean of 0 that it had.
    """
    stated = body["bandit"]["history"]
    history = (
        None if stated is None else Stats(**{name: np.array(row) for name, row in stated.items()})
    )
    bandit, unread = bandit_of({**body["bandit"], "history": history}), None
    if bandit.linear and CENTRED not in body:
        bandit, unread = bandit._replace(prior_mean=0.0), bandit.prior_mean
    arms, context = tuple(body["arms"]), body["context"]
    # between the intercept and the arms' P95
    features = tuple(context[1 : len(context) - len(arms)])
    initial = bandits.loads(body["initial"]).state if "initial" in body else None
    return Setup(arms, bandit, RewardWeights(**body["weights"]), features, initial, unread)


def p95(ms: Sequence[float]) -> float:
    """P95 of milliseconds; NaN of none."""
    return float(np.percentile(ms, 95)) if len(ms) else float("nan")


def arm_reason(
    name: str, arm: int, now: OnlineState, why: str | Mapping[str, str], margin: float | None = None
) -> str:
    """Why an arm was selected.

    `selected iterative: high complexity, reward 0.71, margin 0.12 over 214 pulls`.

    Args:
      margin: mean of the reranker's margins that its latest rewards state; None where there are
        none.
    """
    stated = why if isinstance(why, str) else why.get(name, "")
    pulls, rewards = int(now.state.pulls[arm]), float(now.n[arm])
    pull_text = f"{pulls} pull{'' if pulls == 1 else 's'}"
    lead = "" if margin is None else f", margin {decimals(margin)}"
    mean = (
        f"reward {decimals(float(now.total[arm]) / rewards)}{lead} over {pull_text}"
        if rewards
        else f"no reward in {pull_text}"
    )
    mean = mean if pulls else "not pulled yet"
    return f"selected {name}: " + ", ".join(part for part in (stated, mean) if part)


def check_number(name: str, value: object) -> float | None:
    """A finite number, or None for one that is missing."""
    if value is None:
        return None
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_) or np.isinf(value):
        msg = f"{name} must be a finite number, got {value!r}; None says that it is missing."
        raise ValueError(msg)
    return None if np.isnan(value) else float(value)


def milliseconds(value: float) -> float:
    """A time, finite and at least 0."""
    spent = check_number("ms", value)
    if spent is None or spent < 0.0:
        msg = f"ms must be at least 0, got {value}; it is what the answer took."
        raise ValueError(msg)
    return spent


def _recent_margin(log: Entries, arm: str, last: int) -> float | None:
    """Mean margin of an arm's latest rewards, [0, 1]; None where none has come."""
    rows = log.rows(
        REWARDS, columns=("components",), after=max(0, last - HORIZON), most=MARGINS, arm=arm
    )
    margins = [float(row["components"]["margin"]) for row in rows if "margin" in row["components"]]
    return sum(margins) / len(margins) if margins else None


def question_digest(question: str) -> str:
    """First 16 hex digits of the SHA-256 of a question; of none, none."""
    return digest(question, 16) if question else ""


def arm_mask(mask: object, n_arms: int) -> NDArray[np.bool_]:
    """Mask as bool [A].

    Raises:
      ValueError: it is none, or leaves no arm.
    """
    offered = np.asarray(mask)
    if offered.shape != (n_arms,) or offered.dtype != np.bool_ or not offered.any():
        msg = (
            f"mask must be {n_arms} booleans, one of them true, got {offered}; make an arm "
            "available."
        )
        raise ValueError(msg)
    return offered


def raw_components(components: Features) -> dict[str, float | None]:
    """Reward components as the log keeps them: none of `reward.COMPONENTS` missing.

    Raises:
      ValueError: a component is NaN or infinite, or a thumb is among them.
    """
    raw = {name: check_number(name, value) for name, value in components.items()}
    for name in COMPONENTS:
        if raw.get(name, 0.0) is None:
            msg = (
                f"{name} must be a number, got NaN; where it cannot be measured, leave the choice "
                "without reward."
            )
            raise ValueError(msg)
    if "thumbs" in raw:
        msg = (
            "components must not hold thumbs, got one; a thumb comes by `thumbs`, whenever it "
            "comes."
        )
        raise ValueError(msg)
    return raw


MARGINS = 20  # latest rewards of an arm whose margins its reason states
# pulls of an arm that its P95 latency is of, among so many events: then it is asked again
RECENT, HORIZON = 100, 2000


class ArmChoice(NamedTuple):
    """An arm, why it answers, and how probable it was to be chosen; None where no bandit chose it.

    rewarded: whether its reward is in the log already, by a process that was stopped after it.
    """

    arm: str
    reason: str
    propensity: float | None
    rewarded: bool = False


def _now() -> datetime:
    return datetime.now(UTC)


class Online:
    """A bandit over a log.

    Several processes may share a log: what one adds, the next choice of any other knows.

    The state belongs to arms, bandit and weights. The same log under others folds into another
    state, since it holds components, never rewards alone. Nothing is written over but a snapshot of
    the state.
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
        initial: State | None = None,
        create: bool = True,
        clock: Callable[[], datetime] = _now,
        patience_s: float | None = None,
    ) -> None:
        """Name the log; it is opened on first use.

        Args:
          bandit: settings of the learner.
          weights: of the reward.
          budget_ms: milliseconds of a question, the unit of `latency_ratio`; arms whose recent P95
            is above it are left out where others are available (rule S4.5).
          log: a file, or a URL with `://`.
          arms: names, in the order of the state.
          seed: with the number of an event it gives the uniform number that chooses.
          initial: state that a linear learner begins with, as `logged_state` makes it; part of the
            setup.
          create: whether the log is made where it does not exist.
          clock: current time with a time zone.
          patience_s: seconds to wait for a turn to write, see `Database`.

        Raises:
          InputError: the log is a folder, such as that of an index, which keeps its log in
            `bandit.sqlite`.
          ValueError: no arms, one twice, a budget not above 0, settings out of range.
        """
        check_no_folder(log, BANDIT_LOG)
        if not arms or len(set(arms)) < len(arms):
            msg = (
                f"arms must be different and at least one, got {', '.join(arms) or 'none'}; name "
                "each once."
            )
            raise ValueError(msg)
        if not (np.isfinite(budget_ms) and budget_ms > 0.0):
            msg = (
                f"budget_ms must be above 0, got {budget_ms:g}; it is the milliseconds a question "
                "may take."
            )
            raise ValueError(msg)
        if seed < 0:
            msg = f"seed must be at least 0, got {seed}; choose another."
            raise ValueError(msg)
        self.setup = Setup(tuple(arms), bandit, weights, initial=initial)
        self.budget_ms, self.seed = float(budget_ms), int(seed)
        self.log = Database(
            log, CHOICE_TABLES, beside=REQUEST_TABLES, create=create, patience_s=patience_s
        )
        self._clock, self._ready = clock, False
        initial_state(self.setup)  # settings out of range stop here
        reward_with_thumb(dict.fromkeys(COMPONENTS, 0.0), None, weights)

    def __repr__(self) -> str:
        arms = ", ".join(self.arms)
        return (
            f"{type(self).__name__}({self.setup.bandit.algorithm!r} over {arms!r}, log "
            f"{self.log.shown!r})"
        )

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
        resumed: bool = False,
    ) -> ArmChoice:
        """Choose the arm of a request and log the choice with the probability of every arm.

        A choice of the same question that has no reward yet, as of a process that was killed, is
        given again.

        Args:
          request_id: of the request, unique in the log.
          mask: available arms, [A].
          features: numbers by name, known before retrieval; the recent P95 of each arm over the
            budget is added.
          why: reasons for the arm, by arm.
          policy_id: of the policy that decides the request.
          fingerprint: of the system.
          question: text that identifies the question, stored as a hash.
          resumed: whether the question is known to have had no decision, so that its choice is
            given again even where it already has a reward.

        Raises:
          ValueError: the id is no text, or has had its choice and reward, or another question's; a
            feature is no number, no arm is available.
        """
        check_id(request_id)
        offered = arm_mask(mask, len(self.arms))
        known = {name: check_number(name, value) for name, value in features.items()}
        # The state is folded from the log outside the transaction, so that nobody waits while it is
        # caught up.
        self._catch_up()
        with self.log.writing() as log:
            about = {
                "policy_id": policy_id,
                "fingerprint": fingerprint,
                "question": question_digest(question),
            }
            known_choice = log.row(CHOICES, request_id=request_id)
            if known_choice is not None:
                return self._earlier_choice(log, known_choice, about, why, resumed=resumed)
            self._noted(log)
            # From here to the choice all read the same state, so that the logged probabilities are
            # those it had.
            now, last = self._now(log)
            latest: dict[str, Any] = {"columns": ("ms",), "after": last - HORIZON, "most": RECENT}
            recent = np.array(
                [
                    p95([row["ms"] for row in log.rows(REWARDS, arm=arm, **latest)])
                    for arm in self.arms
                ]
            )
            ratios = dict(
                zip(map(p95_name, self.arms), (recent / self.budget_ms).tolist(), strict=True)
            )
            known |= {name: None if np.isnan(ratio) else ratio for name, ratio in ratios.items()}
            # What an arm took of late is known before retrieval, so it may choose; and a slow one
            # is left out.
            guarded_mask = bandits.guarded(offered, recent, self.budget_ms)
            share = bandits.propensities(
                now.state,
                self.setup.bandit,
                mask=guarded_mask,
                context=linear_context(known, self.setup),
            )
            # The draw hangs on seed and state alone: whoever replays the log draws the same arm.
            uniform = np.random.default_rng(np.random.SeedSequence([self.seed, last + 1])).random()
            arm = int(bandits.sample(share, uniform))
            row = {
                "at": self._at(),
                "request_id": request_id,
                "round": rounds(log) + 1,
                **about,
                "setup": self.setup.digest,
                "arm": self.arms[arm],
                "arms": list(self.arms),
                "mask": guarded_mask.tolist(),
                "propensity": float(share[arm]),
                "propensities": share.tolist(),
                "features": known,
                "state_seq": last,
                "state_hash": digest(pack_snapshot(now, self.setup)["state"], 16),
                "seed": self.seed,
            }
            log.add(CHOICES, row)
            self._write_snapshot(log, now, last)
            margin = _recent_margin(log, self.arms[arm], last)
        return ArmChoice(
            self.arms[arm], arm_reason(self.arms[arm], arm, now, why, margin), float(share[arm])
        )

    def _earlier_choice(
        self,
        log: Entries,
        row: Mapping[str, Any],
        about: Mapping[str, str],
        why: str | Mapping[str, str],
        *,
        resumed: bool,
    ) -> ArmChoice:
        """Choice of a request that was stopped before its end; nothing is added to the log.

        Raises:
          ValueError: the request came to its end, or asked something else.
        """
        request_id, arm = row["request_id"], row["arm"]
        rewarded = log.row(REWARDS, columns=("seq",), request_id=request_id) is not None
        same = arm in self.arms and all(row[name] == value for name, value in about.items())
        if not same or (rewarded and not resumed):
            msg = (
                f"request_id must be new, got {request_id!r}, which has its choice; give another "
                "or none."
            )
            raise ValueError(msg)
        now, last = self._now(log)
        reason = arm_reason(arm, self.arms.index(arm), now, why, _recent_margin(log, arm, last))
        return ArmChoice(arm, reason, float(row["propensity"]), rewarded)

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
          request_id: of the request.
          components: raw, each of `reward.COMPONENTS`, optional ones where they were measured.
          ms: milliseconds that the answer took; latency_ratio of the budget where not given.
          measured: numbers known only after retrieval, kept for whoever studies the log.

        Raises:
          ValueError: a request without a choice, or with its reward; a component that is missing or
            out of range.
        """
        raw = raw_components(components)
        numbers = {name: check_number(name, value) for name, value in (measured or {}).items()}
        reward_with_thumb(raw, None, self.setup.weights)
        spent = (
            float(raw["latency_ratio"] or 0.0) * self.budget_ms if ms is None else milliseconds(ms)
        )
        self._catch_up()
        with self.log.writing() as log:
            choice = request_row(log, request_id, CHOICES, "choice")
            if log.row(REWARDS, columns=("seq",), request_id=request_id) is not None:
                msg = (
                    f"request {request_id!r} has its reward, and a second would count twice; "
                    "change it by a thumb."
                )
                raise ValueError(msg)
            self._noted(log)
            now, last = self._now(log)
            thumb = log.row(THUMBS, request_id=request_id)
            up = None if thumb is None else int(thumb["up"])
            value = reward_with_thumb(raw, up, self.setup.weights)
            row = {
                "at": self._at(),
                "request_id": request_id,
                "arm": choice["arm"],
                "age": rounds(log) - choice["round"],
            }
            log.add(
                REWARDS,
                row
                | {
                    "components": raw,
                    "thumb": up,
                    "reward": value,
                    "ms": spent,
                    "measured": numbers,
                },
            )
            self._write_snapshot(log, now, last)
        return value

    def thumbs(self, request_id: str, up: bool) -> None:  # noqa: FBT001 - feedback is up or down
        """Log a thumb up or down of a request, before or after its reward.

        Of several the last counts.

        It changes the reward where the weights count thumbs.

        Args:
          request_id: of the request.
          up: True for a thumb up, False for a thumb down.

        Raises:
          ValueError: a request without a choice, a thumb that is no boolean.
        """
        if not isinstance(up, bool | np.bool_):
            msg = f"up must be true or false, got {up!r}; a thumb is up or down."
            raise ValueError(msg)  # noqa: TRY004 - a ValueError at the door, as everywhere
        self._catch_up()
        with self.log.writing() as log:
            choice = log.row(CHOICES, request_id=request_id)
            if choice is None:
                rule = (
                    "request_id must be that of a choice in the log, of an arm that the bandit "
                    "chose"
                )
                remedy = (
                    "copy it from the response, and open the system by raglab.System.open(folder, "
                    'arm="bandit")'
                )
                msg = f"{rule}, got {request_id!r:.80}; {remedy}."
                raise ValueError(msg)
            self._noted(log)
            now, last = self._now(log)
            known = log.row(THUMBS, request_id=request_id)
            row = {"at": self._at(), "request_id": request_id, "age": rounds(log) - choice["round"]}
            log.add(THUMBS, row | {"before": None if known is None else known["up"], "up": int(up)})
            self._write_snapshot(log, now, last)

    def state(self) -> State:
        """State after the last event."""
        with self.log.reading() as log, as_written():
            return self._now(log)[0].state

    def rebuild(self) -> State:
        """State after the last event, from the log alone.

        To the byte what `state` has from the snapshot.
        """
        with self.log.reading() as log, as_written():
            return replay_events(initial_state(self.setup), events(log), self.setup).state

    def asked_before(
        self, question: str, *, policy_id: str = "", fingerprint: str = ""
    ) -> str | None:
        """Arm that last answered a question, None where none did.

        Args:
          question: text that identifies the question, compared as a hash.
          policy_id: of the policy that decided it.
          fingerprint: of the system.
        """
        named = question_digest(question)
        with self.log.reading() as log:
            row = log.row(CHOICES, question=named, policy_id=policy_id, fingerprint=fingerprint)
        return None if row is None or row["arm"] not in self.arms else str(row["arm"])

    def frame(self) -> pd.DataFrame:
        """The log, a row a choice, as `off_policy.estimate` takes it; see `choice_frame`."""
        with self.log.reading() as log, as_written():
            return choice_frame(log, self.setup)

    def arms_frame(self) -> pd.DataFrame:
        """Metrics of each arm (rule S4.6); see `arms_frame`."""
        return arms_frame(self.frame(), self.setup)

    def close(self) -> None:
        """Close the log's files."""
        self.log.close()

    def _at(self) -> str:
        return utc_text(self._clock())

    def _noted(self, log: Entries) -> None:
        """Note the setup in the log where it is new."""
        if log.row(SETUPS, columns=("seq",), digest=self.setup.digest) is None:
            log.add(
                SETUPS, {"at": self._at(), "digest": self.setup.digest, "body": self.setup.body}
            )

    def _now(self, log: Entries) -> tuple[OnlineState, int]:
        """State after the last event, from the snapshot and what came since.

        And the number of that event.
        """
        last = log.last
        with as_written():
            snapshot = log.row(SNAPSHOTS, setup=self.setup.digest)
            before, after = (
                (initial_state(self.setup), 0)
                if snapshot is None
                else (self._snapshot(snapshot, last), snapshot["seq"])
            )
            return before if after == last else replay_events(
                before, events(log, after), self.setup
            ), last

    def _snapshot(self, snapshot: Mapping[str, Any], last: int) -> OnlineState:
        """State of a snapshot, which must be one of the setup, of an event that there is.

        Raises:
          InputError: it is not.
        """
        snapshot_state, begun = unpack_snapshot(snapshot), initial_state(self.setup)
        pairs = list(
            zip(
                (*snapshot_state.state, snapshot_state.n, snapshot_state.total),
                (*begun.state, begun.n, begun.total),
                strict=True,
            )
        )
        if not all(
            array.shape == initial.shape and np.isfinite(array).all() for array, initial in pairs
        ):
            msg = (
                "a snapshot must be a finite state of the setup, got another for "
                f"{self.setup.digest}; delete its row."
            )
            raise InputError(msg)
        if not 0 <= snapshot["seq"] <= last:
            msg = (
                f"a snapshot must be of an event in the log, got event {snapshot['seq']} of "
                f"{last}; delete its row."
            )
            raise InputError(msg)
        return snapshot_state

    def _catch_up(self) -> None:
        """Fold all earlier events outside the lock before turn one: long logs block no writer."""
        if self._ready:
            return
        with self.log.reading() as log:
            now, last = self._now(log)
        with self.log.writing() as log:
            snapshot = log.row(SNAPSHOTS, setup=self.setup.digest)
            if last > (0 if snapshot is None else int(snapshot["seq"])):
                log.keep(
                    SNAPSHOTS,
                    {"setup": self.setup.digest, "seq": last, **pack_snapshot(now, self.setup)},
                )
        self._ready = True

    def _write_snapshot(self, log: Entries, now: OnlineState, after: int) -> None:
        """Keep a snapshot of the state after the last event.

        `now` is the state after event `after`.
        """
        row = pack_snapshot(replay_events(now, events(log, after), self.setup), self.setup)
        log.keep(SNAPSHOTS, {"setup": self.setup.digest, "seq": log.last, **row})


ARM_COLUMNS = ("arm", "pulls", "rewards", "wins", "win_rate", "mean_reward", "mean_ms", "p95_ms")


def choice_frame(log: Entries, setup: Setup) -> pd.DataFrame:
    """Choices in order, those of the setup's arms, rewards scored by its weights.

    Returns: `seq`, `request_id`, `at`, `policy_id`, `question`, `arm`, `action` (place of the arm),
      `reward` (NaN where none has come: drop such rows for `off_policy.estimate`), `propensity`,
      `p_<arm>`, `mask` (a boolean an arm), `features`, `components` (None without a reward),
      `measured`, `ms`, `thumb`, `age`.
    """
    import pandas as pd

    rewards = {row["request_id"]: row for row in log.rows(REWARDS)}
    thumbs = {row["request_id"]: int(row["up"]) for row in log.rows(THUMBS)}
    rows = []
    for choice in log.rows(CHOICES):
        # The log may be older than the setup: an arm that is gone has no columns here.
        if choice["arm"] not in setup.arms:
            continue
        request = choice["request_id"]
        outcome, thumb = rewards.get(request), thumbs.get(request)
        # By name: arms on offer then may be other arms than today's, and in another order.
        share = dict(zip(choice["arms"], choice["propensities"], strict=True))
        there = dict(zip(choice["arms"], choice["mask"], strict=True))
        rows.append(
            {
                name: choice[name]
                for name in ("seq", "request_id", "at", "policy_id", "question", "arm")
            }
            | {
                "action": setup.arms.index(choice["arm"]),
                "reward": np.nan,  # of all rows at once, below
                "propensity": choice["propensity"],
            }
            | {f"p_{arm}": share.get(arm, 0.0) for arm in setup.arms}
            | {
                "mask": tuple(bool(there.get(arm, False)) for arm in setup.arms),
                "features": choice["features"],
                "components": None if outcome is None else outcome["components"],
                "measured": None if outcome is None else outcome["measured"],
                "ms": np.nan if outcome is None else outcome["ms"],
                "thumb": np.nan if thumb is None else float(thumb),
                "age": np.nan if outcome is None else float(outcome["age"]),
            }
        )
    # Named, so that a log without a choice has the same columns.
    columns = [
        "seq",
        "request_id",
        "at",
        "policy_id",
        "question",
        "arm",
        "action",
        "reward",
        "propensity",
    ]
    columns += [f"p_{arm}" for arm in setup.arms]
    columns += ["mask", "features", "components", "measured", "ms", "thumb", "age"]
    frame = pd.DataFrame(rows, columns=columns)
    # Components are logged, not rewards: the weights of today score all rows alike.
    parts = component_columns([row["components"] or {} for row in rows])
    frame["reward"] = reward(parts | {"thumbs": frame["thumb"].to_numpy(np.float64)}, setup.weights)
    return frame


def arms_frame(choices: pd.DataFrame, setup: Setup) -> pd.DataFrame:
    """Metrics of each arm; NaN where there is nothing to say.

    Returns: `arm`, `pulls`, `rewards` (that have come), `wins` (above the bandit's threshold),
      `win_rate` (of the rewards), `mean_reward`, `mean_ms`, `p95_ms`.

    Source: rule S4.6.
    """
    import pandas as pd

    rows = []
    for arm in setup.arms:
        of = choices[choices["arm"] == arm]
        rewards = of["reward"].dropna().to_numpy(np.float64)
        ms = of["ms"].dropna().to_numpy(np.float64)
        wins = int(is_success(rewards, setup.bandit).sum())
        n, none = len(rewards), float("nan")
        means = (wins / n, float(rewards.mean()), float(ms.mean())) if n else (none, none, none)
        rows.append((arm, len(of), n, wins, *means, p95(ms.tolist())))
    return pd.DataFrame(rows, columns=list(ARM_COLUMNS))
