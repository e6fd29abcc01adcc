"""Looks (shore): what files and policies remember of certifications, whose deltas add up (S6.4).

Cases are known by their questions, which are read without the hits where a trace stands in shards.
A certificate in a policy is read here (S6.10), and refused where it is not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from raglab import metrics
from raglab.arguments.user_warnings import warn_user
from raglab.decision.learned_cases import (
    PLAIN_FORM_CODE,
    code_text,
    hash_queries,
    is_repeated_set,
    question_codes,
    text_codes,
    trace_queries,
)
from raglab.decision.trace_view import TraceView
from raglab.metrics.mixes import TrafficMix, checked_mix
from raglab.policy import PolicyData
from raglab.store.files import Append, JsonLine, locked_lines, logged_lines
from raglab.store.records import Faults, Fields, FilledText, read_record
from raglab.values import refuse


def trace_hash(trace: TraceView) -> str:
    """`queries_hash` of all cases of a trace."""
    return hash_queries(chain.from_iterable(trace_queries(trace).values()))


Share = Annotated[float, Field(gt=0.0, lt=0.5)]
Count = Annotated[int, Field(gt=0, lt=10**9)]
Spent = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
CERTIFY_AGAIN = "certify the policy as it is now (raglab.certify_policy, or `raglab certify`)"


class _Promise(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    name: Literal[(*metrics.OBJECTIVES, "expected_cost")]  # type: ignore[valid-type]
    alpha: Spent


class _CertificateRows(BaseModel):
    """What a certificate states that is read; without any of the required it promises nothing."""

    model_config = ConfigDict(extra="allow", strict=True)
    policy_id: str
    promises: Annotated[Sequence[_Promise], Field(min_length=1)]
    delta: Share
    cases_hash: Annotated[str, Field(min_length=1)]
    basis: str
    pilot_hash: str | None
    looks: Count
    spent: Spent
    looks_recorded: bool
    budget: Share = 0.1
    hypotheses: Count = 1
    candidates: Count = 1
    retrieval: Mapping[str, Any] = {}
    mix: Mapping[str, Any] = {}


def certificate_defect(policy: PolicyData) -> str:
    """Why the certificate in a policy is not read as valid, with the remedy.

    Empty for a valid one or none.

    Source: rule S6.10.
    """
    rows = policy.certificate
    if rows is None:
        return ""
    try:
        _CertificateRows.model_validate(dict(rows))
    except ValidationError as error:
        names = [str(fault["loc"][0]) for fault in error.errors()]
        missing = ", ".join(name for name in names if name not in rows)
        defect = f"one without {missing}" if missing else f"{names[0]} {rows[names[0]]!r:.60}"
    else:
        if rows["policy_id"] != policy.policy_id:
            defect = f"that of {rows['policy_id']} in {policy.policy_id}"
        elif ("mix" in rows) != (stated_corners(rows) is not None):
            defect = f"mix {rows.get('mix')!r:.60} at {rows.get('mix_corners')!r:.60}"
        else:
            return ""
    rule = "a certificate must be whole, of its policy, and as raglab wrote it"
    return f"{rule}, got {defect}; {CERTIFY_AGAIN}."


def stated_certificate(policy: PolicyData) -> Mapping[str, Any]:
    """Certificate of a policy, as a check reads it.

    Raises:
      ValueError: there is none, or it is not valid: not whole, of another policy, or of an older
        raglab.
    """
    if policy.certificate is None:
        refuse("a policy must hold a certificate to be checked", "none", CERTIFY_AGAIN)
    if defect := certificate_defect(policy):
        raise ValueError(defect)
    return policy.certificate


def stated_targets(rows: Mapping[str, Any]) -> dict[str, float]:
    """Targets that a certificate promises; empty of none."""
    return {str(row["name"]): float(row["alpha"]) for row in rows.get("promises", ())}


def stated_mix(rows: Mapping[str, Any]) -> TrafficMix | None:
    """Traffic mix that a certificate states; None where it states none."""
    ends = rows.get("mix", {}).items()
    shares = {label: share for label, share in ends if label in metrics.LABELS}
    mix, corners = checked_mix(shares) if shares else None, stated_corners(rows)
    if mix is None or corners is None:
        return mix
    return replace(mix, corners=tuple(map(tuple, corners.tolist())))


def stated_corners(rows: Mapping[str, Any]) -> NDArray[np.float64] | None:
    """Outermost mixes that a certificate states, [V, 3]; None where it states none, or no mixes."""
    try:
        corners = np.asarray(rows.get("mix_corners", ()), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    is_mix = corners.shape[1:] == (len(metrics.LABELS),) and bool((corners >= 0.0).all())
    return corners if is_mix and np.allclose(corners.sum(axis=1), 1.0) else None


class LookRecord(NamedTuple):
    """Line of a file of looks.

    Error spent, and policies that the cases may have chosen with it, 0 for unknown.
    """

    delta: float
    hypotheses: int = 0


def _read_codes(codes: str) -> str:
    """Codes of questions, which can be read."""
    text_codes(codes)
    return codes


class _Look(Fields):
    """A certification in a file of looks, which may hold further facts."""

    model_config = ConfigDict(extra="allow")
    key: FilledText
    delta: Annotated[float, Field(gt=0.0, le=1.0, description="put the line back")]
    hypotheses: Annotated[int, Field(ge=0, description="put the line back")] = 0
    codes: (
        Annotated[str, AfterValidator(_read_codes), Field(description="put the line back")] | None
    ) = None


def recorded_looks(
    path: Path, cases_hash: str, queries: Sequence[str] = ()
) -> dict[str, LookRecord]:
    """Key -> record of the certifications made on these cases, in their order.

    None where the file is not there.

    Args:
      queries: questions of the cases; looks at a set that shares more than `REPEATED` of them count
        too, where the file holds the codes of that set.

    Raises:
      InputError: the file is damaged.
    """
    lines, sets = list[tuple[str, str, LookRecord]](), dict[str, str]()
    for where, record in logged_lines(path):
        faults = Faults()
        look = faults.checked(read_record(JsonLine(where, record), _Look, faults))
        of = str(record.get("cases_hash"))
        lines.append((of, look.key, LookRecord(look.delta, look.hypotheses)))
        if look.codes is not None:
            sets[of] = look.codes
    own = question_codes(queries)
    shared = {of for of, codes in sets.items() if is_repeated_set(own, codes)} | {cases_hash}
    if any(not sets[of].startswith(PLAIN_FORM_CODE) for of in sets.keys() - shared):
        warn_user(f"{path}: looks of raglab 0.1.0 know questions only as they were written.")
    return {key: record for of, key, record in lines if of in shared}


_OPENING = '{"cases_hash": "'  # how a line begins, where one was torn


class Look(NamedTuple):
    """Number of a certification on its cases, from 1, and the error spent on them with it."""

    number: int
    spent: float


def record_look(
    known: Mapping[str, Any] | None,
    before: Mapping[str, LookRecord],
    key: str,
    delta: float,
    *,
    again: bool,
) -> Look:
    """This look at the cases, after those that a file or the policy's own certificate remembers."""
    deltas = {earlier: record.delta for earlier, record in before.items()}
    if known is not None:
        own = Look(int(known.get("looks", 1)), float(known.get("spent", known["delta"])))
        if known.get("key") == key:
            return own
        if len(deltas) < own.number:
            deltas = {str(number): own.spent / own.number for number in range(own.number)}
    if key in deltas:
        at = list(deltas).index(key) + 1
        return Look(at, sum(list(deltas.values())[:at]))
    if deltas and not again:
        rule = "cases must be certified on once: each further look adds its delta to the error"
        remedy = "take new cases, or say again=True (--again) and report the sum"
        refuse(rule, f"{len(deltas)} before", remedy)
    return Look(len(deltas) + 1, sum(deltas.values()) + delta)


def known_certificate(
    policies: Iterable[PolicyData], cases_hash: str, queries: Sequence[str]
) -> Mapping[str, Any] | None:
    """Of the certificates that policies hold, made on these cases, the one with most looks."""
    codes, own = question_codes(queries), []
    for policy in policies:
        rows = policy.certificate or {}
        of = str(rows.get("cases_hash"))
        if of == cases_hash or is_repeated_set(codes, policy.learned_cases.get(of, "")):
            own.append(rows)
    return max(own, key=lambda rows: int(rows.get("looks", 1)), default=None)


def chosen_among(certificate: Mapping[str, Any] | None) -> int:
    """Policies that the cases of a certificate may have chosen.

    Its candidates where an older one does not say.
    """
    rows = certificate or {}
    return int(rows.get("hypotheses", 0)) or int(rows.get("candidates", 1))


def look_delta(delta: float, look: int) -> float:
    """Error that a look at the same cases may spend: delta of the first.

    Later ones spend delta together.

    Args:
      delta: error of a promise on fresh cases.
      look: number of the look, from 1.

    Example:
      >>> look_delta(0.1, 1), look_delta(0.1, 2), round(look_delta(0.1, 3), 4)
      (0.1, 0.05, 0.0167)
    """
    return delta if look == 1 else delta / (look * (look - 1))


def look_divisor(hypotheses: int, look: int) -> int:
    """Policies earlier looks at the same cases may have led to, doubled by each look between.

    Example:
      >>> look_divisor(5, 1), look_divisor(5, 2), look_divisor(5, 3)
      (1, 5, 10)
    """
    return 1 if look == 1 else min(hypotheses << min(look - 2, 1000), _MOST)


_MOST = 10**300  # that a float holds


class Reuse(NamedTuple):
    """Earlier certificate on the cases.

    Its looks, the error spent, and the policies it chose among.
    """

    looks: int = 0
    spent: float = 0.0
    hypotheses: int = 1


class TakenLook(NamedTuple):
    """A look that is taken, see `Look`.

    key: of the certification. hypotheses: policies that the cases may have chosen with it. delta:
    error that it may spend. divisor: by how much the level of its test is divided.
    """

    number: int
    spent: float
    key: str
    hypotheses: int
    delta: float
    divisor: int = 1


def upgrade_look(
    reuse: Reuse,
    before: Mapping[str, LookRecord],
    budget: float,
    key_at: Callable[[float, int], str],
) -> TakenLook:
    """The next look at the cases, or the earlier one that was the same.

    Args:
      key_at: of the certification, by delta and divisor.
    """
    hypotheses = max(reuse.hypotheses, *(record.hypotheses for record in before.values()), 1)
    places = {key: place for place, key in enumerate(before)}
    for number in range(reuse.looks + 1, max(len(before), reuse.looks) + 2):
        delta, divisor = look_delta(budget, number), look_divisor(hypotheses, number)
        key = key_at(delta, divisor)
        if places.get(key, number) < number:
            break
    earlier = [record.delta for record in before.values()][: places.get(key)]
    spent = max(sum(earlier), reuse.spent) + delta
    return TakenLook(number, spent, key, hypotheses, delta, divisor)


class HeldLooks(NamedTuple):
    """Earlier looks at some cases while this block alone holds their file; `note` adds one.

    append: None without a file. line: what a line states of the cases.
    """

    before: Mapping[str, LookRecord]
    append: Append | None = None
    line: Mapping[str, Any] = {}

    def note(self, key: str, delta: float, hypotheses: int) -> None:
        """Note a look, where none of this key is noted."""
        if self.append is not None and key not in self.before:
            more = {"hypotheses": hypotheses} if hypotheses else {}
            self.append({**self.line, "key": key, "delta": delta, **more})


@contextmanager
def held_looks(
    path: Path | None, cases_hash: str, queries: Sequence[str] = ()
) -> Iterator[HeldLooks]:
    """Earlier looks at cases under one lock: of two at once the second counts the first.

    Raises:
      InputError: the file is damaged or cannot be written: what cannot be counted is not looked at.
    """
    if path is None:
        yield HeldLooks({})
        return
    with locked_lines(path, _OPENING) as append:
        known = any(
            record.get("cases_hash") == cases_hash
            and str(record.get("codes")).startswith(PLAIN_FORM_CODE)
            for _, record in logged_lines(path)
        )
        codes = {} if known or not queries else {"codes": code_text(queries)}
        before = recorded_looks(path, cases_hash, queries)
        yield HeldLooks(before, append, {"cases_hash": cases_hash, **codes})


def take_look(
    policies: Sequence[PolicyData],
    path: Path | None,
    cases_hash: str,
    queries: Sequence[str],
    key_at: Callable[[float, int], str],
    delta: float,
    reuse: Reuse | None,
    *,
    n_tested: int,
    again: bool,
) -> TakenLook:
    """Take a look at cases, and note it where a file remembers them.

    Args:
      policies: candidates, whose certificates may remember earlier looks.
      path: of the file; None without one.
      key_at: of the certification, by delta and divisor.
      delta: error of the promise.
      reuse: what an upgrade knows of earlier looks; None of any other certification.
      n_tested: candidates in the order of the tests.
      again: whether a further look is allowed.
    """
    known = known_certificate(policies, cases_hash, queries)
    with held_looks(path, cases_hash, queries) as held:
        if reuse is None:
            key = key_at(delta, 1)
            look = record_look(known, held.before, key, delta, again=again)
            # A candidate that these cases chose before is still one of as many.
            earlier = (record.hypotheses for record in held.before.values())
            taken = TakenLook(*look, key, max(n_tested * chosen_among(known), *earlier, 1), delta)
        else:
            taken = upgrade_look(reuse, held.before, delta, key_at)
        held.note(taken.key, taken.delta, taken.hypotheses)
    return taken
