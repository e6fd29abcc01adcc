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

What only the environment of the process sets, and who reads it:

    RAGLAB_CACHE: folder of the embeddings of every index, `raglab.retrieval.dense`
    RAGLAB_DOWNLOAD: whether models may be fetched from the hub, `raglab.models.files`
    RAGLAB_ARTIFACTS: more places where a tracking store may write, `raglab.lab.artifact_places`
    RAGLAB_PROGRESS: whether long loops are counted on the screen, `raglab.progress`
    RAGLAB_DEBUG: the stack of what ends a command, `raglab.cli.door`
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from raglab.audit.log import AuditLog, Redaction
from raglab.audit.sessions import SilenceRule
from raglab.bandit import LEARNERS, Bandit, State, Stats, loads
from raglab.default_learner import DefaultLearner
from raglab.default_learner.votes import Rule, SplitRule
from raglab.live.clarifier import MIN_FIELD_CONFIDENCE
from raglab.live.online_bandit import Online, Setup, initial_state
from raglab.policy_parts.arms import LIVE_ARMS
from raglab.reward import (
    COMPONENT_BY_NAME,
    PUBLISHED_REWARD_WEIGHTS,
    REWARD_BUDGET_MS,
    RewardWeights,
)
from raglab.store.database import Database, masked_url
from raglab.store.files import Where, input_error, parse_json, read_text, shown_value
from raglab.store.log_rows import as_written
from raglab.store.log_tables import (
    AUDIT_LOG,
    BANDIT_LOG,
    CHOICE_TABLES,
    CHOICES,
    REQUEST_TABLES,
)

VARIABLE_PREFIX = "RAGLAB_"
# Of the process alone; see the module's first lines.
PROCESS_VARIABLES = (
    "RAGLAB_CACHE",
    "RAGLAB_DOWNLOAD",
    "RAGLAB_ARTIFACTS",
    "RAGLAB_PROGRESS",
    "RAGLAB_DEBUG",
)
_SETTING_LINE = re.compile(r"^\s*(?:export\s+)?raglab_", re.IGNORECASE)
LOG_FILES = {"bandit": BANDIT_LOG, "audit": AUDIT_LOG}  # in the folder of an index
# Settings that hold where the environment says nothing.
_BANDIT, _LEARNER, _SILENCE = Bandit(), DefaultLearner(), SilenceRule()
_SUM_TOLERANCE = 1.0 + 1e-9  # what discounting may leave between sums that are equal
_MAX_SETTINGS_BYTES = 2**20


def _check_learner(algorithm: str) -> str:
    if algorithm not in LEARNERS:
        message = f"it must be one of {', '.join(LEARNERS)}"
        raise ValueError(message)
    return algorithm


Weight = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Inside = Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)]


class LogPlace(SecretStr):
    """Path or URL of a log; shown without its password."""

    def _display(self) -> str:
        return masked_url(self.get_secret_value())


class Settings(BaseSettings):
    """What the environment says of bandit, clarification, answers and audit log.

    A variable is the field's name in capitals with RAGLAB_ before it; the module's first lines say
    what each means. None leaves the choice to policy, caller or the index's folder.
    """

    model_config = SettingsConfigDict(
        env_prefix=VARIABLE_PREFIX,
        env_file_encoding="utf-8-sig",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    bandit_enabled: bool | None = None
    bandit_policy: Annotated[str, AfterValidator(_check_learner)] = _BANDIT.algorithm
    bandit_log: LogPlace | None = None
    bandit_seed: Annotated[int, Field(ge=0, le=2**62)] = 0
    bandit_budget_ms: Positive = REWARD_BUDGET_MS
    bandit_w1: Weight = float(PUBLISHED_REWARD_WEIGHTS.margin)
    bandit_w2: Weight = float(PUBLISHED_REWARD_WEIGHTS.diversity)
    bandit_w3: Weight = float(PUBLISHED_REWARD_WEIGHTS.latency)
    bandit_w4: Weight = float(PUBLISHED_REWARD_WEIGHTS.cache)
    bandit_w5: Weight = float(PUBLISHED_REWARD_WEIGHTS.consistency)
    bandit_w_thumbs: Weight = float(PUBLISHED_REWARD_WEIGHTS.thumbs)
    bandit_w_brevity: Weight = float(PUBLISHED_REWARD_WEIGHTS.brevity)
    bandit_w_logprob: Weight = float(PUBLISHED_REWARD_WEIGHTS.logprob)
    bandit_lambda: Weight = float(PUBLISHED_REWARD_WEIGHTS.lambda_)
    bandit_threshold: Share = _BANDIT.threshold
    bandit_exploration: Positive = _BANDIT.exploration
    bandit_epsilon: Share = _BANDIT.epsilon
    bandit_prior_strength: Positive = _BANDIT.prior_strength
    bandit_floor: Share = _BANDIT.floor
    bandit_prior: Path | None = None

    clarify_enabled: bool | None = None
    clarify_rule: Rule = _LEARNER.rule
    clarify_ask_below: Share = _LEARNER.ask_below
    clarify_apply_above: Share = _LEARNER.apply_above
    clarify_every: Annotated[int, Field(ge=1, le=1_000_000)] = _LEARNER.every
    clarify_level: Inside = _LEARNER.level
    clarify_half_life_days: Weight = _LEARNER.half_life_days
    clarify_stratify: bool = _LEARNER.stratify
    clarify_split: SplitRule = _LEARNER.split
    clarify_alpha: Inside = _LEARNER.alpha
    clarify_question_cost: Weight = 1.0
    clarify_error_cost: Weight = 10.0
    clarify_options: bool = False
    clarify_min_field_confidence: Share = MIN_FIELD_CONFIDENCE
    clarify_max_documents: Annotated[int, Field(ge=2, le=1_000)] = 6

    answer_on_error: Literal["raise", "refuse"] = "raise"

    audit_enabled: bool = True
    audit_required: bool = False
    audit_log: LogPlace | None = None
    audit_query: Redaction = "text"
    audit_keep_days: Annotated[float, Field(ge=0.0, le=36_500.0)] = 0.0
    audit_silence_hours: Annotated[float, Field(gt=0.0, le=876_000.0)] = _SILENCE.hours
    audit_near_same: Share = _SILENCE.near_same

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        ask_below, apply_above = self.clarify_ask_below, self.clarify_apply_above
        if ask_below > apply_above:
            message = f"ASK_BELOW {ask_below:g} must be at most APPLY_ABOVE {apply_above:g}"
            raise ValueError(message)
        return self

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
            first_error = error.errors(include_url=False)[0]
            # Without a place the error is of two variables together.
            variable_name = variable(
                str(first_error["loc"][0]) if first_error["loc"] else "clarify_*"
            )
            shown_input = (
                None if variable_name.endswith(("*", "_LOG")) else shown_value(first_error["input"])
            )
            requirement = first_error["msg"].replace("Input should be", "it must be")
            requirement = requirement.removeprefix("Value error, ")
            raise input_error(
                Where(variable_name), requirement, "correct or unset it", shown_input
            ) from None

    @property
    def weights(self) -> RewardWeights:
        """Weights of the reward."""
        weight_values = {
            component.weight: getattr(self, f"bandit_{component.variable.lower()}")
            for component in COMPONENT_BY_NAME.values()
            if component.variable
        }
        return RewardWeights(**weight_values, lambda_=self.bandit_lambda)

    def _stated(self, prefix: str, setting_names: Iterable[str]) -> dict[str, Any]:
        """Values of the fields with a prefix, by the names of a tuple of settings."""
        model_fields = type(self).model_fields
        return {
            setting_name: getattr(self, prefix + setting_name)
            for setting_name in setting_names
            if prefix + setting_name in model_fields
        }

    @property
    def learner(self) -> DefaultLearner:
        """Settings of the learner of defaults."""
        return DefaultLearner(**self._stated("clarify_", DefaultLearner._fields))

    def log_of(self, kind: Literal["bandit", "audit"], place: str | Path) -> str | Path:
        """Log of a place: itself, or of an index's folder the one that the environment names.

        Args:
          kind: of the log.
          place: a log, a file or URL; or the folder of an index, which holds the log that no
            variable names.
        """
        if "://" in str(place) or not Path(place).is_dir():
            return place
        stated_log: LogPlace | None = getattr(self, f"{kind}_log")
        return (
            Path(place) / LOG_FILES[kind] if stated_log is None else stated_log.get_secret_value()
        )

    def bandit(self, arms: Sequence[str]) -> Bandit:
        """Settings of the bandit over some arms.

        Raises:
          InputError: a floor or a prior that does not fit the arms.
        """
        if self.bandit_floor * len(arms) > 1.0:
            requirement = f"it must be at most 1 over the {len(arms)} arms"
            raise input_error(
                Where(variable("bandit_floor")), requirement, "lower it", f"{self.bandit_floor:g}"
            )
        bandit_settings = self._stated("bandit_", Bandit.__dataclass_fields__)
        configured_bandit = Bandit(algorithm=self.bandit_policy, **bandit_settings)
        if self.bandit_prior is None or configured_bandit.linear:
            return configured_bandit
        return configured_bandit._replace(history=load_prior(self.bandit_prior, arms))

    def online(
        self,
        log: str | Path,
        arms: Sequence[str],
        **how: Any,  # noqa: ANN401 - of Online
    ) -> Online:
        """Bandit over the log at a path or URL.

        Args:
          log: of the bandit, see `log_of`.
          arms: names, in the order of the state.
          **how: `create` and `patience_s` of `Online`.

        Raises:
          InputError: see `bandit`; the log's URL is none, or the prior of a linear learner is no
            state of it.
        """
        configured_bandit, prior_path = self.bandit(arms), self.bandit_prior
        return Online(
            bandit=configured_bandit,
            weights=self.weights,
            budget_ms=self.bandit_budget_ms,
            log=log,
            arms=arms,
            seed=self.bandit_seed,
            initial=load_state(prior_path, configured_bandit, arms)
            if prior_path and configured_bandit.linear
            else None,
            **how,
        )

    def audit(
        self,
        log: str | Path,
        **how: Any,  # noqa: ANN401 - of AuditLog
    ) -> AuditLog:
        """Audit log at a path or URL.

        Args:
          log: of the audit, see `log_of`.
          **how: `create` and `patience_s` of `AuditLog`.

        Raises:
          InputError: the log's URL is none.
        """
        return AuditLog(
            log,
            learner=self.learner,
            query=self.audit_query,
            keep_days=self.audit_keep_days,
            silence=SilenceRule(self.audit_silence_hours, self.audit_near_same),
            **how,
        )


def variable(field: str) -> str:
    """Variable of a field of `Settings`."""
    return VARIABLE_PREFIX + field.upper()


def open_online(place: str | Path) -> Online:
    """Bandit over an existing log, with the arms last on offer and the environment's settings.

    Args:
      place: a log, a file or URL; or the folder of an index, whose log it is unless the environment
        names another.

    Raises:
      InputError: no log there, or none with a choice.
    """
    settings = Settings.read()
    log_place = settings.log_of("bandit", place)
    log_database = Database(log_place, CHOICE_TABLES, beside=REQUEST_TABLES, create=False)
    with log_database.reading() as log_entries:
        last_choice = log_entries.row(CHOICES)
    log_database.close()
    if last_choice is None:
        requirement, remedy = "a log must hold choices of a bandit", "ask by arm bandit"
        raise input_error(Where(log_database.shown), requirement, remedy)
    with as_written():
        arm_names = TypeAdapter(list[str]).validate_python(last_choice["arms"])
    return settings.online(log_place, arm_names, create=False)


def open_audit(place: str | Path | None = None) -> AuditLog:
    """Audit log that is there, under the settings of the environment.

    Args:
      place: a log, a file or URL; or the folder of an index, whose log it is unless the environment
        names another; None is the one that the environment names.

    Raises:
      InputError: a wrong variable, or no place.
    """
    settings = Settings.read()
    if place is None and settings.audit_log is None:
        requirement, remedy = "it must name the audit log", "set it, or give a log"
        raise input_error(Where(variable("audit_log")), requirement, remedy)
    return settings.audit(settings.log_of("audit", place or "."), create=False)


class ArmCounts(BaseModel):
    """Pseudo-counts of an arm in the file of a prior; see `Stats`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    n: Weight
    total: Weight
    square: Weight

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        # rewards are in [0, 1]
        if self.square > self.total * _SUM_TOLERANCE or self.total > self.n * _SUM_TOLERANCE:
            raise ValueError
        return self


def load_prior(path: str | Path, arms: Sequence[str]) -> Stats:
    """Pseudo-counts of a file for some arms, each [A].

    An arm that the file does not name starts without any.

    The file is JSON: `{"hybrid": {"n": 40, "total": 26, "square": 18}, …}`, what
    `bandit.warm_start` gives, by arm.

    Raises:
      InputError: the file cannot be read, or is of another form.
    """
    file_place = Where(str(path))
    prior_json = parse_json(read_text(Path(path), _MAX_SETTINGS_BYTES), file_place)
    try:
        arm_counts = TypeAdapter(dict[str, ArmCounts]).validate_python(prior_json)
    except ValidationError as error:
        first_error = error.errors()[0]
        file_place = file_place._replace(id=".".join(map(str, first_error["loc"])) or None)
        requirement = "a prior must name for each arm n >= total >= square >= 0"
        remedy = 'as in {"hybrid":{"n":40,"total":26,"square":18}}'
        raise input_error(
            file_place, requirement, remedy, shown_value(first_error["input"])
        ) from None
    for arm_name in arm_counts.keys() - {*LIVE_ARMS, *arms}:
        requirement = f"a prior must name arms of {', '.join(LIVE_ARMS)}"
        raise input_error(file_place, requirement, "correct the name", shown_value(arm_name))
    no_counts = ArmCounts(n=0.0, total=0.0, square=0.0)
    return Stats(
        *(
            np.array(
                [getattr(arm_counts.get(arm_name, no_counts), field_name) for arm_name in arms]
            )
            for field_name in Stats._fields
        )
    )


def load_state(path: str | Path, bandit: Bandit, arms: Sequence[str]) -> State:
    """First state of a linear learner.

    A file that `bandit.dumps` wrote of what `online_bandit.logged_state` made.

    Raises:
      InputError: the file cannot be read, or is the state of another learner, other arms, features
        or prior_mean.
    """
    file_path, requirement = Path(path), "the prior must be a state of the learner"
    remedy = "make it with logged_state"
    state_text = read_text(file_path, _MAX_SETTINGS_BYTES).strip()
    try:
        saved_state = loads(state_text)
        initial_state(
            Setup(tuple(arms), bandit, PUBLISHED_REWARD_WEIGHTS, initial=saved_state.state)
        )
    except ValueError as error:
        raise input_error(file_path, requirement, remedy, shown_value(str(error))) from None
    if saved_state.bandit.prior_mean != bandit.prior_mean:
        prior_means = f"prior_mean {saved_state.bandit.prior_mean:g}, not {bandit.prior_mean:g}"
        raise input_error(file_path, requirement, remedy, prior_means)
    return saved_state.state


Statement: TypeAlias = tuple[Where, str]  # the place that states a variable, and its name


def known_variables() -> frozenset[str]:
    """Every variable that raglab reads and that begins as its own do."""
    return frozenset({*map(variable, Settings.model_fields), *PROCESS_VARIABLES})


def check_variables(env_file: str | Path | None = ".env") -> None:
    """Refuse what pydantic-settings would skip or silently choose from in environment or file.

    Args:
      env_file: None reads none; one that is not there says nothing.

    Raises:
      InputError: a variable that begins as ours do and is none, one stated twice, a line that
        cannot be read.
    """
    if env_file is not None and Path(env_file).exists():
        _check_names(_file_statements(Path(env_file)))
    _check_names((Where("the environment"), variable_name) for variable_name in os.environ)


def _check_names(statements: Iterable[Statement]) -> None:
    """Refuse a name that begins as ours do and is none, and one that is stated twice."""
    plain_variables = {
        capital_name.replace("_", ""): capital_name for capital_name in known_variables()
    }
    stated_names: set[str] = set()
    for statement_place, stated_name in statements:
        capital_name, plain_name = (
            stated_name.upper(),
            re.sub(r"[^A-Z0-9]", "", stated_name.upper()),
        )
        is_ours = capital_name.startswith(VARIABLE_PREFIX)
        if plain_name.startswith("RAGLAB") and not is_ours:  # nearly one that we know
            is_ours = bool(get_close_matches(plain_name, plain_variables, 1, 0.85))
        if not is_ours:
            continue
        if capital_name not in plain_variables.values():
            close_names = [
                plain_variables[close_name]
                for close_name in get_close_matches(plain_name, plain_variables, 3, 0.6)
            ]
            requirement = f"a variable that begins with {VARIABLE_PREFIX} must be one of raglab's"
            all_names = f"they are {', '.join(sorted(plain_variables.values()))}"
            remedy = f"did you mean {' or '.join(close_names)}" if close_names else all_names
            raise input_error(statement_place, requirement, remedy, f"{stated_name:.80}")
        if capital_name in stated_names:
            raise input_error(
                statement_place, f"{capital_name} must be stated once", "remove all but one", "two"
            )
        stated_names.add(capital_name)


def _file_statements(file_path: Path) -> Iterator[Statement]:
    """Variables that a file states; refuses a line that would be passed over in silence."""
    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    file_text = read_text(file_path, _MAX_SETTINGS_BYTES, allow_blank=True)
    file_values = dotenv_values(stream=StringIO(file_text))
    # By dotenv's parser: `dotenv_values`, which pydantic-settings reads, passes over a broken line.
    for statement in parse_stream(StringIO(file_text)):
        statement_text, statement_key = statement.original.string, statement.key
        # blank lines before a line are read together with it
        n_blank_lines = statement_text[: len(statement_text) - len(statement_text.lstrip())].count(
            "\n"
        )
        statement_place = Where(str(file_path), statement.original.line + n_blank_lines)
        variable_name = (statement_key or "").upper()
        line_faults = (
            (
                statement.error or (statement_key is not None and statement.value is None),
                "a line must be NAME=value, quotes closed",
                "correct or remove it",
                "another",
            ),
            # Of every line, also of other programs: an open quote swallows the lines after it.
            (
                any(map(_SETTING_LINE.match, statement_text.strip().splitlines()[1:])),
                "a quote must end before the next variable",
                "close it",
                f"an open one after {statement_key}",
            ),
            (
                variable_name in PROCESS_VARIABLES,
                f"{variable_name} must be set in the environment",
                "export it",
                None,
            ),
            # ${SECRET} is empty where SECRET is not set, and an empty value is read as none.
            (
                variable_name.startswith(VARIABLE_PREFIX)
                and bool(statement.value)
                and not file_values[statement_key or ""],
                f"{variable_name} must stand for something",
                "set the variable that it names",
                "nothing",
            ),
        )
        for is_wrong, requirement, remedy, actual_text in line_faults:
            if is_wrong:
                raise input_error(statement_place, requirement, remedy, actual_text)
        if statement_key is not None:
            yield statement_place, statement_key
