"""Online bandit (shore): a learner at work, its log and state, frames, Prometheus (S4.6).

The log is the truth and the state a fold over it: whatever is killed between a choice and its
reward, the log rebuilds the state that there was, to the byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from raglab import bandit as bandits
from raglab.bandit import Bandit, State
from raglab.bandit.learner import (
    CENTRED_MARK,
    CHOSEN,
    REVISED,
    REWARDED,
    Steps,
    is_success,
    stored_settings,
)
from raglab.reward import COMPONENTS, OPTIONAL_COMPONENTS, RewardWeights, reward
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
from raglab.values import BoolArray, FloatArray, refuse
from raglab.words.canonical import canonical_json, decimals, digest, utc_text

if TYPE_CHECKING:
    import pandas as pd

INTERCEPT = "intercept"
CONTEXT_FEATURES = (
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
# may be missing from a row, which then counts as one of 0
OPTIONAL_FEATURES = ("bm25_hits", "list_overlap")
Features = Mapping[str, float | None]
_EVENT_BATCH = 4096  # events that are folded at once
_STEP_OF_EVENT = {"choice": CHOSEN, "reward": REWARDED, "thumb": REVISED}


class Setup(NamedTuple):
    """Settings that determine a state together with the log.

    Another setup folds the same log into another state.

    arms: their names in order; events of an arm that is not among them are passed over. initial: a
    linear learner's state before the first event; None: it knows nothing.
    """

    arms: tuple[str, ...]
    bandit: Bandit
    weights: RewardWeights
    initial: State | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The setup as JSON holds it; what only some learners have is there only for them."""
        history = self.bandit.history
        history_rows = (
            None
            if history is None
            else {
                field_name: np.asarray(field_values).tolist()
                for field_name, field_values in history._asdict().items()
            }
        )
        body: dict[str, Any] = {
            "arms": list(self.arms),
            "bandit": stored_settings(self.bandit) | {"history": history_rows},
            "weights": self.weights._asdict(),
            "context": [INTERCEPT, *CONTEXT_FEATURES, *map(p95_name, self.arms)],
        }
        if self.bandit.linear:
            body[CENTRED_MARK] = True
        if self.initial is not None:
            body["initial"] = bandits.dumps(self.initial, self.bandit)
        return body

    @property
    def width(self) -> int:
        """Numbers of a context; 0 for a learner that reads none."""
        return 1 + len(CONTEXT_FEATURES) + len(self.arms) if self.bandit.linear else 0

    @property
    def digest(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON."""
        return digest(canonical_json(self.body, ensure_ascii=True), 16)


class OnlineState(NamedTuple):
    """A learner's state and, for people, how many rewards each arm has and their sum, [A]."""

    state: State
    n: FloatArray
    total: FloatArray


def p95_name(arm: str) -> str:
    """Name of the feature that is the arm's recent P95 latency over the budget."""
    return f"p95_{arm}"


def linear_context(features: Features, setup: Setup) -> FloatArray | None:
    """Context of a linear policy, [1 + F + A]; None for a policy that knows none.

    The intercept 1; each of `CONTEXT_FEATURES`, near [0, 1]; for each arm its recent P95 over the
    budget. An arm that never answered has no P95 yet: it stands in the log as null and enters here
    as 0, as do those of `OPTIONAL_FEATURES`.

    Raises:
      ValueError: a feature of `CONTEXT_FEATURES` is missing.
    """
    if not setup.bandit.linear:
        return None
    for feature_name in CONTEXT_FEATURES:
        if feature_name not in OPTIONAL_FEATURES and features.get(feature_name) is None:
            refuse(
                f"features must hold {', '.join(CONTEXT_FEATURES)}",
                f"no {feature_name}",
                "measure it",
            )
    feature_names = (*CONTEXT_FEATURES, *map(p95_name, setup.arms))
    return np.array(
        [1.0, *(float(features.get(feature_name) or 0.0) for feature_name in feature_names)]
    )


def initial_state(setup: Setup) -> OnlineState:
    """State before the first event.

    The one that the setup begins with, whose rewards count for people too.

    Raises:
      ValueError: settings out of range; a first state of other arms or features, or of a learner
        without a context.
    """
    n_arms = len(setup.arms)
    first_state = setup.initial
    state = bandits.init(n_arms, bandit=setup.bandit, n_features=setup.width)
    no_rewards = np.zeros(n_arms)
    if first_state is None:
        return OnlineState(state, no_rewards, no_rewards)
    _check_linear(setup)
    if [part.shape for part in first_state] != [part.shape for part in state]:
        refuse(
            f"a first state must be of {n_arms} arms and {setup.width} features",
            first_state.moment.shape,
            "use logged_state",
        )
    return OnlineState(first_state, first_state.n, first_state.total)


def _check_linear(setup: Setup) -> None:
    if not setup.bandit.linear:
        refuse(
            "a first state must be of a linear learner",
            setup.bandit.algorithm,
            "use Bandit.history",
        )


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
    _check_linear(setup)
    contexts = np.array([linear_context(features, setup) for features in choices["features"]])
    return bandits.learned_state(
        choices[["arm", "reward"]],
        setup.bandit,
        arms=setup.arms,
        features=contexts.reshape(-1, setup.width),
        weight=weight,
    )


def replay_events(online_state: OnlineState, events: Iterable[Event], setup: Setup) -> OnlineState:
    """State after some events, in order.

    A choice counts the round, a reward its arm, a thumb what it makes of it.
    """
    pending_events = iter(events)
    while event_batch := list(islice(pending_events, _EVENT_BATCH)):
        online_state = _replay_batch(online_state, event_batch, setup)
    return online_state


def _replay_batch(online_state: OnlineState, events: Sequence[Event], setup: Setup) -> OnlineState:
    """State after some events, whose rewards are computed all at once."""
    counts_thumbs = bool(np.any(np.greater(setup.weights.thumbs, 0.0)))
    # A thumb changes a reward where the weights count it; before the reward it waits for it.
    known_events = [
        event
        for event in events
        if event.arm in setup.arms
        and (event.kind != "thumb" or (counts_thumbs and event.components is not None))
    ]
    if not known_events:
        return online_state
    step_kinds = np.array([_STEP_OF_EVENT[event.kind] for event in known_events])
    arm_indices = np.array([setup.arms.index(event.arm) for event in known_events])
    event_ages = np.array([event.age for event in known_events])
    component_rows = [(event.components, event.thumb) for event in known_events]
    component_rows += [(event.components, event.before) for event in known_events]
    new_rewards, old_rewards = np.split(rewards(component_rows, setup.weights), 2)
    new_rewards[step_kinds == CHOSEN], old_rewards[step_kinds != REVISED] = 0.0, 0.0
    contexts = np.zeros((len(known_events), setup.width))
    if setup.bandit.linear:
        contexts[:] = [linear_context(event.features, setup) for event in known_events]
    learner_state = bandits.fold(
        online_state.state,
        Steps(step_kinds, arm_indices, old_rewards, new_rewards, event_ages, contexts),
        setup.bandit,
    )
    reward_counts = online_state.n.copy()
    reward_totals = online_state.total.copy()
    np.add.at(reward_counts, arm_indices[step_kinds == REWARDED], 1.0)
    np.add.at(reward_totals, arm_indices, new_rewards - old_rewards)
    return OnlineState(learner_state, reward_counts, reward_totals)


def rewards(
    component_rows: Sequence[tuple[Features | None, float | None]], weights: RewardWeights
) -> FloatArray:
    """Rewards in [0, 1], [N]; NaN where a component is missing.

    The one way from what a log holds to a reward, live and whenever the log is read.

    Args:
      component_rows: raw components, None before they came, each with its thumb, 1 up, 0 down, None
        none.
      weights: of the components.
    """
    component_names = [
        component_name
        for component_name in (*COMPONENTS, *OPTIONAL_COMPONENTS)
        if component_name != "thumbs"
    ]
    columns = {
        component_name: np.array(
            [(components or {}).get(component_name) for components, _ in component_rows], np.float64
        )
        for component_name in component_names
    }
    columns["thumbs"] = np.array([thumb for _, thumb in component_rows], np.float64)
    return np.asarray(reward(columns, weights), np.float64)


def pack_snapshot(online_state: OnlineState, setup: Setup) -> dict[str, str]:
    """State and sums as a snapshot keeps them."""
    reward_sums = json.dumps({"n": online_state.n.tolist(), "total": online_state.total.tolist()})
    return {"state": bandits.dumps(online_state.state, setup.bandit), "sums": reward_sums}


def p95(milliseconds: Sequence[float]) -> float:
    """P95 of milliseconds; NaN of none."""
    return float(np.percentile(milliseconds, 95)) if len(milliseconds) else float("nan")


def arm_reason(
    arm_name: str,
    arm_index: int,
    online_state: OnlineState,
    choice_reasons: str | Mapping[str, str],
    mean_margin: float | None = None,
) -> str:
    """Why an arm was selected.

    `selected iterative: high complexity, reward 0.71, margin 0.12 over 214 pulls`.

    Args:
      mean_margin: mean of the reranker's margins that its latest rewards state; None where there
        are none.
    """
    choice_reason = (
        choice_reasons if isinstance(choice_reasons, str) else choice_reasons.get(arm_name, "")
    )
    n_pulls = int(online_state.state.pulls[arm_index])
    n_rewards = float(online_state.n[arm_index])
    pull_text = f"{n_pulls} pull{'' if n_pulls == 1 else 's'}"
    if not n_pulls:
        experience = "not pulled yet"
    elif not n_rewards:
        experience = f"no reward in {pull_text}"
    else:
        margin_text = "" if mean_margin is None else f", margin {decimals(mean_margin)}"
        experience = (
            f"reward {decimals(float(online_state.total[arm_index]) / n_rewards)}{margin_text} "
            f"over {pull_text}"
        )
    return f"selected {arm_name}: " + ", ".join(
        reason_part for reason_part in (choice_reason, experience) if reason_part
    )


def check_number(number_name: str, number: object) -> float | None:
    """A finite number, or None for one that is missing."""
    if number is None:
        return None
    if not isinstance(number, float | int | np.number | np.bool_) or np.isinf(number):
        refuse(f"{number_name} must be a finite number or None", repr(number), "correct it")
    return None if np.isnan(number) else float(number)


def _recent_margin(log: Entries, arm_name: str, last_event: int) -> float | None:
    """Mean margin of an arm's latest rewards, [0, 1]; None where none has come."""
    reward_rows = log.rows(
        REWARDS,
        columns=("components",),
        after=last_event - HORIZON,
        most=RECENT_MARGINS,
        arm=arm_name,
    )
    component_rows = (reward_row["components"] for reward_row in reward_rows)
    margins = [
        float(components["margin"]) for components in component_rows if "margin" in components
    ]
    return sum(margins) / len(margins) if margins else None


def question_digest(question: str) -> str:
    """First 16 hex digits of the SHA-256 of a question; of none, none."""
    return digest(question, 16) if question else ""


def raw_components(components: Features) -> dict[str, float | None]:
    """Reward components as the log keeps them: none of `reward.COMPONENTS` missing.

    Raises:
      ValueError: a component is missing, NaN or infinite, or a thumb is among them.
    """
    raw_values = {name: check_number(name, component) for name, component in components.items()}
    for name in COMPONENTS:
        if raw_values.get(name) is None:
            refuse(
                f"components must hold {', '.join(COMPONENTS)}",
                f"no {name}",
                "measure it, or leave the choice without a reward",
            )
    if "thumbs" in raw_values:
        refuse("components must not hold thumbs", "them", "call `thumbs`")
    return raw_values


RECENT_MARGINS = 20  # latest rewards of an arm whose margins its reason states
# pulls of an arm that its P95 latency is of, among so many events: then it is asked again
RECENT = 100
HORIZON = 2000


class ArmChoice(NamedTuple):
    """An arm, why it answers, and how probable it was to be chosen; None where no bandit chose it.

    rewarded: whether its reward is in the log already, by a process that was stopped after it.
    """

    arm: str
    reason: str
    propensity: float | None
    rewarded: bool = False


UTC_CLOCK = partial(datetime.now, UTC)


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
        clock: Callable[[], datetime] = UTC_CLOCK,
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
        requirements = (
            (
                len(set(arms)) == len(arms) > 0,
                "arms must be different and at least one",
                ", ".join(arms) or "none",
            ),
            (0.0 < budget_ms < np.inf, "budget_ms must be above 0", f"{budget_ms:g}"),
            (seed >= 0, "seed must be at least 0", f"{seed}"),
        )
        for is_met, requirement, actual_text in requirements:
            if not is_met:
                refuse(requirement, actual_text, "correct it")
        self.setup = Setup(tuple(arms), bandit, weights, initial)
        self.budget_ms, self.seed = float(budget_ms), int(seed)
        self.log = Database(
            log, CHOICE_TABLES, beside=REQUEST_TABLES, create=create, patience_s=patience_s
        )
        # settings out of range stop here
        initial_state(self.setup)
        rewards([], weights)
        self._clock, self._ready, self._digest = clock, False, self.setup.digest

    def __repr__(self) -> str:
        arm_names = ", ".join(self.arms)
        return (
            f"{type(self).__name__}({self.setup.bandit.algorithm!r} over {arm_names!r}, log "
            f"{self.log.shown!r})"
        )

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms, [A]."""
        return self.setup.arms

    def choose(
        self,
        request_id: str,
        mask: Sequence[bool] | BoolArray,
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
        offered_mask = np.asarray(mask)
        if (
            offered_mask.shape != (len(self.arms),)
            or offered_mask.dtype != np.bool_
            or not offered_mask.any()
        ):
            refuse(
                f"mask must be {len(self.arms)} booleans, one of them true",
                offered_mask,
                "correct it",
            )
        known_features = {
            feature_name: check_number(feature_name, number)
            for feature_name, number in features.items()
        }
        question_fields = {
            "policy_id": policy_id,
            "fingerprint": fingerprint,
            "question": question_digest(question),
        }
        # The state is folded from the log outside the transaction, so that nobody waits while it is
        # caught up.
        self._catch_up()
        with self.log.writing() as log_entries:
            earlier_choice = log_entries.row(CHOICES, request_id=request_id)
            if earlier_choice is not None:
                return self._earlier_choice(
                    log_entries, earlier_choice, question_fields, why, resumed=resumed
                )
            # From here to the choice all read the same state, so that the logged probabilities are
            # those it had.
            online_state, last_event = self._begin(log_entries)
            latest_rewards: dict[str, Any] = {
                "columns": ("ms",),
                "after": last_event - HORIZON,
                "most": RECENT,
            }
            recent_p95 = np.array(
                [
                    p95(
                        [
                            log_row["ms"]
                            for log_row in log_entries.rows(REWARDS, arm=arm, **latest_rewards)
                        ]
                    )
                    for arm in self.arms
                ]
            )
            known_features |= {
                p95_name(arm): None if np.isnan(latency_ms) else float(latency_ms / self.budget_ms)
                for arm, latency_ms in zip(self.arms, recent_p95, strict=True)
            }
            # What an arm took of late is known before retrieval, so it may choose; and a slow one
            # is left out.
            guarded_mask = bandits.guarded(offered_mask, recent_p95, self.budget_ms)
            propensities = bandits.propensities(
                online_state.state,
                self.setup.bandit,
                mask=guarded_mask,
                context=linear_context(known_features, self.setup),
            )
            # The draw depends on seed and state alone: whoever replays the log draws the same arm.
            uniform = np.random.default_rng(
                np.random.SeedSequence([self.seed, last_event + 1])
            ).random()
            arm = int(bandits.sample(propensities, uniform))
            log_row = {
                "request_id": request_id,
                "round": rounds(log_entries) + 1,
                **question_fields,
                "setup": self._digest,
                "arm": self.arms[arm],
                "arms": list(self.arms),
                "mask": guarded_mask.tolist(),
                "propensity": float(propensities[arm]),
                "propensities": propensities.tolist(),
                "features": known_features,
                "state_seq": last_event,
                "state_hash": digest(pack_snapshot(online_state, self.setup)["state"], 16),
                "seed": self.seed,
            }
            self._add(log_entries, CHOICES, log_row, online_state, last_event)
            return self._arm_choice(
                log_entries, arm, float(propensities[arm]), why, online_state, last_event
            )

    def _arm_choice(
        self,
        log_entries: Entries,
        arm_index: int,
        propensity: float,
        choice_reasons: str | Mapping[str, str],
        online_state: OnlineState,
        last_event: int,
        *,
        rewarded: bool = False,
    ) -> ArmChoice:
        """Choice of an arm with its reason; `online_state` is the state after `last_event`."""
        arm_name = self.arms[arm_index]
        reason = arm_reason(
            arm_name,
            arm_index,
            online_state,
            choice_reasons,
            _recent_margin(log_entries, arm_name, last_event),
        )
        return ArmChoice(arm_name, reason, propensity, rewarded)

    def _earlier_choice(
        self,
        log_entries: Entries,
        choice_row: Mapping[str, Any],
        question_fields: Mapping[str, str],
        choice_reasons: str | Mapping[str, str],
        *,
        resumed: bool,
    ) -> ArmChoice:
        """Choice of a request that was stopped before its end; nothing is added to the log.

        Raises:
          ValueError: the request came to its end, or asked something else.
        """
        request_id = choice_row["request_id"]
        arm = choice_row["arm"]
        rewarded = log_entries.row(REWARDS, columns=("seq",), request_id=request_id) is not None
        is_same_question = arm in self.arms and all(
            choice_row[field_name] == value for field_name, value in question_fields.items()
        )
        if not is_same_question or (rewarded and not resumed):
            refuse("request_id must be new", repr(request_id), "give another or none")
        arm_index = self.arms.index(arm)
        propensity = float(choice_row["propensity"])
        return self._arm_choice(
            log_entries,
            arm_index,
            propensity,
            choice_reasons,
            *self._now(log_entries),
            rewarded=rewarded,
        )

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
        raw_values = raw_components(components)
        measured_numbers = {
            number_name: check_number(number_name, number)
            for number_name, number in (measured or {}).items()
        }
        # of a request that has none yet; a component out of range stops here
        rewards([(raw_values, None)], self.setup.weights)
        if ms is None:
            ms = float(raw_values["latency_ratio"] or 0.0) * self.budget_ms
        spent_ms = check_number("ms", ms)
        if spent_ms is None or spent_ms < 0.0:
            refuse("ms must be at least 0", ms, "correct it")
        self._catch_up()
        with self.log.writing() as entries:
            choice = request_row(entries, request_id, CHOICES, "choice")
            if entries.row(REWARDS, columns=("seq",), request_id=request_id) is not None:
                refuse(
                    "a request must have one reward",
                    f"another of {request_id!r}",
                    "change it by a thumb",
                )
            online_state, last_event = self._begin(entries)
            thumb_row = entries.row(THUMBS, request_id=request_id)
            thumb_up = None if thumb_row is None else int(thumb_row["up"])
            number = float(rewards([(raw_values, thumb_up)], self.setup.weights)[0])
            reward_row = {
                "request_id": request_id,
                "arm": choice["arm"],
                "age": rounds(entries) - choice["round"],
                "components": raw_values,
                "thumb": thumb_up,
                "reward": number,
                "ms": spent_ms,
                "measured": measured_numbers,
            }
            self._add(entries, REWARDS, reward_row, online_state, last_event)
        return number

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
            refuse("up must be true or false", repr(up), "correct it")
        self._catch_up()
        with self.log.writing() as entries:
            choice = entries.row(CHOICES, request_id=request_id)
            if choice is None:
                refuse(
                    "request_id must be that of an arm that the bandit chose",
                    f"{request_id!r:.80}",
                    'open the system with arm="bandit"',
                )
            online_state, last_event = self._begin(entries)
            earlier_thumb = entries.row(THUMBS, request_id=request_id)
            thumb_row = {
                "request_id": request_id,
                "age": rounds(entries) - choice["round"],
                "before": None if earlier_thumb is None else earlier_thumb["up"],
                "up": int(up),
            }
            self._add(entries, THUMBS, thumb_row, online_state, last_event)

    def state(self) -> State:
        """State after the last event."""
        with self.log.reading() as entries:
            return self._now(entries)[0].state

    def rebuild(self) -> State:
        """State after the last event, from the log alone.

        To the byte what `state` has from the snapshot.
        """
        with self.log.reading() as entries, as_written():
            return replay_events(initial_state(self.setup), events(entries), self.setup).state

    def asked_before(
        self, question: str, *, policy_id: str = "", fingerprint: str = ""
    ) -> str | None:
        """Arm that last answered a question, None where none did.

        Args:
          question: text that identifies the question, compared as a hash.
          policy_id: of the policy that decided it.
          fingerprint: of the system.
        """
        question_id = question_digest(question)
        with self.log.reading() as entries:
            row = entries.row(
                CHOICES, question=question_id, policy_id=policy_id, fingerprint=fingerprint
            )
        return None if row is None or row["arm"] not in self.arms else str(row["arm"])

    def frame(self) -> pd.DataFrame:
        """The log, a row a choice of the setup's arms, as `off_policy.estimate` takes it.

        Rewards are scored by the weights of today.

        Returns: `seq`, `request_id`, `at`, `policy_id`, `question`, `arm`, `action` (place of the
          arm), `reward` (NaN where none has come: drop such rows for `off_policy.estimate`),
          `propensity`, `p_<arm>`, `mask` (a boolean an arm), `features`, `components` (None without
          a reward), `measured`, `ms`, `thumb`, `age`.
        """
        import pandas as pd

        arm_names = self.arms
        columns = ["seq", "request_id", "at", "policy_id", "question", "arm", "action", "reward"]
        columns += [
            "propensity",
            *(f"p_{arm}" for arm in arm_names),
            "mask",
            "features",
            "components",
        ]
        columns += ["measured", "ms", "thumb", "age"]
        with self.log.reading() as entries, as_written():
            outcomes = {frame_row["request_id"]: frame_row for frame_row in entries.rows(REWARDS)}
            thumbs = {
                frame_row["request_id"]: frame_row["up"] for frame_row in entries.rows(THUMBS)
            }
            # The log may be older than the setup: an arm that is gone has no columns here.
            choices = [
                frame_row for frame_row in entries.rows(CHOICES) if frame_row["arm"] in arm_names
            ]
            frame_rows = []
            for choice in choices:
                # By name: arms on offer then may be other arms than today's, in another order.
                propensities = dict(zip(choice["arms"], choice["propensities"], strict=True))
                offered_arms = dict(zip(choice["arms"], choice["mask"], strict=True))
                frame_row = dict.fromkeys(columns) | outcomes.get(choice["request_id"], {}) | choice
                frame_row |= {f"p_{arm}": propensities.get(arm, 0.0) for arm in arm_names}
                frame_row["mask"] = tuple(bool(offered_arms.get(arm, False)) for arm in arm_names)
                frame_row["action"] = arm_names.index(choice["arm"])
                frame_row["thumb"] = thumbs.get(choice["request_id"])
                frame_rows.append(frame_row)
            reward_values = rewards(
                [(frame_row["components"], frame_row["thumb"]) for frame_row in frame_rows],
                self.setup.weights,
            )
        number_types = dict.fromkeys(("reward", "ms", "thumb", "age"), np.float64)
        frame = pd.DataFrame(frame_rows, columns=columns).assign(reward=reward_values)
        return frame.astype(number_types)

    def arms_frame(self) -> pd.DataFrame:
        """Metrics of each arm; NaN without anything to say.

        Returns: `arm`, `pulls`, `rewards` (that have come), `wins` (above the bandit's threshold),
          `win_rate` (of the rewards), `mean_reward`, `mean_ms`, `p95_ms`.

        Source: rule S4.6.
        """
        import pandas as pd

        choices = self.frame()
        arm_rows = []
        for arm in self.arms:
            arm_choices = choices[choices["arm"] == arm]
            arm_rewards = arm_choices["reward"].dropna()
            latencies_ms = arm_choices["ms"].dropna()
            wins = is_success(arm_rewards.to_numpy(), self.setup.bandit)
            arm_rows.append(
                {
                    "arm": arm,
                    "pulls": len(arm_choices),
                    "rewards": len(arm_rewards),
                    "wins": int(wins.sum()),
                    "win_rate": wins.mean() if len(arm_rewards) else np.nan,
                    "mean_reward": arm_rewards.mean(),
                    "mean_ms": latencies_ms.mean(),
                    "p95_ms": p95(latencies_ms.tolist()),
                }
            )
        return pd.DataFrame(arm_rows)

    def close(self) -> None:
        """Close the log's files."""
        self.log.close()

    def _begin(self, log_entries: Entries) -> tuple[OnlineState, int]:
        """State before an event is added, with the setup noted where it is new; see `_now`."""
        if log_entries.row(SETUPS, columns=("seq",), digest=self._digest) is None:
            setup_time = utc_text(self._clock())
            log_entries.add(
                SETUPS, {"at": setup_time, "digest": self._digest, "body": self.setup.body}
            )
        return self._now(log_entries)

    def _now(self, log_entries: Entries) -> tuple[OnlineState, int]:
        """State after the last event, from the snapshot and what came since.

        And the number of that event.

        Raises:
          InputError: a snapshot that is none of the setup, or of no event in the log.
        """
        with as_written():
            online_state = initial_state(self.setup)
            last_event = log_entries.last
            snapshot_row = log_entries.row(SNAPSHOTS, setup=self._digest)
            if snapshot_row is None:
                return replay_events(online_state, events(log_entries), self.setup), last_event
            reward_sums = {
                sum_name: np.array(arm_sums)
                for sum_name, arm_sums in json.loads(snapshot_row["sums"]).items()
            }
            snapshot_state = OnlineState(
                bandits.loads(snapshot_row["state"]).state, reward_sums["n"], reward_sums["total"]
            )
            array_pairs = zip(
                (*snapshot_state.state, *snapshot_state[1:]),
                (*online_state.state, *online_state[1:]),
                strict=True,
            )
            shapes_fit = all(
                stored_array.shape == initial_array.shape
                for stored_array, initial_array in array_pairs
            )
            if not (
                shapes_fit
                and np.isfinite(snapshot_state[1:]).all()
                and 0 <= snapshot_row["seq"] <= last_event
            ):
                requirement = (
                    f"a snapshot must be a finite state of the setup up to event {last_event}"
                )
                message = (
                    f"{requirement}, got event {snapshot_row['seq']}; delete the row "
                    f"{self._digest}."
                )
                raise InputError(message)
            later_events = (
                ()
                if snapshot_row["seq"] == last_event
                else events(log_entries, snapshot_row["seq"])
            )
            return replay_events(snapshot_state, later_events, self.setup), last_event

    def _catch_up(self) -> None:
        """Fold all earlier events outside the lock before turn one: long logs block no writer."""
        if self._ready:
            return
        with self.log.reading() as entries:
            online_state, last_event = self._now(entries)
        with self.log.writing() as entries:
            row = entries.row(SNAPSHOTS, setup=self._digest)
            if last_event > (0 if row is None else row["seq"]):
                self._keep(entries, online_state, last_event)
        self._ready = True

    def _add(
        self,
        log_entries: Entries,
        table: str,
        event_row: Mapping[str, Any],
        online_state: OnlineState,
        last_event: int,
    ) -> None:
        """Add an event, and keep a snapshot of the state after it.

        `online_state` is the state after event `last_event`.
        """
        log_entries.add(table, {"at": utc_text(self._clock()), **event_row})
        self._keep(
            log_entries,
            replay_events(online_state, events(log_entries, last_event), self.setup),
            log_entries.last,
        )

    def _keep(self, log_entries: Entries, online_state: OnlineState, last_event: int) -> None:
        snapshot = pack_snapshot(online_state, self.setup)
        log_entries.keep(SNAPSHOTS, {"setup": self._digest, "seq": last_event, **snapshot})
