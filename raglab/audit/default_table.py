"""The default table of an audit log (shore): its values, and its keeper's protocol (S5.3, S5.8).

The tables of events are the log's own (`raglab.store.log_tables`); rows are a fold over them, which
a room registers at the point `audit_table.defaults`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

from raglab.audit.request_events import RequestEvents
from raglab.audit.sessions import SilenceRule
from raglab.default_learner import ClarificationDefault, ClarificationRequest, DefaultLearner
from raglab.extension_points import extension
from raglab.store.log_rows import Entries
from raglab.words.canonical import decimals

TABLE_ROOM = "clarification"


class RowKey(NamedTuple):
    """What tells a row of the default table from the others."""

    target_field: str
    doctype: str
    sub_conditions: Mapping[str, str]


Key: TypeAlias = tuple[str, str, Mapping[str, str]]  # a RowKey, or its parts in order, at the doors


class DefaultUse(NamedTuple):
    """A row of the default table whose value fills in a request.

    gate: its verdict. conditions: of the documents, such as silence can confirm the value under.
    """

    row: ClarificationDefault
    value: str
    gate: str
    kind: str
    conditions: Mapping[str, str]


class Pending(NamedTuple):
    """A request that a user was asked about.

    key: of the row of the default table. conditions: of its documents. tried: values that failed
    before the user was asked.
    """

    clarification: ClarificationRequest
    kind: str
    key: RowKey
    conditions: Mapping[str, str]
    tried: tuple[str, ...]


class Application(NamedTuple):
    """A default that was applied silently, with the key of its row."""

    value: str
    kind: str
    key: RowKey
    conditions: Mapping[str, str]


class ReplayedDefault(NamedTuple):
    """A row of the default table as it was when it was used.

    used: asked or applied. value: that was applied, or proposed. confidence, votes, gate: rebuilt
    from the changes before. requests: that had come to the row by then, this one among them; asks:
    whether gate and schedule ask.
    """

    used: str
    kind: str
    value: str | None
    target_field: str
    doctype: str
    sub_conditions: Mapping[str, str]
    row_id: str
    version: int
    confidence: float
    sample_size: int
    votes: Mapping[str, float]
    gate: str
    requests: int
    asks: bool
    thresholds: tuple[float, float]
    every: int

    @property
    def text(self) -> str:
        """In words."""
        condition_text = "".join(
            f", {item_name} {condition_value}"
            for item_name, condition_value in sorted(self.sub_conditions.items())
        )
        votes_text = (
            ", ".join(f"{item_name} {n_votes:g}" for item_name, n_votes in self.votes.items())
            or "none"
        )
        gate_text = self.gate
        if gate_text == "ask_occasionally":
            gate_text += (
                f" (request {self.requests} of the row, every {self.every}th asks: "
                f"{'yes' if self.asks else 'no'})"
            )
        row_confidence, (ask_below, apply_above) = self.confidence, self.thresholds
        return (
            f"{self.used} {self.value or 'nothing'} for {self.target_field} on "
            f"{self.doctype}{condition_text}: "
            f"row {self.row_id} version {self.version}, confidence {decimals(row_confidence)} "
            f"from {self.sample_size} "
            f"(votes {votes_text}), gate {gate_text} (asks below "
            f"{decimals(ask_below, row_confidence)}, applies above "
            f"{decimals(apply_above, row_confidence)})"
        )


class ReplayedUses(NamedTuple):
    """What a request did with the default table.

    defaults: rows that it used, in order. signals: changes that it made, each with the version that
    followed. differences: what the log records against what follows from it, in words.
    """

    defaults: tuple[ReplayedDefault, ...] = ()
    signals: tuple[Mapping[str, Any], ...] = ()
    differences: tuple[str, ...] = ()


class DefaultTable(Protocol):
    """What keeps the default table: each method works within the caller's transaction of a log."""

    # values of columns
    def rows(self, log: Entries, **where: Any) -> tuple[ClarificationDefault, ...]:  # noqa: ANN401
        """Latest versions of the rows that have these values."""

    def rebuild(self, log: Entries) -> tuple[ClarificationDefault, ...]:
        """Rows from their changes alone."""

    def meet(
        self, log: Entries, request_id: str, key: Key, learner: DefaultLearner, at: datetime
    ) -> ClarificationDefault:
        """Count a request for a row, once; return the row."""

    def clarify(self, log: Entries, row: Mapping[str, Any], request: ClarificationRequest) -> None:
        """Log what the user is asked, once a request."""

    def fill_in(self, log: Entries, request: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Log a default applied silently, a row once a request."""

    def learn(
        self,
        log: Entries,
        request_id: str,
        key: Key,
        signal: tuple[str, str, str | None],
        conditions: Mapping[str, str],
        learner: DefaultLearner,
        at: datetime,
    ) -> tuple[ClarificationDefault, ...]:
        """New versions by a signal.

        Value, the signal's name, and what the value was corrected to.
        """

    def settle(
        self,
        log: Entries,
        at: datetime,
        session: str | None,
        learner: DefaultLearner,
        rule: SilenceRule,
    ) -> int:
        """Settle what silence confirms; how many defaults it did."""

    def pending(self, log: Entries, request_id: str) -> Pending | None:
        """Clarification of a request that no reply followed."""

    def application(self, log: Entries, request_id: str) -> Application | None:
        """Default that was last applied silently to a request."""

    def replay(self, events: RequestEvents, learner: DefaultLearner) -> ReplayedUses:
        """What a request did with the table, rebuilt from the changes before it."""


def default_table() -> DefaultTable:
    """What keeps the default table.

    Raises:
      MissingExtensionError: the room that keeps it is not installed.
    """
    table: DefaultTable = extension(
        "audit_table.defaults", TABLE_ROOM, "the default table of an audit log"
    )
    return table
