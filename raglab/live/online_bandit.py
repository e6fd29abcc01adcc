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
from numpy.typing import NDArray

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
from raglab.values import refuse
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
# may be missing from a row, which then counts as one of 0
LATER = ("bm25_hits", "list_overlap")
Features = Mapping[str, float | None]
_BATCH = 4096  # events that are folded at once
_STEPS = {"choice": CHOSEN, "reward": REWARDED, "thumb": REVISED}


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
        stated = (
            None
            if history is None
            else {name: np.asarray(row).tolist() for name, row in history._asdict().items()}
        )
        body: dict[str, Any] = {
            "arms": list(self.arms),
            "bandit": stored_settings(self.bandit) | {"history": stated},
            "weights": self.weights._asdict(),
            "context": [INTERCEPT, *FEATURES, *map(p95_name, self.arms)],
        }
        if self.bandit.linear:
            body[CENTRED_MARK] = True
        if self.initial is not None:
            body["initial"] = bandits.dumps(self.initial, self.bandit)
        return body

    @property
    def width(self) -> int:
        """Numbers of a context; 0 for a learner that reads none."""
        return 1 + len(FEATURES) + len(self.arms) if self.bandit.linear else 0

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

    The intercept 1; each of `FEATURES`, near [0, 1]; for each arm its recent P95 over the budget.
    An arm that never answered has no P95 yet: it stands in the log as null and enters here as 0, as
    do those of `LATER`.

    Raises:
      ValueError: a feature of `FEATURES` is missing.
    """
    if not setup.bandit.linear:
        return None
    for name in FEATURES:
        if name not in LATER and features.get(name) is None:
            refuse(f"features must hold {', '.join(FEATURES)}", f"no {name}", "measure it")
    names = (*FEATURES, *map(p95_name, setup.arms))
    return np.array([1.0, *(float(features.get(name) or 0.0) for name in names)])


def initial_state(setup: Setup) -> OnlineState:
    """State before the first event.

    The one that the setup begins with, whose rewards count for people too.

    Raises:
      ValueError: settings out of range; a first state of other arms or features, or of a learner
        without a context.
    """
    n_arms, first = len(setup.arms), setup.initial
    state = bandits.init(n_arms, bandit=setup.bandit, n_features=setup.width)
    none = np.zeros(n_arms)
    if first is None:
        return OnlineState(state, none, none)
    _check_linear(setup)
    if [part.shape for part in first] != [part.shape for part in state]:
        rule = f"a first state must be of {n_arms} arms and {setup.width} features"
        refuse(rule, first.moment.shape, "use logged_state")
    return OnlineState(first, first.n, first.total)


def _check_linear(setup: Setup) -> None:
    if not setup.bandit.linear:
        rule = "a first state must be of a linear learner"
        refuse(rule, setup.bandit.algorithm, "use Bandit.history")


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
    context = np.array([linear_context(row, setup) for row in choices["features"]])
    return bandits.learned_state(
        choices[["arm", "reward"]],
        setup.bandit,
        arms=setup.arms,
        features=context.reshape(-1, setup.width),
        weight=weight,
    )


def replay_events(before: OnlineState, events: Iterable[Event], setup: Setup) -> OnlineState:
    """State after some events, in order.

    A choice counts the round, a reward its arm, a thumb what it makes of it.
    """
    waiting = iter(events)
    while batch := list(islice(waiting, _BATCH)):
        before = _replay_batch(before, batch, setup)
    return before


def _replay_batch(before: OnlineState, events: Sequence[Event], setup: Setup) -> OnlineState:
    """State after some events, whose rewards are computed all at once."""
    counted = bool(np.any(np.greater(setup.weights.thumbs, 0.0)))
    # A thumb changes a reward where the weights count it; before the reward it waits for it.
    mine = [
        event
        for event in events
        if event.arm in setup.arms
        and (event.kind != "thumb" or (counted and event.components is not None))
    ]
    if not mine:
        return before
    kind = np.array([_STEPS[event.kind] for event in mine])
    arm = np.array([setup.arms.index(event.arm) for event in mine])
    age = np.array([event.age for event in mine])
    rows = [(event.components, event.thumb) for event in mine]
    rows += [(event.components, event.before) for event in mine]
    new, old = np.split(rewards(rows, setup.weights), 2)
    new[kind == CHOSEN], old[kind != REVISED] = 0.0, 0.0
    context = np.zeros((len(mine), setup.width))
    if setup.bandit.linear:
        context[:] = [linear_context(event.features, setup) for event in mine]
    state = bandits.fold(before.state, Steps(kind, arm, old, new, age, context), setup.bandit)
    n, total = before.n.copy(), before.total.copy()
    np.add.at(n, arm[kind == REWARDED], 1.0)
    np.add.at(total, arm, new - old)
    return OnlineState(state, n, total)


def rewards(
    rows: Sequence[tuple[Features | None, float | None]], weights: RewardWeights
) -> NDArray[np.float64]:
    """Rewards in [0, 1], [N]; NaN where a component is missing.

    The one way from what a log holds to a reward, live and whenever the log is read.

    Args:
      rows: raw components, None before they came, each with its thumb, 1 up, 0 down, None none.
      weights: of the components.
    """
    names = [name for name in (*COMPONENTS, *OPTIONAL) if name != "thumbs"]
    columns = {
        name: np.array([(parts or {}).get(name) for parts, _ in rows], np.float64) for name in names
    }
    columns["thumbs"] = np.array([thumb for _, thumb in rows], np.float64)
    return np.asarray(reward(columns, weights), np.float64)


def pack_snapshot(now: OnlineState, setup: Setup) -> dict[str, str]:
    """State and sums as a snapshot keeps them."""
    sums = json.dumps({"n": now.n.tolist(), "total": now.total.tolist()})
    return {"state": bandits.dumps(now.state, setup.bandit), "sums": sums}


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
    pulls, n = int(now.state.pulls[arm]), float(now.n[arm])
    pull_text = f"{pulls} pull{'' if pulls == 1 else 's'}"
    if not pulls:
        learned = "not pulled yet"
    elif not n:
        learned = f"no reward in {pull_text}"
    else:
        lead = "" if margin is None else f", margin {decimals(margin)}"
        learned = f"reward {decimals(float(now.total[arm]) / n)}{lead} over {pull_text}"
    return f"selected {name}: " + ", ".join(part for part in (stated, learned) if part)


def check_number(name: str, value: object) -> float | None:
    """A finite number, or None for one that is missing."""
    if value is None:
        return None
    if not isinstance(value, float | int | np.number | np.bool_) or np.isinf(value):
        refuse(f"{name} must be a finite number or None", repr(value), "correct it")
    return None if np.isnan(value) else float(value)


def _recent_margin(log: Entries, arm: str, last: int) -> float | None:
    """Mean margin of an arm's latest rewards, [0, 1]; None where none has come."""
    latest = log.rows(REWARDS, columns=("components",), after=last - HORIZON, most=MARGINS, arm=arm)
    parts = (row["components"] for row in latest)
    margins = [float(each["margin"]) for each in parts if "margin" in each]
    return sum(margins) / len(margins) if margins else None


def question_digest(question: str) -> str:
    """First 16 hex digits of the SHA-256 of a question; of none, none."""
    return digest(question, 16) if question else ""


def raw_components(components: Features) -> dict[str, float | None]:
    """Reward components as the log keeps them: none of `reward.COMPONENTS` missing.

    Raises:
      ValueError: a component is missing, NaN or infinite, or a thumb is among them.
    """
    raw = {name: check_number(name, value) for name, value in components.items()}
    for name in COMPONENTS:
        if raw.get(name) is None:
            rule = f"components must hold {', '.join(COMPONENTS)}"
            refuse(rule, f"no {name}", "measure it, or leave the choice without a reward")
    if "thumbs" in raw:
        refuse("components must not hold thumbs", "them", "call `thumbs`")
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


NOW = partial(datetime.now, UTC)


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
        clock: Callable[[], datetime] = NOW,
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
        rules = (
            (
                len(set(arms)) == len(arms) > 0,
                "arms must be different and at least one",
                ", ".join(arms) or "none",
            ),
            (0.0 < budget_ms < np.inf, "budget_ms must be above 0", f"{budget_ms:g}"),
            (seed >= 0, "seed must be at least 0", f"{seed}"),
        )
        for holds, rule, value in rules:
            if not holds:
                refuse(rule, value, "correct it")
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
        offered = np.asarray(mask)
        if offered.shape != (len(self.arms),) or offered.dtype != np.bool_ or not offered.any():
            rule = f"mask must be {len(self.arms)} booleans, one of them true"
            refuse(rule, offered, "correct it")
        known = {name: check_number(name, value) for name, value in features.items()}
        about = {
            "policy_id": policy_id,
            "fingerprint": fingerprint,
            "question": question_digest(question),
        }
        # The state is folded from the log outside the transaction, so that nobody waits while it is
        # caught up.
        self._catch_up()
        with self.log.writing() as log:
            earlier = log.row(CHOICES, request_id=request_id)
            if earlier is not None:
                return self._earlier_choice(log, earlier, about, why, resumed=resumed)
            # From here to the choice all read the same state, so that the logged probabilities are
            # those it had.
            now, last = self._begin(log)
            latest: dict[str, Any] = {
                "columns": ("ms",),
                "after": last - HORIZON,
                "most": RECENT,
            }
            recent = np.array(
                [
                    p95([row["ms"] for row in log.rows(REWARDS, arm=arm, **latest)])
                    for arm in self.arms
                ]
            )
            known |= {
                p95_name(arm): None if np.isnan(ms) else float(ms / self.budget_ms)
                for arm, ms in zip(self.arms, recent, strict=True)
            }
            # What an arm took of late is known before retrieval, so it may choose; and a slow one
            # is left out.
            guarded_mask = bandits.guarded(offered, recent, self.budget_ms)
            share = bandits.propensities(
                now.state,
                self.setup.bandit,
                mask=guarded_mask,
                context=linear_context(known, self.setup),
            )
            # The draw depends on seed and state alone: whoever replays the log draws the same arm.
            uniform = np.random.default_rng(np.random.SeedSequence([self.seed, last + 1])).random()
            arm = int(bandits.sample(share, uniform))
            row = {
                "request_id": request_id,
                "round": rounds(log) + 1,
                **about,
                "setup": self._digest,
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
            self._add(log, CHOICES, row, now, last)
            return self._arm_choice(log, arm, float(share[arm]), why, now, last)

    def _arm_choice(
        self,
        log: Entries,
        arm: int,
        propensity: float,
        why: str | Mapping[str, str],
        now: OnlineState,
        last: int,
        *,
        rewarded: bool = False,
    ) -> ArmChoice:
        """Choice of an arm with its reason, as of the state `now` after event `last`."""
        name = self.arms[arm]
        reason = arm_reason(name, arm, now, why, _recent_margin(log, name, last))
        return ArmChoice(name, reason, propensity, rewarded)

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
            refuse("request_id must be new", repr(request_id), "give another or none")
        number, propensity = self.arms.index(arm), float(row["propensity"])
        return self._arm_choice(log, number, propensity, why, *self._now(log), rewarded=rewarded)

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
        # of a request that has none yet; a component out of range stops here
        rewards([(raw, None)], self.setup.weights)
        if ms is None:
            ms = float(raw["latency_ratio"] or 0.0) * self.budget_ms
        spent = check_number("ms", ms)
        if spent is None or spent < 0.0:
            refuse("ms must be at least 0", ms, "correct it")
        self._catch_up()
        with self.log.writing() as log:
            choice = request_row(log, request_id, CHOICES, "choice")
            if log.row(REWARDS, columns=("seq",), request_id=request_id) is not None:
                rule = "a request must have one reward"
                refuse(rule, f"another of {request_id!r}", "change it by a thumb")
            now, last = self._begin(log)
            thumb = log.row(THUMBS, request_id=request_id)
            up = None if thumb is None else int(thumb["up"])
            value = float(rewards([(raw, up)], self.setup.weights)[0])
            row = {
                "request_id": request_id,
                "arm": choice["arm"],
                "age": rounds(log) - choice["round"],
                "components": raw,
                "thumb": up,
                "reward": value,
                "ms": spent,
                "measured": numbers,
            }
            self._add(log, REWARDS, row, now, last)
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
            refuse("up must be true or false", repr(up), "correct it")
        self._catch_up()
        with self.log.writing() as log:
            choice = log.row(CHOICES, request_id=request_id)
            if choice is None:
                rule = "request_id must be that of an arm that the bandit chose"
                refuse(rule, f"{request_id!r:.80}", 'open the system with arm="bandit"')
            now, last = self._begin(log)
            known = log.row(THUMBS, request_id=request_id)
            row = {
                "request_id": request_id,
                "age": rounds(log) - choice["round"],
                "before": None if known is None else known["up"],
                "up": int(up),
            }
            self._add(log, THUMBS, row, now, last)

    def state(self) -> State:
        """State after the last event."""
        with self.log.reading() as log:
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
        """The log, a row a choice of the setup's arms, as `off_policy.estimate` takes it.

        Rewards are scored by the weights of today.

        Returns: `seq`, `request_id`, `at`, `policy_id`, `question`, `arm`, `action` (place of the
          arm), `reward` (NaN where none has come: drop such rows for `off_policy.estimate`),
          `propensity`, `p_<arm>`, `mask` (a boolean an arm), `features`, `components` (None without
          a reward), `measured`, `ms`, `thumb`, `age`.
        """
        import pandas as pd

        arms = self.arms
        columns = ["seq", "request_id", "at", "policy_id", "question", "arm", "action", "reward"]
        columns += ["propensity", *(f"p_{arm}" for arm in arms), "mask", "features", "components"]
        columns += ["measured", "ms", "thumb", "age"]
        with self.log.reading() as log, as_written():
            outcomes = {row["request_id"]: row for row in log.rows(REWARDS)}
            thumbs = {row["request_id"]: row["up"] for row in log.rows(THUMBS)}
            # The log may be older than the setup: an arm that is gone has no columns here.
            choices = [row for row in log.rows(CHOICES) if row["arm"] in arms]
            rows = []
            for choice in choices:
                # By name: arms on offer then may be other arms than today's, in another order.
                share = dict(zip(choice["arms"], choice["propensities"], strict=True))
                offered = dict(zip(choice["arms"], choice["mask"], strict=True))
                row = dict.fromkeys(columns) | outcomes.get(choice["request_id"], {}) | choice
                row |= {f"p_{arm}": share.get(arm, 0.0) for arm in arms}
                row["mask"] = tuple(bool(offered.get(arm, False)) for arm in arms)
                row["action"] = arms.index(choice["arm"])
                row["thumb"] = thumbs.get(choice["request_id"])
                rows.append(row)
            scored = rewards(
                [(row["components"], row["thumb"]) for row in rows], self.setup.weights
            )
        numbers = dict.fromkeys(("reward", "ms", "thumb", "age"), np.float64)
        frame = pd.DataFrame(rows, columns=columns).assign(reward=scored)
        return frame.astype(numbers)

    def arms_frame(self) -> pd.DataFrame:
        """Metrics of each arm; NaN where there is nothing to say.

        Returns: `arm`, `pulls`, `rewards` (that have come), `wins` (above the bandit's threshold),
          `win_rate` (of the rewards), `mean_reward`, `mean_ms`, `p95_ms`.

        Source: rule S4.6.
        """
        import pandas as pd

        choices, rows = self.frame(), []
        for arm in self.arms:
            pulls = choices[choices["arm"] == arm]
            values, ms = pulls["reward"].dropna(), pulls["ms"].dropna()
            wins = is_success(values.to_numpy(), self.setup.bandit)
            rows.append(
                {
                    "arm": arm,
                    "pulls": len(pulls),
                    "rewards": len(values),
                    "wins": int(wins.sum()),
                    "win_rate": wins.mean() if len(values) else np.nan,
                    "mean_reward": values.mean(),
                    "mean_ms": ms.mean(),
                    "p95_ms": p95(ms.tolist()),
                }
            )
        return pd.DataFrame(rows)

    def close(self) -> None:
        """Close the log's files."""
        self.log.close()

    def _begin(self, log: Entries) -> tuple[OnlineState, int]:
        """State before an event is added, with the setup noted where it is new; see `_now`."""
        if log.row(SETUPS, columns=("seq",), digest=self._digest) is None:
            at = utc_text(self._clock())
            log.add(SETUPS, {"at": at, "digest": self._digest, "body": self.setup.body})
        return self._now(log)

    def _now(self, log: Entries) -> tuple[OnlineState, int]:
        """State after the last event, from the snapshot and what came since.

        And the number of that event.

        Raises:
          InputError: a snapshot that is none of the setup, or of no event in the log.
        """
        with as_written():
            now, last = initial_state(self.setup), log.last
            row = log.row(SNAPSHOTS, setup=self._digest)
            if row is None:
                return replay_events(now, events(log), self.setup), last
            sums = {name: np.array(values) for name, values in json.loads(row["sums"]).items()}
            before = OnlineState(bandits.loads(row["state"]).state, sums["n"], sums["total"])
            parts = zip((*before.state, *before[1:]), (*now.state, *now[1:]), strict=True)
            fits = all(part.shape == begun.shape for part, begun in parts)
            if not (fits and np.isfinite(before[1:]).all() and 0 <= row["seq"] <= last):
                rule = f"a snapshot must be a finite state of the setup up to event {last}"
                msg = f"{rule}, got event {row['seq']}; delete the row {self._digest}."
                raise InputError(msg)
            since = () if row["seq"] == last else events(log, row["seq"])
            return replay_events(before, since, self.setup), last

    def _catch_up(self) -> None:
        """Fold all earlier events outside the lock before turn one: long logs block no writer."""
        if self._ready:
            return
        with self.log.reading() as log:
            now, last = self._now(log)
        with self.log.writing() as log:
            row = log.row(SNAPSHOTS, setup=self._digest)
            if last > (0 if row is None else row["seq"]):
                self._keep(log, now, last)
        self._ready = True

    def _add(
        self, log: Entries, table: str, row: Mapping[str, Any], now: OnlineState, last: int
    ) -> None:
        """Add an event, and keep a snapshot of the state after it.

        `now` is the state after event `last`.
        """
        log.add(table, {"at": utc_text(self._clock()), **row})
        self._keep(log, replay_events(now, events(log, last), self.setup), log.last)

    def _keep(self, log: Entries, now: OnlineState, last: int) -> None:
        snapshot = pack_snapshot(now, self.setup)
        log.keep(SNAPSHOTS, {"setup": self._digest, "seq": last, **snapshot})
