"""Settings of clarifications and of the audit log, from environment variables and a `.env` file.

What a `.env` may say, with the values that hold where nothing is said:

    RAGLAB_CLARIFY_ENABLED=           # true: vague questions are asked about; empty: as the caller says, else not
    RAGLAB_CLARIFY_RULE=vote_share    # the source's arithmetic; or posterior, a Beta lower bound
    RAGLAB_CLARIFY_ASK_BELOW=0.6      # confidence of a default below which the user is always asked
    RAGLAB_CLARIFY_APPLY_ABOVE=0.85   # and above which it is applied silently
    RAGLAB_CLARIFY_EVERY=5            # between the two, every so many requests of a default are asked about
    RAGLAB_CLARIFY_LEVEL=0.8          # of the lower bound of rule posterior
    RAGLAB_CLARIFY_HALF_LIFE_DAYS=0   # in which a vote loses half its weight; 0 is never
    RAGLAB_CLARIFY_STRATIFY=true      # whether a default is split where failures gather on a condition
    RAGLAB_CLARIFY_QUESTION_COST=1    # of one question to the user,
    RAGLAB_CLARIFY_ERROR_COST=10      # and of one answer that is wrong in silence
    RAGLAB_CLARIFY_OPTIONS=false      # whether choices between the resolver's options become defaults too
    RAGLAB_CLARIFY_MIN_FIELD_CONFIDENCE=0.6  # below which a field that was read from a question is missing
    RAGLAB_AUDIT_ENABLED=true
    RAGLAB_AUDIT_LOG=                 # path, or URL such as postgresql+psycopg://ann:secret@db/rag; empty: the index's
    RAGLAB_AUDIT_QUERY=text           # what is kept of a question: text, hash or none; replies and answers are kept
    RAGLAB_AUDIT_KEEP_DAYS=0          # after which opening an index blanks texts; 0 is never
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from raglab.default_learner import Learner
from raglab.lab.audit_log import AuditLog, Redaction
from raglab.lab.settings import Share, Stated, Weight, prefixed
from raglab.store._errors import Where, input_error

LOG = "audit.sqlite"


class ClarifySettings(Stated):
    """What the environment says of clarifications; a variable is the field's name with RAGLAB_CLARIFY_ before it.

    enabled: None leaves it to the caller. question_cost, error_cost: in one unit. options: whether choices between
    the resolver's options are learned from too.
    """

    model_config = prefixed("RAGLAB_CLARIFY_")

    enabled: bool | None = None
    rule: Literal["vote_share", "posterior"] = "vote_share"
    ask_below: Share = 0.60
    apply_above: Share = 0.85
    every: Annotated[int, Field(ge=1, le=1_000_000)] = 5
    level: Annotated[float, Field(gt=0.0, lt=1.0, allow_inf_nan=False)] = 0.80
    half_life_days: Weight = 0.0
    stratify: bool = True
    question_cost: Weight = 1.0
    error_cost: Weight = 10.0
    options: bool = False
    min_field_confidence: Share = 0.60

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.ask_below > self.apply_above:
            msg = f"ASK_BELOW {self.ask_below:g} must be at most APPLY_ABOVE {self.apply_above:g}"
            raise ValueError(msg)
        return self

    @property
    def learner(self) -> Learner:
        """Settings of the learner."""
        named = {name: getattr(self, name) for name in Learner._fields if name in type(self).model_fields}
        return Learner(**named)


class AuditSettings(Stated):
    """What the environment says of the audit log; a variable is the field's name with RAGLAB_AUDIT_ before it.

    log: never shown, it may hold a password. query, keep_days: see `AuditLog`.
    """

    model_config = prefixed("RAGLAB_AUDIT_")

    enabled: bool = True
    log: SecretStr | None = None
    query: Redaction = "text"
    keep_days: Weight = 0.0

    def audit_log(self, folder: str | Path, learner: Learner | None = None, *, create: bool = True) -> AuditLog:
        """Audit log: the one that is named, else `audit.sqlite` in the folder.

        Args:
          learner: None takes that of the environment.

        Raises:
          InputError: the log's URL is none.
        """
        place: str | Path = Path(folder) / LOG if self.log is None else self.log.get_secret_value()
        chosen = ClarifySettings.read().learner if learner is None else learner
        return AuditLog(place, learner=chosen, query=self.query, keep_days=self.keep_days, create=create)


def opened(place: str | Path | None = None) -> AuditLog:
    """Audit log that is there, under the settings of the environment.

    Args:
      place: a log, a file or URL; or the folder of an index, whose log it is unless the environment names another;
        None is the one that the environment names.

    Raises:
      InputError: a wrong variable, or no place.
    """
    settings = AuditSettings.read()
    if place is None and settings.log is None:
        rule = "it must name the audit log where none is given"
        raise input_error(Where(AuditSettings.variable("log")), rule, "set it, or give the index or its log")
    if place is None or ("://" not in str(place) and Path(place).is_dir()):
        return settings.audit_log(place or "", create=False)
    learner = ClarifySettings.read().learner
    return AuditLog(place, learner=learner, query=settings.query, keep_days=settings.keep_days, create=False)
