"""Hash chain of a log (shore): the digest of each event covers the one before.

What does not fit is named (S5.8).

A link holds two digests of its row. `content` is of the row without the texts that may be
forgotten; it stays true when they are. `seal` is of the whole row with a salt; it stays too when
texts and salt are dropped, and then tells nothing of the texts. The link's own digest covers both,
and the digest of the link before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from raglab.store.files import InputError
from raglab.words.canonical import digest
from raglab.words.characters import visible

Row: TypeAlias = Mapping[str, Any]  # as stored: JSON as text
# by table: a row without its texts; None where it has none
BlankForm: TypeAlias = Callable[[str, Row], Row | None]
CHAIN, NUMBERS = "audit_chain", "audit_numbers"  # tables of every log, beside its own
DIGITS = 64
UNNUMBERED = -1
MADE = 1  # value of a table's name among the numbers
MISSING = "the table is missing"
REMEDY = "`raglab audit --verify` names what does not fit"
UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
    StopIteration,
)


@contextmanager
def as_written() -> Iterator[None]:
    """Turn what breaks over rows of another form into one line.

    Raises:
      InputError: in place of whatever a damaged row broke.
    """
    try:
        yield
    except InputError:
        raise
    except UNREADABLE as error:
        reason = visible(f"{type(error).__name__}: {' '.join(str(error).split()).rstrip('.'):.300}")
        msg = (
            f"rows of a log must be as they were written, got {reason}; its tables were altered, "
            f"{REMEDY}."
        )
        raise InputError(msg) from error


class Head(NamedTuple):
    """Where a log ended: number and digest of its last event.

    Kept elsewhere it proves what the log held by then.
    """

    seq: int
    digest: str

    def __str__(self) -> str:
        return f"{self.seq} {self.digest}"


def parse_head(text: str) -> Head:
    """Head of a text such as `raglab audit --head` prints; what follows the digest is left out.

    Raises:
      ValueError: it is none.

    Example:
      >>> parse_head("2 " + "ab" * 32 + " out/index/audit.sqlite").seq
      2
    """
    seq, value, *_ = [*text.split(), "", ""]
    if not (
        seq.isascii()
        and seq.isdecimal()
        and len(value) == DIGITS
        and set(value) <= set("0123456789abcdef")
    ):
        msg = (
            f"a head must be a number and {DIGITS} hex digits, got {text!r:.80}; `raglab audit "
            "--head` prints it."
        )
        raise ValueError(msg)
    return Head(int(seq), value)


class Link(NamedTuple):
    """Entry of the chain.

    seq, of: number and table of the event; the table of one that was gone before the chain began is
    ''. seal: None where the table has no texts. salt: None also where the texts are forgotten.
    """

    seq: int
    of: str
    content: str
    seal: str | None
    salt: str | None
    digest: str


class Finding(NamedTuple):
    """What does not fit.

    Table, number of the event where it is one, and what is wrong, in words.
    """

    table: str
    seq: int | None
    what: str

    def __str__(self) -> str:
        return visible(f"{self.table}{'' if self.seq is None else f' {self.seq}'}: {self.what}")


class Verification(NamedTuple):
    """What a verification of a log says.

    place: of the log, without secrets. rows: events that it holds. head: of the chain, None before
    the first event. version: of its tables; those of version 1 have no chain. findings: what does
    not fit, none in an intact log.
    """

    place: str
    rows: int
    head: Head | None
    version: int
    findings: tuple[Finding, ...]

    @property
    def intact(self) -> bool:
        """Whether everything fits."""
        return not self.findings

    def __str__(self) -> str:
        verdict = (
            "intact"
            if self.intact
            else f"{len(self.findings)} finding{'' if len(self.findings) == 1 else 's'}"
        )
        head = "" if self.head is None else f", head {self.head}"
        return "\n".join(
            [
                visible(f"{self.place}: {self.rows} events, {verdict}{head}"),
                *map(str, self.findings),
            ]
        )


def row_digest(of: str, row: Row, salt: str = "") -> str:
    """Digest of a row's values as stored, its number left out: 64 hex digits.

    Each value stands with its name, kind and length, so that no two rows have one form. Missing
    values are left out, so that a column added later changes no digest; -0.0 is 0.0, as SQLite
    keeps it.

    Example:
      >>> row_digest("notes", {"seq": 1, "n": 2.0, "by": None}) == digest("0::5:notes:n:f3:2.0:")
      True
    """
    parts = [f"{len(salt)}:{salt}:{len(of)}:{of}:"]
    for name in sorted(row):
        value = row[name]
        if isinstance(value, str):
            parts.append(f"{name}:s{len(value)}:{value}:")
        elif value is not None and name != "seq":
            text = float.__repr__(value + 0.0) if isinstance(value, float) else repr(value)
            parts.append(f"{name}:{type(value).__name__[0]}{len(text)}:{text}:")
    return digest("".join(parts))


def make_link(before: str, seq: int, of: str, row: Row, blank: Row | None, salt: str) -> Link:
    """Link of a new event.

    Args:
      before: digest of the link before, '' of the first.
      blank: the row without its texts, None where it has none.
    """
    if blank is None:
        content, seal, link_salt = row_digest(of, row), None, None
    else:
        content, seal, link_salt = row_digest(of, blank), row_digest(of, row, salt), salt
    return Link(seq, of, content, seal, link_salt, link_digest(before, seq, of, content, seal))


def gap_link(before: str, seq: int) -> Link:
    """Link in the place of an event that was gone before the chain began."""
    return Link(seq, "", "", None, None, link_digest(before, seq, "", "", None))


def link_digest(before: str, seq: int, of: str, content: str, seal: str | None) -> str:
    """Digest of a link: 64 hex digits.

    Example:
      >>> link_digest("", 1, "notes", "c", None) == digest(":1:5:notes:c:")
      True
    """
    return digest(f"{before}:{seq}:{len(of)}:{of}:{content}:{seal or ''}")


def row_problem(link: Link, row: Row) -> str | None:
    """What is wrong with the row of a link, in words.

    None where it is as it was written, or forgotten since.

    With its salt the whole row is known by the seal; without one, the row must be what forgetting
    leaves of it.
    """
    if link.salt is None:
        return None if link.content == row_digest(link.of, row) else "the row was altered"
    return (
        None
        if link.seal == row_digest(link.of, row, link.salt)
        else "the row, or its salt, was altered"
    )


def chain_problem(before: str, link: Link) -> str | None:
    """What is wrong with a link after the digest of the one before, in words."""
    same = link.digest == link_digest(before, link.seq, link.of, link.content, link.seal)
    return None if same else "the chain's entry, or the one before it, was altered"


def events_findings(
    of: str, seqs: Iterable[int], links: Mapping[int, Link], rows: Mapping[int, Row]
) -> Iterator[Finding]:
    """Faults of some events of a table, by their links and those before them, in number order."""
    for seq in seqs:
        link, before = links.get(seq), links.get(seq - 1)
        if link is None or link.of != of:
            yield Finding(
                of, seq, "the chain has no such event: the row was forged, or its entry deleted"
            )
            continue
        problem = row_problem(link, rows[seq])
        if problem is None and before is None and seq > 1:
            problem = "the chain has no entry for the event before it"
        problem = problem or chain_problem("" if before is None else before.digest, link)
        if problem is not None:
            yield Finding(of, seq, problem)


def tables_findings(
    known: Collection[str],
    own: Collection[str],
    chained: Collection[str],
    numbers: Mapping[str, int | None],
) -> list[Finding]:
    """Tables that are missing, and those that the counter's table does not name as made.

    Args:
      known: that there are.
      own: that the log may have.
      chained: that links name.
      numbers: what the table says.
    """
    gone = sorted({CHAIN, *chained, *map(str, numbers.keys() - {"schema", "event"})} - {*known, ""})
    unnamed = (name for name in sorted(own) if name in known and numbers.get(name) != MADE)
    findings = [Finding(name, None, MISSING) for name in gone]
    return findings + [
        Finding(NUMBERS, None, f"it does not name the table {name}") for name in unnamed
    ]


def _readable(link: Link) -> bool:
    """Whether a link's values are of their kind, which SQLite does not hold anybody to."""
    seq, of, content, seal, salt, own = link
    texts = isinstance(of, str) and isinstance(content, str) and isinstance(own, str)
    return (
        texts
        and isinstance(seq, int)
        and isinstance(seal, str | None)
        and isinstance(salt, str | None)
    )


class ChainWalk:
    """Findings of a chain and its rows, both in order of their numbers, each read once.

    head and rows are of what was walked so far, `named` the tables that its links name.
    """

    def __init__(self, blank_form: BlankForm, known: Iterable[str]) -> None:
        """Take how a row is blanked, and the tables whose rows are given."""
        self._blank_form, self._known = blank_form, frozenset(known)
        self.head: Head | None = None
        self.rows = 0
        self.named: set[str] = set()
        # of links whose row is not theirs: table and number
        self._contents: dict[str, tuple[str, int]] = {}
        # rows that are no link's: table, number, content, what
        self._strays: list[tuple[str, int, str, str]] = []

    def findings(
        self, links: Iterable[Link], rows: Iterable[tuple[int, str, Row]]
    ) -> Iterator[Finding]:
        """What does not fit, in order.

        Args:
          rows: number, table and row of each event; `UNNUMBERED` where its number is none.
        """
        waiting = iter(rows)
        row = next(waiting, None)
        for link in links:
            if not _readable(link):
                number = link.seq if isinstance(link.seq, int) else None
                yield Finding(CHAIN, number, "the entry was altered, and cannot be read")
                continue
            while row is not None and row[0] < link.seq:
                self._unlinked(row)
                row = next(waiting, None)
            yield from self._followed(link)
            own = None
            while row is not None and row[0] == link.seq:
                if own is None and row[1] == link.of:
                    own = row[2]
                    self.rows += 1
                else:
                    self._unlinked(row)
                row = next(waiting, None)
            yield from self._held(link, own)
        while row is not None:
            self._unlinked(row)
            row = next(waiting, None)
        yield from self._moved()

    def _followed(self, link: Link) -> Iterator[Finding]:
        """Whether a link follows the one before."""
        before = self.head or Head(0, "")
        if link.seq != before.seq + 1:
            gone = (
                f"event {before.seq + 1}"
                if link.seq == before.seq + 2
                else f"events {before.seq + 1} to {link.seq - 1}"
            )
            yield Finding(CHAIN, link.seq, f"the chain has no entry for {gone} before it")
        elif problem := chain_problem(before.digest, link):
            yield Finding(CHAIN, link.seq, problem)
        self.head = Head(link.seq, link.digest)
        self.named.add(link.of)

    def _held(self, link: Link, row: Row | None) -> Iterator[Finding]:
        """Whether a link's row is there and as it was; a table that is not known tells nothing."""
        if not link.of:
            yield Finding(CHAIN, link.seq, "the event was gone before the chain began")
        elif link.of in self._known and row is None:
            self._contents.setdefault(link.content, (link.of, link.seq))
            yield Finding(link.of, link.seq, "the row is missing")
        elif row is not None and (problem := row_problem(link, row)):
            self._contents.setdefault(link.content, (link.of, link.seq))
            self._strays.append((link.of, link.seq, self._content(link.of, row), problem))

    def _unlinked(self, row: tuple[int, str, Row]) -> None:
        """Note a row that no link is of."""
        self.rows += 1
        problem = "the chain has no such event: the row was forged, or its entry deleted"
        self._strays.append((row[1], row[0], self._content(row[1], row[2]), problem))

    def _content(self, of: str, row: Row) -> str:
        try:
            blank = self._blank_form(of, row)
        except UNREADABLE:
            return ""
        return row_digest(of, row if blank is None else blank)

    def _moved(self) -> Iterator[Finding]:
        """Rows that are no link's, and of which event they are, where they are another's.

        The order was changed.
        """
        for table, seq, content, problem in self._strays:
            of, number = self._contents.get(content, ("", seq))
            moved = of == table and number != seq
            yield Finding(
                table,
                None if seq == UNNUMBERED else seq,
                f"the order was changed: the row is that of event {number}" if moved else problem,
            )
