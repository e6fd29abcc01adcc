"""Looks (shore): what files and policies remember of certifications, whose deltas add up (S6.4).

Cases are known by their questions, which are read without the hits of a trace in shards.
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
from raglab.values import FloatArray, refuse


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
    certificate_fields = policy.certificate
    if certificate_fields is None:
        return ""
    try:
        _CertificateRows.model_validate(dict(certificate_fields))
    except ValidationError as error:
        defect_names = [str(field_fault["loc"][0]) for field_fault in error.errors()]
        missing_names = ", ".join(
            field_name for field_name in defect_names if field_name not in certificate_fields
        )
        defect = (
            f"one without {missing_names}"
            if missing_names
            else f"{defect_names[0]} {certificate_fields[defect_names[0]]!r:.60}"
        )
    else:
        if certificate_fields["policy_id"] != policy.policy_id:
            defect = f"that of {certificate_fields['policy_id']} in {policy.policy_id}"
        elif ("mix" in certificate_fields) != (stated_corners(certificate_fields) is not None):
            defect = (
                f"mix {certificate_fields.get('mix')!r:.60} at "
                f"{certificate_fields.get('mix_corners')!r:.60}"
            )
        else:
            return ""
    certificate_rule = "a certificate must be whole, of its policy, and as raglab wrote it"
    return f"{certificate_rule}, got {defect}; {CERTIFY_AGAIN}."


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


def stated_targets(certificate_fields: Mapping[str, Any]) -> dict[str, float]:
    """Targets that a certificate promises; empty of none."""
    return {str(row["name"]): float(row["alpha"]) for row in certificate_fields.get("promises", ())}


def stated_mix(certificate_fields: Mapping[str, Any]) -> TrafficMix | None:
    """Traffic mix that a certificate states; None where it states none."""
    share_bounds = certificate_fields.get("mix", {}).items()
    label_shares = {
        label: label_share for label, label_share in share_bounds if label in metrics.LABELS
    }
    traffic_mix = checked_mix(label_shares) if label_shares else None
    mix_corners = stated_corners(certificate_fields)
    if traffic_mix is None or mix_corners is None:
        return traffic_mix
    return replace(traffic_mix, corners=tuple(map(tuple, mix_corners.tolist())))


def stated_corners(certificate_fields: Mapping[str, Any]) -> FloatArray | None:
    """Outermost mixes that a certificate states, [V, 3]; None where it states none, or no mixes."""
    try:
        mix_corners = np.asarray(certificate_fields.get("mix_corners", ()), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    is_mix = mix_corners.shape[1:] == (len(metrics.LABELS),) and bool((mix_corners >= 0.0).all())
    return mix_corners if is_mix and np.allclose(mix_corners.sum(axis=1), 1.0) else None


class LookRecord(NamedTuple):
    """Line of a file of looks.

    Error spent, and policies that the cases may have chosen with it, 0 for unknown.
    """

    delta: float
    hypotheses: int = 0


def _read_codes(code_string: str) -> str:
    """Codes of questions, which can be read."""
    text_codes(code_string)
    return code_string


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
    look_lines = list[tuple[str, str, LookRecord]]()
    codes_of_set = dict[str, str]()
    for line_position, look_record in logged_lines(path):
        line_faults = Faults()
        look_fields = line_faults.checked(
            read_record(JsonLine(line_position, look_record), _Look, line_faults)
        )
        set_hash = str(look_record.get("cases_hash"))
        look_lines.append(
            (set_hash, look_fields.key, LookRecord(look_fields.delta, look_fields.hypotheses))
        )
        if look_fields.codes is not None:
            codes_of_set[set_hash] = look_fields.codes
    own_codes = question_codes(queries)
    shared_sets = {
        set_hash
        for set_hash, set_codes in codes_of_set.items()
        if is_repeated_set(own_codes, set_codes)
    } | {cases_hash}
    if any(
        not codes_of_set[set_hash].startswith(PLAIN_FORM_CODE)
        for set_hash in codes_of_set.keys() - shared_sets
    ):
        warn_user(f"{path}: looks of raglab 0.1.0 know questions only as they were written.")
    return {
        look_key: look_record
        for set_hash, look_key, look_record in look_lines
        if set_hash in shared_sets
    }


_LINE_OPENING = '{"cases_hash": "'  # how a line begins, where one was torn


class Look(NamedTuple):
    """Number of a certification on its cases, from 1, and the error spent on them with it."""

    number: int
    spent: float


def record_look(
    known_fields: Mapping[str, Any] | None,
    earlier_looks: Mapping[str, LookRecord],
    look_key: str,
    delta: float,
    *,
    again: bool,
) -> Look:
    """This look at the cases, after those that a file or the policy's own certificate remembers."""
    spent_deltas = {earlier_key: record.delta for earlier_key, record in earlier_looks.items()}
    if known_fields is not None:
        own_look = Look(
            int(known_fields.get("looks", 1)),
            float(known_fields.get("spent", known_fields["delta"])),
        )
        if known_fields.get("key") == look_key:
            return own_look
        if len(spent_deltas) < own_look.number:
            spent_deltas = {
                str(look_index): own_look.spent / own_look.number
                for look_index in range(own_look.number)
            }
    if look_key in spent_deltas:
        look_number = list(spent_deltas).index(look_key) + 1
        return Look(look_number, sum(list(spent_deltas.values())[:look_number]))
    if spent_deltas and not again:
        refuse(
            "cases must be certified on once: each further look adds its delta to the error",
            f"{len(spent_deltas)} before",
            "take new cases, or say again=True (--again) and report the sum",
        )
    return Look(len(spent_deltas) + 1, sum(spent_deltas.values()) + delta)


def known_certificate(
    policies: Iterable[PolicyData], cases_hash: str, queries: Sequence[str]
) -> Mapping[str, Any] | None:
    """Of the certificates that policies hold, made on these cases, the one with most looks."""
    case_codes = question_codes(queries)
    own_certificates = []
    for policy in policies:
        certificate_fields = policy.certificate or {}
        set_hash = str(certificate_fields.get("cases_hash"))
        if set_hash == cases_hash or is_repeated_set(
            case_codes, policy.learned_cases.get(set_hash, "")
        ):
            own_certificates.append(certificate_fields)
    return max(
        own_certificates,
        key=lambda certificate_fields: int(certificate_fields.get("looks", 1)),
        default=None,
    )


def chosen_among(certificate: Mapping[str, Any] | None) -> int:
    """Policies that the cases of a certificate may have chosen.

    Its candidates where an older one does not say.
    """
    certificate_fields = certificate or {}
    return int(certificate_fields.get("hypotheses", 0)) or int(
        certificate_fields.get("candidates", 1)
    )


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
    return 1 if look == 1 else min(hypotheses << min(look - 2, 1000), _MAX_DIVISOR)


_MAX_DIVISOR = 10**300  # that a float holds


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
    earlier_looks: Mapping[str, LookRecord],
    budget: float,
    key_at: Callable[[float, int], str],
) -> TakenLook:
    """The next look at the cases, or the earlier one that was the same.

    Args:
      key_at: of the certification, by delta and divisor.
    """
    hypotheses = max(
        reuse.hypotheses, *(look_record.hypotheses for look_record in earlier_looks.values()), 1
    )
    look_places = {look_key: look_place for look_place, look_key in enumerate(earlier_looks)}
    for look_number in range(reuse.looks + 1, max(len(earlier_looks), reuse.looks) + 2):
        delta = look_delta(budget, look_number)
        divisor = look_divisor(hypotheses, look_number)
        look_key = key_at(delta, divisor)
        if look_places.get(look_key, look_number) < look_number:
            break
    earlier_deltas = [look_record.delta for look_record in earlier_looks.values()][
        : look_places.get(look_key)
    ]
    spent_delta = max(sum(earlier_deltas), reuse.spent) + delta
    return TakenLook(look_number, spent_delta, look_key, hypotheses, delta, divisor)


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
            chosen_fields = {"hypotheses": hypotheses} if hypotheses else {}
            self.append({**self.line, "key": key, "delta": delta, **chosen_fields})


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
    with locked_lines(path, _LINE_OPENING) as append_line:
        is_known = any(
            look_record.get("cases_hash") == cases_hash
            and str(look_record.get("codes")).startswith(PLAIN_FORM_CODE)
            for _, look_record in logged_lines(path)
        )
        code_fields = {} if is_known or not queries else {"codes": code_text(queries)}
        earlier_looks = recorded_looks(path, cases_hash, queries)
        yield HeldLooks(earlier_looks, append_line, {"cases_hash": cases_hash, **code_fields})


def take_look(
    policies: Sequence[PolicyData],
    looks_path: Path | None,
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
      looks_path: of the file; None without one.
      key_at: of the certification, by delta and divisor.
      delta: error of the promise.
      reuse: what an upgrade knows of earlier looks; None of any other certification.
      n_tested: candidates in the order of the tests.
      again: whether a further look is allowed.
    """
    known_fields = known_certificate(policies, cases_hash, queries)
    with held_looks(looks_path, cases_hash, queries) as file_looks:
        if reuse is None:
            look_key = key_at(delta, 1)
            recorded_look = record_look(
                known_fields, file_looks.before, look_key, delta, again=again
            )
            # A candidate that these cases chose before is still one of as many.
            earlier_choices = (look_record.hypotheses for look_record in file_looks.before.values())
            taken_look = TakenLook(
                *recorded_look,
                look_key,
                max(n_tested * chosen_among(known_fields), *earlier_choices, 1),
                delta,
            )
        else:
            taken_look = upgrade_look(reuse, file_looks.before, delta, key_at)
        file_looks.note(taken_look.key, taken_look.delta, taken_look.hypotheses)
    return taken_look
