"""The audit log of questions (rule S5.8): what was asked, decided, clarified and learned, and nothing written over.

The log is the truth and the default table a fold over it: whatever is killed in the middle of a question, the log
rebuilds the rows that there were, to the byte. Every time is UTC; `now` is the log's clock where it is not given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raglab._explain import Check
from raglab.default_learner import ClarificationDefault, ClarificationRequest, Learner
from raglab.lab._audited import Key, folded, ordered, rows_of, stamp
from raglab.lab._entered import check_id
from raglab.lab._exported import exported
from raglab.lab._learning import counted, digest_of, learned, noted
from raglab.lab._pending import Application, Pending, application_of, pending_of
from raglab.lab._redacted import Redaction, blanked, check_kept, check_texts, kept, spoken
from raglab.lab._settled import apply, remember, settle
from raglab.lab._written import clarify, decision_row, kept_policy, then
from raglab.store.audit import Database
from raglab.store.requests import DECISIONS, FORGOTTEN, OPEN, REPLIES, REQUESTS, TABLES, request_of

if TYPE_CHECKING:
    from raglab.policy import Policy

__all__ = ["Application", "AuditLog", "Pending", "Redaction"]


NOW = partial(datetime.now, UTC)


class AuditLog:
    """An audit log in a file or a database; see the module. Several processes may share one.

    What is said of a request that the log does not have is refused with a ValueError.
    """

    def __init__(
        self,
        log: str | Path,
        *,
        learner: Learner = Learner(),  # noqa: B008 - a value
        query: Redaction = "text",
        keep_days: float = 0.0,
        create: bool = True,
        clock: Callable[[], datetime] = NOW,
    ) -> None:
        """Name the log; it is opened on first use.

        Args:
          log: a file, or a URL with `://`. learner: settings that signals are learned under; each is kept with what it
            decided. query: whether a question is kept as its text, as a hash (a short one can be guessed), or not at
            all; with its text go values and quotations of it, but no reply or answer. keep_days: `forget` without a
            moment forgets what is older; 0 is never. create: whether the log is made where it is not there.

        Raises:
          ValueError: query is none of the three, keep_days below 0.
        """
        check_kept(query, keep_days)
        self.learner, self.query, self.keep_days = learner, query, float(keep_days)
        self.log = Database(log, TABLES, create=create)
        self._clock = clock
        self._asked: dict[str, tuple[str, frozenset[str]]] = {}

    @property
    def digest(self) -> str:
        """Digest of the learner's settings, under which the log keeps them."""
        return digest_of(self.learner)

    def opened(
        self,
        request_id: str,
        question: str,
        *,
        session: str = "",
        documents: Sequence[str] = (),
        parsed: object = None,
        policy: Policy,
        fingerprint: str,
        models: Mapping[str, str],
        now: datetime | None = None,
    ) -> None:
        """Log a request before anything is done for it.

        Args:
          session: whose requests follow one another; '' is a request alone, whose silence ends after 24 hours.
          parsed: a `ParsedQuestion` or a mapping of its fields. models: name by part; `prompt_version` among them.

        Raises:
          ValueError: the id is no text or is in the log, question or session is none, `now` has no time zone.
        """
        check_id(request_id)
        check_texts(question=question, session=session)
        at = self._at(now)
        with self.log.writing() as log:
            if log.one(REQUESTS, request_id=request_id) is not None:
                msg = f"request_id must be new, got {request_id!r}, which is in the log; give another or none."
                raise ValueError(msg)
            before = remember(log, self._asked, request_id, session, question, documents, at)
            told = {"at": at, "request_id": request_id, "session": session, "rephrases": before}
            asked = told | {"documents": list(documents)} | kept(question, parsed, self.query)
            system = {"policy_id": kept_policy(log, policy, at), "fingerprint": fingerprint, "models": dict(models)}
            made_by = {"prompt_version": models.get("prompt_version", ""), "learner": noted(log, self.learner, at)}
            log.add(REQUESTS, asked | system | made_by)

    def rows(self, target_field: str | None = None, doctype: str | None = None) -> tuple[ClarificationDefault, ...]:
        """Latest versions of the default table's rows, of a field or doctype where given."""
        where = {"target_field": target_field, "doctype": doctype}
        with self.log.reading() as log:
            return rows_of(log, **{name: value for name, value in where.items() if value is not None})

    def met(self, request_id: str, key: Key, *, now: datetime | None = None) -> ClarificationDefault:
        """Count a request that came to a row, once, and give the row; one that is not there begins.

        Args:
          key: target field, doctype, sub-conditions.
        """
        at = datetime.fromisoformat(self._at(now))
        with self.log.writing() as log:
            request_of(log, request_id)
            return counted(log, request_id, key, self.learner, at)

    def clarified(
        self,
        request_id: str,
        request: ClarificationRequest,
        *,
        row: ClarificationDefault,
        kind: str,
        why: str,
        gain: float | None = None,
        cost: float | None = None,
        conditions: Mapping[str, str],
        tried: Sequence[str] = (),
        now: datetime | None = None,
    ) -> None:
        """Log that the user is asked, once a request (rule S5.2), with the row as it is now.

        Args:
          row: of the default table that the values are of. why: gate, schedule or value of information, in words.
          gain, cost: of asking, in the units of the error's cost. tried: values that failed in this request.

        Raises:
          ValueError: request or row is not in the log, or the request was asked about already.
        """
        with self.log.writing() as log:
            about = {"at": self._at(now), "request_id": request_id, "why": why, "gain": gain, "cost": cost}
            clarify(log, about | {"tried": list(tried)} | then(row, kind, conditions, self.learner), request)

    def applied(
        self,
        request_id: str,
        *,
        row: ClarificationDefault,
        value: str,
        gate: str | None = None,
        conditions: Mapping[str, str],
        kind: str,
        now: datetime | None = None,
    ) -> None:
        """Log that a row's value was applied silently, with the row as it is now; a row once a request.

        Args:
          gate: verdict of the row's gate; None asks it. value, conditions: such as silence can confirm.
        """
        with self.log.writing() as log:
            row_then = then(row, kind, conditions, self.learner) | ({} if gate is None else {"gate": gate})
            apply(log, request_of(log, request_id), {"at": self._at(now), "value": value} | row_then)

    def replied(self, request_id: str, reply: str, *, now: datetime | None = None) -> None:
        """Log what the user said, to a clarification or of an answer."""
        check_texts(reply=reply)
        with self.log.writing() as log:
            request_of(log, request_id)
            log.add(REPLIES, {"at": self._at(now), "request_id": request_id, "reply": reply})

    def signal(
        self,
        request_id: str,
        row_key: Key,
        value: str,
        signal: str,
        corrected_to: str | None = None,
        *,
        conditions: Mapping[str, str],
        now: datetime | None = None,
    ) -> tuple[ClarificationDefault, ...]:
        """Learn from a signal: the row's new versions, and those of rows that a split makes, in one transaction.

        A request gives a row each kind of signal once; a second one changes nothing and gives (). A signal that comes
        after silence was settled is one more: the half vote of `implicit_ok` stays, since rows are never undone.

        Raises:
          ValueError: the request is not in the log; an unknown signal, a value that is empty or too long.

        Source: rules S5.4, S5.6.
        """
        at = datetime.fromisoformat(self._at(now))
        with self.log.writing() as log:
            request_of(log, request_id)
            said = (value, signal, corrected_to)
            return learned(log, request_id, row_key, said, conditions, self.learner, at)

    def decided(
        self,
        request_id: str,
        response: Mapping[str, Any],
        checks: Sequence[Check] = (),
        ms: Mapping[str, float] | float | None = None,
        *,
        now: datetime | None = None,
    ) -> None:
        """Log what was decided, with every check; of several decisions of a request, one a turn, the last counts.

        Args:
          response: with the keys of rule S0.3. ms: milliseconds, by stage or in all.
        """
        with self.log.writing() as log:
            asked = request_of(log, request_id)
            said = spoken(decision_row(asked, response, checks, ms), self.query)
            log.add(DECISIONS, {"at": self._at(now), **said})

    def pending(self, request_id: str) -> Pending | None:
        """What a request waits for: its clarification that nobody replied to; None where it waits for nothing."""
        with self.log.reading() as log:
            return pending_of(log, request_id)

    def application(self, request_id: str) -> Application | None:
        """Default that was last applied silently to a request, None where none was."""
        with self.log.reading() as log:
            return application_of(log, request_id)

    def settle(self, *, now: datetime | None = None, session: str | None = None) -> int:
        """Settle what became of defaults applied silently, as far as it is known; how many were right by silence.

        Silence is `implicit_ok` where the answer is ok, the field was filled, and the user neither corrected nor
        rephrased before the session's next request or 24 hours (rule S5.4). Each is settled once.

        Args:
          session: only requests of it; None settles all.
        """
        at = datetime.fromisoformat(self._at(now))
        with self.log.reading() as log:
            if log.one(OPEN) is None:
                return 0
        with self.log.writing() as log:
            return settle(log, at, session, self.learner)

    def rebuild(self) -> tuple[ClarificationDefault, ...]:
        """Rows of the default table from their changes alone: to the byte what `rows` has."""
        with self.log.reading() as log:
            return ordered(folded(log).values())

    def export(self, folder: str | Path) -> list[Path]:
        """Write every table of events, and the rows, as Parquet; see `_exported`."""
        with self.log.reading() as log:
            return exported(log, Path(folder))

    def forget(self, *, before: datetime | None = None) -> int:
        """Blank what people wrote and were answered in older rows; how many requests. Decisions and votes stay.

        Args:
          before: the moment; `keep_days` ago where not given.

        Raises:
          ValueError: neither a moment nor keep_days; the moment has no time zone.
          InputError: another process reads the log meanwhile, so that the files still hold what was blanked.
        """
        if before is None and not self.keep_days:
            msg = "forget needs a moment, got none and keep_days 0; give `before` or set keep_days."
            raise ValueError(msg)
        now = self._at(None)
        until = self._at(before or datetime.fromisoformat(now) - timedelta(days=self.keep_days))
        with self.log.writing() as log:
            count = blanked(log, until)
            if count:
                log.add(FORGOTTEN, {"at": now, "before": until, "requests": count})
        self._asked.clear()
        self.log.erase(anew=count > 0)
        return count

    def close(self) -> None:
        """Let go of the log's files."""
        self.log.close()

    def __repr__(self) -> str:
        return f"AuditLog({self.log.shown!r}, query={self.query!r}, keep_days={self.keep_days:g}, {self.learner})"

    def _at(self, now: datetime | None) -> str:
        moment = self._clock() if now is None else now
        if moment.tzinfo is None:
            msg = f"now must have a time zone, got {moment.isoformat()}; use datetime.now(UTC)."
            raise ValueError(msg)
        return stamp(moment)
