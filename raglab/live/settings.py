"""Settings (shore): environment variables of bandit, clarification, answers and audit log.

What a `.env` may say, with the values that hold where nothing is said:

    RAGLAB_BANDIT_ENABLED=            # true: the bandit chooses, false: the source's router; empty:
                                      # as the policy says
    RAGLAB_BANDIT_POLICY=thompson_beta  # or another learner of raglab.bandit.LEARNERS
    RAGLAB_BANDIT_LOG=                # path, or URL such as postgresql://ann:secret@db/rag; empty:
                                      # the index's
    RAGLAB_BANDIT_SEED=0              # of the choices
    RAGLAB_BANDIT_BUDGET_MS=8000      # milliseconds that a question may take before its latency
                                      # costs
    RAGLAB_BANDIT_W1=0.4              # margin
    RAGLAB_BANDIT_W2=0.1              # diversity
    RAGLAB_BANDIT_W3=0.2              # latency
    RAGLAB_BANDIT_W4=0.1              # an answer from the cache
    RAGLAB_BANDIT_W5=0.2              # consistency
    RAGLAB_BANDIT_W_THUMBS=0          # thumbs up and down
    RAGLAB_BANDIT_W_BREVITY=0         # a short answer
    RAGLAB_BANDIT_W_LOGPROB=0         # the generator's own probability of its answer
    RAGLAB_BANDIT_LAMBDA=2            # what one whole budget of latency costs, in units of W3
    RAGLAB_BANDIT_THRESHOLD=0.5       # reward above which a pull is won
    RAGLAB_BANDIT_EXPLORATION=1       # weight of what is not known yet of an arm
    RAGLAB_BANDIT_EPSILON=0.1         # share of rounds in which epsilon_greedy chooses uniformly
    RAGLAB_BANDIT_PRIOR_STRENGTH=2    # pseudo-observations of an arm before any came; ridge of the
                                      # linear ones
    RAGLAB_BANDIT_FLOOR=0             # least probability of an available arm
    RAGLAB_BANDIT_PRIOR=              # JSON file of pseudo-counts by arm; of a linear policy its
                                      # first state

    RAGLAB_CLARIFY_ENABLED=           # true: vague questions are asked about; empty: as the caller
                                      # says, else not
    RAGLAB_CLARIFY_RULE=vote_share    # the source's arithmetic; or posterior, a Beta lower bound
    RAGLAB_CLARIFY_ASK_BELOW=0.6      # confidence of a default below which the user is always asked
    RAGLAB_CLARIFY_APPLY_ABOVE=0.85   # and above which it is applied silently
    RAGLAB_CLARIFY_EVERY=5            # between the two, every so many requests of a default are
                                      # asked about
    RAGLAB_CLARIFY_LEVEL=0.8          # of the lower bound of rule posterior
    RAGLAB_CLARIFY_HALF_LIFE_DAYS=0   # in which a vote loses half its weight; 0 is never
    RAGLAB_CLARIFY_STRATIFY=true      # whether a default is split where failures gather on a
                                      # condition
    RAGLAB_CLARIFY_SPLIT=source       # at the first failure that another value mends; or evidence,
                                      # beyond chance
    RAGLAB_CLARIFY_ALPHA=0.05         # of evidence: probability that a default of noise ever splits
    RAGLAB_CLARIFY_QUESTION_COST=1    # of one question to the user,
    RAGLAB_CLARIFY_ERROR_COST=10      # and of one answer that is wrong in silence
    RAGLAB_CLARIFY_OPTIONS=false      # whether choices between the resolver's options become
                                      # defaults too
    RAGLAB_CLARIFY_MIN_FIELD_CONFIDENCE=0.6  # below which a field that was read from a question is
                                             # missing
    RAGLAB_CLARIFY_MAX_DOCUMENTS=6    # documents between which a user is asked to choose at most
    RAGLAB_ANSWER_ON_ERROR=raise      # or refuse: a question whose language model fails gets a
                                      # refusal with `error`
    RAGLAB_AUDIT_ENABLED=true         # whether questions, decisions and what is learned are logged
    RAGLAB_AUDIT_REQUIRED=false       # whether a question that cannot be logged is refused, or
                                      # answered with a warning
    RAGLAB_AUDIT_LOG=                 # path, or URL such as postgresql://ann:secret@db/rag; empty:
                                      # the index's
    RAGLAB_AUDIT_QUERY=text           # what is kept of a question: text, hash or none; replies and
                                      # answers are kept
    RAGLAB_AUDIT_KEEP_DAYS=0          # after which opening an index blanks texts; 0 is never
    RAGLAB_AUDIT_SILENCE_HOURS=24     # after which an answer that nobody corrected was right (rule
                                      # S5.4)
    RAGLAB_AUDIT_NEAR_SAME=0.5        # share of common words from which a question rephrases the
                                      # one before
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from raglab.audit.log import AuditLog, Redaction
from raglab.audit.sessions import SilenceRule
from raglab.bandit import LEARNERS, Bandit, State, Stats, loads
from raglab.default_learner import DefaultLearner
from raglab.default_learner.confidence import APPLY_ABOVE, ASK_BELOW, EVERY, SplitRule
from raglab.live.clarifier import MIN_FIELD_CONFIDENCE
from raglab.live.online_bandit import Online, Setup, initial_state
from raglab.policy_parts.arms import LIVE_ARMS
from raglab.reward import BUDGET_MS, COMPONENT_TABLE, PUBLISHED, RewardWeights
from raglab.store.database import Database, masked_url
from raglab.store.files import Where, input_error, parse_json, read_text, shown_value
from raglab.store.log_rows import REMEDY
from raglab.store.log_tables import (
    AUDIT_LOG,
    BANDIT_LOG,
    CHOICE_TABLES,
    CHOICES,
    REQUEST_TABLES,
)

PREFIX = "RAGLAB_BANDIT_"
LEARNER = Bandit()  # whose settings hold where the environment says nothing
_ROUNDED = 1.0 + 1e-9  # what discounting may leave between sums that are equal
_MAX_BYTES = 2**20
_FORM = 'as in {"hybrid": {"n": 40, "total": 26, "square": 18}}'

Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class LogPlace(SecretStr):
    """Path or URL of a log; shown without its password."""

    def _display(self) -> str:
        return masked_url(self.get_secret_value())


class EnvironmentSettings(BaseSettings):
    """What the environment says.

    A variable is the field's name with the prefix of the settings before it.
    """

    model_config = SettingsConfigDict(
        env_file_encoding="utf-8-sig",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def read(cls, env_file: str | Path | None = ".env") -> Self:
        """Settings of the environment, which beats the file, which beats what is published.

        Args:
          env_file: None reads none; one that is not there says nothing.

        Raises:
          InputError: a wrong variable, or one that begins as ours do and is none, in the
            environment or the file; a line of the file that cannot be read. Names place, variable,
            its value unless it may be secret, the rule.
        """
        check_variables(env_file)
        try:
            return cls(_env_file=env_file)  # type: ignore[call-arg]
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            # Without a place the error is of several variables together.
            name = cls.variable(str(first["loc"][0]) if first["loc"] else "*")
            value = (
                shown_value(first["input"])
                if first["loc"] and name != cls.variable("log")
                else None
            )
            rule = (
                first["msg"].replace("Input should be", "it must be").removeprefix("Value error, ")
            )
            raise input_error(Where(name), rule, "correct or unset it", value) from None

    @classmethod
    def variable(cls, field: str) -> str:
        """Variable of a field."""
        prefix = str(cls.model_config["env_prefix"])
        return field if field.startswith(prefix) else prefix + field.rstrip("_").upper()


class LogSettings(EnvironmentSettings):
    """Settings with a log; file: of the log in the folder of an index, where no other is named."""

    file: ClassVar[str]
    log: LogPlace | None = None

    def log_in(self, folder: str | Path) -> str | Path:
        """Log of an index: the one that is named, else the file in its folder."""
        return Path(folder) / self.file if self.log is None else self.log.get_secret_value()


class BanditSettings(LogSettings):
    """What the environment says of the bandit.

    A variable is the field's name with RAGLAB_BANDIT_ before it.

    enabled: None leaves it to the policy. prior: see `load_prior`; of a linear learner
    `load_state`.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX)
    file = BANDIT_LOG

    enabled: bool | None = None
    policy: str = LEARNER.algorithm
    seed: Annotated[int, Field(ge=0, le=2**62)] = 0
    budget_ms: Positive = BUDGET_MS
    w1: Weight = float(PUBLISHED.margin)
    w2: Weight = float(PUBLISHED.diversity)
    w3: Weight = float(PUBLISHED.latency)
    w4: Weight = float(PUBLISHED.cache)
    w5: Weight = float(PUBLISHED.consistency)
    w_thumbs: Weight = float(PUBLISHED.thumbs)
    w_brevity: Weight = float(PUBLISHED.brevity)
    w_logprob: Weight = float(PUBLISHED.logprob)
    lambda_: Annotated[Weight, Field(alias=f"{PREFIX}LAMBDA")] = float(PUBLISHED.lambda_)
    threshold: Share = LEARNER.threshold
    exploration: Positive = LEARNER.exploration
    epsilon: Share = LEARNER.epsilon
    prior_strength: Positive = LEARNER.prior_strength
    floor: Share = LEARNER.floor
    prior: Path | None = None

    @property
    def weights(self) -> RewardWeights:
        """Weights of the reward."""
        named = {
            part.weight: getattr(self, part.variable.lower())
            for part in COMPONENT_TABLE.values()
            if part.variable
        }
        return RewardWeights(**named, lambda_=self.lambda_)

    def bandit(self, arms: Sequence[str]) -> Bandit:
        """Settings of the learner over some arms.

        Raises:
          InputError: an unknown policy, a floor or a prior that does not fit the arms.
        """
        if self.policy not in LEARNERS:
            rule = f"it must be one of {', '.join(LEARNERS)}"
            raise input_error(
                Where(self.variable("policy")),
                rule,
                "correct or unset it",
                shown_value(self.policy),
            )
        if self.floor * len(arms) > 1.0:
            rule = f"it must be at most 1 over the number of arms, {len(arms)}"
            raise input_error(Where(self.variable("floor")), rule, "lower it", f"{self.floor:g}")
        return Bandit(
            algorithm=self.policy,
            exploration=self.exploration,
            epsilon=self.epsilon,
            prior_strength=self.prior_strength,
            threshold=self.threshold,
            floor=self.floor,
            history=None
            if self.prior is None or LEARNERS[self.policy].linear
            else load_prior(self.prior, arms),
        )

    def online(
        self, folder: str | Path, arms: Sequence[str], *, patience_s: float | None = None
    ) -> Online:
        """Bandit over a log: the one that is named, else `bandit.sqlite` in the folder.

        Args:
          arms: that there are; those of rule S4.1 among them are chosen from.
          patience_s: see `Online`.

        Raises:
          InputError: see `bandit`; or the log's URL is none.
        """
        live = tuple(arm for arm in arms if arm in LIVE_ARMS)
        return self.online_at(self.log_in(folder), live, patience_s=patience_s)

    def online_at(
        self,
        log: str | Path,
        arms: tuple[str, ...],
        *,
        create: bool = True,
        patience_s: float | None = None,
    ) -> Online:
        """Bandit over the log at a path or URL.

        Raises:
          InputError: see `bandit`; the log's URL is none, or the prior of a linear learner is no
            state of it.
        """
        bandit = self.bandit(arms)
        return Online(
            bandit=bandit,
            weights=self.weights,
            budget_ms=self.budget_ms,
            log=log,
            arms=arms,
            seed=self.seed,
            initial=None
            if self.prior is None or not bandit.linear
            else load_state(self.prior, bandit, arms),
            create=create,
            patience_s=patience_s,
        )


def open_online(place: str | Path) -> Online:
    """Bandit over an existing log, with the arms last on offer and the environment's settings.

    Args:
      place: a log, a file or URL; or the folder of an index, whose log it is unless the environment
        names another.

    Raises:
      InputError: no log there, or none with a choice.
    """
    settings = BanditSettings.read()
    log = settings.log_in(place) if _is_folder(place) else place
    database = Database(log, CHOICE_TABLES, beside=REQUEST_TABLES, create=False)
    with database.reading() as entries:
        last = entries.row(CHOICES)
    database.close()
    if last is None:
        raise input_error(
            Where(database.shown),
            "a log must hold choices of a bandit",
            "ask with the arm bandit first",
        )
    arms = last["arms"]
    if not (isinstance(arms, list) and all(isinstance(arm, str) for arm in arms)):
        rule = "choices of a bandit must name their arms in a list"
        raise input_error(Where(database.shown), rule, REMEDY, shown_value(arms))
    return settings.online_at(log, tuple(arms), create=False)


def _is_folder(place: str | Path) -> bool:
    """Whether a place is the folder of an index, and no log."""
    return "://" not in str(place) and Path(place).is_dir()


def load_prior(path: str | Path, arms: Sequence[str]) -> Stats:
    """Pseudo-counts of a file for some arms, each [A].

    An arm that the file does not name starts without any.

    The file is JSON: `{"hybrid": {"n": 40, "total": 26, "square": 18}, …}`, what
    `bandit.warm_start` gives, by arm.

    Raises:
      InputError: the file cannot be read, or is of another form.
    """
    where = Where(str(path))
    rows = parse_json(read_text(Path(path), _MAX_BYTES), where)
    rule = (
        "a prior must name for each arm n, total and square, at least 0, with square <= total <= n"
    )
    if not isinstance(rows, dict):
        raise input_error(where, rule, _FORM, shown_value(rows))
    for arm, row in rows.items():
        if arm not in {*LIVE_ARMS, *arms}:
            raise input_error(
                where,
                f"a prior must name arms of {', '.join(LIVE_ARMS)}",
                "correct the name",
                shown_value(arm),
            )
        if (
            not isinstance(row, dict)
            or set(row) != set(Stats._fields)
            or not all(map(_is_count, row.values()))
        ):
            raise input_error(Where(str(path), None, arm), rule, _FORM, shown_value(row))
        if row["square"] > row["total"] * _ROUNDED or row["total"] > row["n"] * _ROUNDED:
            numbers = ", ".join(f"{name} {row[name]:g}" for name in Stats._fields)
            raise input_error(Where(str(path), None, arm), rule, "rewards are in [0, 1]", numbers)
    none = dict.fromkeys(Stats._fields, 0.0)
    return Stats(
        *(np.array([float(rows.get(arm, none)[name]) for arm in arms]) for name in Stats._fields)
    )


def load_state(path: str | Path, bandit: Bandit, arms: Sequence[str]) -> State:
    """First state of a linear learner.

    A file that `bandit.dumps` wrote of what `online_bandit.logged_state` made.

    Raises:
      InputError: the file cannot be read, or is the state of another learner, other arms or
        features.
    """
    where = Where(str(path))
    text = read_text(Path(path), _MAX_BYTES).strip()
    try:
        saved = loads(text)
        initial_state(Setup(tuple(arms), bandit, PUBLISHED, initial=saved.state))
    except ValueError as error:
        rule = "the prior of a linear learner must be a state of it, as bandit.dumps writes it"
        raise input_error(
            where, rule, "make it with logged_state", shown_value(str(error)[:200])
        ) from None
    if saved.bandit.prior_mean != bandit.prior_mean:
        rule = f"the prior must have the learner's prior_mean, {bandit.prior_mean:g}"
        raise input_error(
            where, rule, "make it with the same settings", f"{saved.bandit.prior_mean:g}"
        )
    return saved.state


def _is_count(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0.0 <= value < float("inf")
    )


class AnswerSettings(EnvironmentSettings):
    """What the environment says of answers.

    A variable is the field's name with RAGLAB_ANSWER_ before it.

    on_error: see `raglab.live.system.System.open`.
    """

    model_config = SettingsConfigDict(env_prefix="RAGLAB_ANSWER_")

    on_error: Literal["raise", "refuse"] = "raise"


class ClarifySettings(EnvironmentSettings):
    """What the environment says of clarifications.

    A variable is the field's name with RAGLAB_CLARIFY_ before it.

    enabled: None leaves it to the caller. question_cost, error_cost: in one unit. options: whether
    choices between the resolver's options are learned from too. max_documents: between which a user
    is asked to choose at most.
    """

    model_config = SettingsConfigDict(env_prefix="RAGLAB_CLARIFY_")

    enabled: bool | None = None
    rule: Literal["vote_share", "posterior"] = "vote_share"
    ask_below: Share = ASK_BELOW
    apply_above: Share = APPLY_ABOVE
    every: Annotated[int, Field(ge=1, le=1_000_000)] = EVERY
    level: Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)] = DefaultLearner().level
    half_life_days: Weight = DefaultLearner().half_life_days
    stratify: bool = DefaultLearner().stratify
    split: SplitRule = DefaultLearner().split
    alpha: Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)] = DefaultLearner().alpha
    question_cost: Weight = 1.0
    error_cost: Weight = 10.0
    options: bool = False
    min_field_confidence: Share = MIN_FIELD_CONFIDENCE
    max_documents: Annotated[int, Field(ge=2, le=1_000)] = 6

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.ask_below > self.apply_above:
            msg = f"ASK_BELOW {self.ask_below:g} must be at most APPLY_ABOVE {self.apply_above:g}"
            raise ValueError(msg)
        return self

    @property
    def learner(self) -> DefaultLearner:
        """Settings of the learner."""
        named = {
            name: getattr(self, name)
            for name in DefaultLearner._fields
            if name in type(self).model_fields
        }
        return DefaultLearner(**named)


class AuditSettings(LogSettings):
    """What the environment says of the audit log.

    A variable is the field's name with RAGLAB_AUDIT_ before it.

    required: whether a question that cannot be logged is refused. query, keep_days: see `AuditLog`.
    silence_hours, near_same: see `SilenceRule`.
    """

    model_config = SettingsConfigDict(env_prefix="RAGLAB_AUDIT_")
    file = AUDIT_LOG

    enabled: bool = True
    required: bool = False
    query: Redaction = "text"
    keep_days: Weight = 0.0
    silence_hours: Positive = SilenceRule().hours
    near_same: Share = SilenceRule().near_same

    def audit_log(
        self,
        folder: str | Path,
        learner: DefaultLearner | None = None,
        *,
        patience_s: float | None = None,
    ) -> AuditLog:
        """Audit log of an index: the one that is named, else `audit.sqlite` in the folder.

        See `log_at`.
        """
        return self.log_at(self.log_in(folder), learner, patience_s=patience_s)

    def log_at(
        self,
        log: str | Path,
        learner: DefaultLearner | None = None,
        *,
        create: bool = True,
        patience_s: float | None = None,
    ) -> AuditLog:
        """Audit log at a path or URL.

        Args:
          learner: None takes that of the environment.
          patience_s: see `AuditLog`.

        Raises:
          InputError: the log's URL is none.
        """
        return AuditLog(
            log,
            learner=ClarifySettings.read().learner if learner is None else learner,
            query=self.query,
            keep_days=self.keep_days,
            silence=SilenceRule(self.silence_hours, self.near_same),
            create=create,
            patience_s=patience_s,
        )


def open_audit(place: str | Path | None = None) -> AuditLog:
    """Audit log that is there, under the settings of the environment.

    Args:
      place: a log, a file or URL; or the folder of an index, whose log it is unless the environment
        names another; None is the one that the environment names.

    Raises:
      InputError: a wrong variable, or no place.
    """
    settings = AuditSettings.read()
    if place is None and settings.log is None:
        rule = "it must name the audit log where none is given"
        raise input_error(
            Where(AuditSettings.variable("log")), rule, "set it, or give the index or its log"
        )
    log = settings.log_in(place or "") if place is None or _is_folder(place) else place
    return settings.log_at(log, create=False)


# Variables of raglab that only the environment of the process sets, and who reads them.
PROCESS_VARIABLES = {
    "RAGLAB_CACHE": "folder of the embeddings of every index, `raglab.retrieval.dense`",
    "RAGLAB_DOWNLOAD": "whether models may be fetched from the hub, `raglab.models.files`",
    "RAGLAB_ARTIFACTS": (
        "more places where a tracking store may write, `raglab.lab.artifact_places`"
    ),
    "RAGLAB_PROGRESS": "whether long loops are counted on the screen, `raglab.progress`",
    "RAGLAB_DEBUG": "the stack of what ends a command, `raglab.cli.door`",
}
_OURS = "RAGLAB_"
_LINE_OF_OURS = re.compile(r"^\s*(?:export\s+)?raglab_", re.IGNORECASE)


def known_variables() -> frozenset[str]:
    """Every variable that raglab reads and that begins as its own do."""
    kinds = (BanditSettings, ClarifySettings, AnswerSettings, AuditSettings)
    return (
        frozenset(kind.variable(name) for kind in kinds for name in kind.model_fields)
        | PROCESS_VARIABLES.keys()
    )


def check_variables(env_file: str | Path | None = ".env") -> None:
    """Refuse what pydantic-settings would skip or silently choose from in environment or file.

    Args:
      env_file: None reads none; one that is not there says nothing.

    Raises:
      InputError: a variable that begins as ours do and is none, one stated twice, a line that
        cannot be read.
    """
    if env_file is not None and Path(env_file).exists():
        _check_file(Path(env_file))
    names = [name for name in os.environ if _begins_like_ours(name)]
    for name in names:
        _check_name(name, Where("the environment"))
    for name, times in Counter(map(str.upper, names)).items():
        if times > 1:
            rule = f"{name} must be stated once, in capitals or not"
            raise input_error(Where("the environment"), rule, "unset all but one", f"{times} times")


def _check_file(path: Path) -> None:
    """Refuse a line of a file that cannot be read, or that states a variable of ours wrongly."""
    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    text = read_text(path, _MAX_BYTES, blank=True)
    lines = []
    # By dotenv's parser: `dotenv_values`, which pydantic-settings reads, passes over a broken line
    # in silence.
    for line in parse_stream(StringIO(text)):
        where = Where(str(path), line.original.line + _blank_lines(line.original.string))
        if line.error or (line.key is not None and line.value is None):
            rule = "a line must be NAME=value, quotes closed"
            raise input_error(where, rule, "correct or remove it", "another")
        if line.key is not None:
            lines.append((where, line.key, line))
    values = dotenv_values(stream=StringIO(text))
    names: set[str] = set()
    for where, key, line in lines:
        # Of every line, also of other programs: an open quote swallows the lines after it, with
        # variables of ours.
        if any(map(_LINE_OF_OURS.match, line.original.string.strip().splitlines()[1:])):
            rule = "a quote must end before the next variable of raglab"
            raise input_error(where, rule, "close it", f"an open one after {key}")
        if not _begins_like_ours(key):
            continue
        name = key.upper()
        _check_name(key, where)
        # From here on the name is known; what is wrong with its line would be passed over in
        # silence.
        if name in PROCESS_VARIABLES:
            raise input_error(
                where, f"{name} must be set in the environment", "export it, no file is read for it"
            )
        if name in names:
            raise input_error(
                where, f"{name} must be stated once", "remove all lines of it but one", "it again"
            )
        # A value such as ${SECRET} is empty where SECRET is not set, and an empty one is read as
        # none.
        if line.value and not values[key]:
            raise input_error(
                where,
                f"{name} must stand for something",
                "set the variable that it names",
                "nothing",
            )
        names.add(name)


def _blank_lines(text: str) -> int:
    """Lines before the first that says something: they are read together with it."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _begins_like_ours(name: str) -> bool:
    """Whether a variable has our prefix, in capitals or not, or is nearly one that we know."""
    plain = re.sub(r"[^A-Z0-9]", "", name.upper())
    if name.upper().startswith(_OURS) or not plain.startswith("RAGLAB"):
        return name.upper().startswith(_OURS)
    return bool(
        get_close_matches(
            plain, [variable.replace("_", "") for variable in known_variables()], 1, 0.85
        )
    )


_NAME = 80  # characters of a wrong name that a message shows


def _check_name(name: str, where: Where) -> None:
    """Refuse a variable that begins as ours do and is none of them."""
    known = known_variables()
    if name.upper() in known:
        return
    plain = {variable.replace("_", ""): variable for variable in known}
    near = get_close_matches(re.sub(r"[^A-Z0-9]", "", name.upper()), plain, 3, 0.6)
    rule = f"a variable that begins with {_OURS} must be one of raglab's"
    remedy = (
        f"did you mean {' or '.join(plain[variable] for variable in near)}"
        if near
        else f"they are {', '.join(sorted(known))}"
    )
    raise input_error(where, rule, remedy, name if len(name) <= _NAME else f"{name[:_NAME]}...")
