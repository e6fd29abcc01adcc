"""Ask, reply, buttons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from html import escape
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any
from uuid import uuid4

import numpy as np

from raglab.audit.log import read, written
from raglab.decision import chain
from raglab.decision.decisions import Decisions, answer_checks
from raglab.decision.measurement import calibrated, with_answers
from raglab.default_learner import OTHER
from raglab.live import clarification
from raglab.live.arms import chosen, learned, measures
from raglab.live.clarification_requests import Request, text_of, time_of
from raglab.live.response import PREVIEW, Checked, Response, Seen, answers_of, checked
from raglab.live.system import Key, Lab, normalised, packed, unpacked
from raglab.live.trace_building import only_hit, scopes_of
from raglab.patterns import pattern_hits
from raglab.policy import thresholds
from raglab.replay import decide_on, tables_of
from raglab.retrieval.strategies import Found, walk
from raglab.values import Case, Hits, Status, TraceData


def ask(
    question: str,
    *,
    lab: Lab | str | Path,
    selected_option: int | None = None,
    documents: Sequence[str] | None = None,
    request_id: str | None = None,
    session: str = "",
    now: datetime | None = None,
) -> Response:
    """Answer a question, refuse it, or ask back, under the policy of a system.

    The gates are those of the replay, over a trace of this one question: what a stored trace says of it under the same
    policy is what is answered. Where a bandit chooses the arm (`strategy.arm` is `bandit`), it learns from the answer;
    where the question fails with an error, its choice stays without a reward. A system that clarifies asks for what a
    vague question leaves out, or fills it in with what it learned from earlier replies; see `reply`, and `buttons`.

    Args:
      lab: the system; the folder of an index opens one under the published policy.
      selected_option: which of the options the user chose, from 1, where the same question was ambiguous.
      documents: that the user named, `file` or `file#page`: they scope the search and switch to tau_explicit.
      request_id: goes into the response; a new one where not given. A bandit takes each only once, and so does a system
        that clarifies.
      session: whose request it is, for the audit log: a user's next request accepts in silence what was filled in.
      now: time of the request; with a zone. The clock's where not given.

    Raises:
      ValueError: the question is no text, a document is named that the corpus does not hold, a time without a zone;
        with a bandit or where the system clarifies, a request_id that has had its question.

    Source: rules S0.3, S2.12, S3.7, S4.6, S5.
    """
    system = lab if isinstance(lab, Lab) else Lab.open(lab)
    identity = (request_id or uuid4().hex, normalised(text_of(question)))
    request = Request(*identity, tuple(documents or ()), selected_option, session, time_of(now))
    return answered(request, system) if system.audit is None else clarification.asked(request, system, answered)


def reply(
    request_id: str,
    answer: str,
    *,
    lab: Lab | str | Path,
    question: str | None = None,
    now: datetime | None = None,
) -> Response:
    """Answer of the user to what the system asked, or a correction of what it filled in by itself.

    A request that was asked back is completed under its own id. One that was answered by a learned default is
    confirmed by `yes`; anything else corrects the default, and the request is answered anew.

    Args:
      request_id: as the response names it. answer: yes, no, one of the values that were offered, or in words, in
        English or French; for a page its number. question: again, where the audit log does not keep its text.

    Raises:
      ValueError: the log is off, it has no such request or nothing was asked or filled in, it had its reply already, an
        empty reply or one of over 200 characters.

    Source: rules S5.2, S5.4.
    """
    system = lab if isinstance(lab, Lab) else Lab.open(lab, clarify=True)
    return clarification.replied(request_id, answer, system, answered, question=question, now=time_of(now))


def answered(request: Request, system: Lab) -> Response:
    """Response of the chain of gates: retrieval, verdict, generation, and the gates on the answer."""
    text, named, selected = request.text, request.documents, request.selected
    start = perf_counter()
    ways = {
        one: Key(system.policy.policy_id, system.fingerprint, one, text, named) for one in system.retriever.strategies
    }
    made_by = (system.generator.name, system.scorer.name, selected)
    told = chosen(text, ways, made_by, request.id, system)
    key, identity = ways[told.arm], {"request_id": request.id, "arm": told.arm, "arm_reason": told.reason}
    kept = None if system.caches is None else system.caches.answers.get(key.digest("answer", *made_by))
    if kept is not None:
        fields, seen = kept, _seen_before(kept)
    else:
        fields, seen = _answered(text, named, told.arm, selected, key, system)
        fields |= {"policy_id": system.policy.policy_id}
        if system.caches is not None:
            more = {"measures": seen.measures, "offered": seen.offered, "checks": [*map(written, seen.checks)]}
            system.caches.answers.set(key.digest("answer", *made_by), fields | more)
    total = 1e3 * (perf_counter() - start)
    said = Response({**fields, **identity}, seen._replace(ms={**seen.ms, "total": total}, propensity=told.propensity))
    if told.propensity is not None:
        learned(said, system)
    return said


def _seen_before(kept: Mapping[str, Any]) -> Seen:
    """What the cache holds of the way to an answer; it took no time."""
    checks = tuple(map(read, kept.get("checks", ())))
    return Seen({}, True, False, (), checks, kept.get("measures", {}), offered=kept.get("offered", ()))


def _answered(
    text: str, named: tuple[str, ...], arm: str, selected: int | None, key: Key, system: Lab
) -> tuple[dict[str, Any], Seen]:
    said, found, cached = _retrieved(text, named, arm, key, system)
    ms: dict[str, float] = {}
    for one in found:
        for stage, spent in one.ms.items():
            ms[stage] = ms.get(stage, 0.0) + spent
    queries = tuple(one.query for one in found)
    row = measures(said.trace, said, arm)[0].tolist()
    known = dict(zip(("margin", "diversity", "consistency"), map(_present, row), strict=True))
    seen = Seen(ms, False, cached, queries, measures=known, retrieved=_retrieved_was(said))
    return completed(said, text, selected, system, seen)


def _present(value: float) -> float | None:
    """The number, None where it is NaN."""
    return None if np.isnan(value) else value


def _retrieved_was(said: Decisions) -> dict[str, float | None]:
    """Features of rule S4.2 that only retrieval tells, at the depth that decided: for the log, not for a choice."""
    at = said.trace.hits.chunk[0, 0, int(said.outcome.depth[0])] >= 0
    cosine = said.trace.hits.cosine[0, 0, int(said.outcome.depth[0])][at]
    if not len(cosine):
        return {"n_hits": 0.0}
    return {
        "n_hits": float(len(cosine)),
        "cosine_best": float(cosine.max()),
        "cosine_mean": float(cosine.mean()),
        "cosine_std": float(cosine.std()),
    }


def completed(said: Decisions, text: str, selected: int | None, system: Lab, seen: Seen) -> tuple[dict[str, Any], Seen]:
    """What follows on retrieval: the choice among options, generation, and the gates on the answer.

    Args:
      said: of the one question, as far as retrieval goes. selected: the option that the user chose. seen: so far; its
        ms are added to.

    Returns: the response's fields but for arm, policy and request; and what was seen.
    """
    ms = dict(seen.ms)
    if selected is not None:
        return _selected(said, selected, text, system, seen)
    if said.status[0] != Status.ok:
        return _fields(said, system, None), seen._replace(checks=tuple(said.explain(said.trace.cases[0].id)))
    chunks = said.in_slot(0)
    made = checked(text, [said.trace.chunks[number] for number in chunks], system.generator, system.scorer, ms=ms)
    place = (0, 0, int(said.outcome.depth[0]), chunks)
    start = perf_counter()
    answers = answers_of([place], [made], system.generator.name, system.scorer.name)
    told = replace(said.trace, answers=answers)
    final = decide_on(with_answers(said.tables, told, system.policy.structure), told, system.policy, said.limits)
    ms["gates"] = ms.get("gates", 0.0) + 1e3 * (perf_counter() - start)
    return _fields(final, system, made), seen._replace(ms=ms, checks=tuple(final.explain(said.trace.cases[0].id)))


def _retrieved(
    text: str, named: tuple[str, ...], arm: str, key: Key, system: Lab
) -> tuple[Decisions, list[Found], bool]:
    """Retrieval depth by depth, as far as the policy goes; from the cache where it is there."""
    digest = key.digest("strategy")
    rows = None if system.caches is None else system.caches.strategies.get(digest)
    known = [] if rows is None else unpacked(rows["depths"])
    strategy = system.retriever.strategies[arm]
    corpus = system.retriever.chunks[: system.retriever.indexes.n_chunks]  # without the rows of tables
    scope = scopes_of(corpus, [named])[0]
    case = Case("question", text, "ok", selected_sources=named)
    found: list[Found] = []
    limits = thresholds([system.policy])
    further = iter(known) if known else walk(strategy, system.retriever.question(text), scope)
    while True:
        more = list(islice(further, 1))
        if not more:  # the cache holds fewer depths than are wanted
            further = islice(walk(strategy, system.retriever.question(text), scope), len(found), None)
            known = []
            continue
        found += more
        start = perf_counter()
        trace = case_trace(case, arm, found, system)
        measured = tables_of(trace, system.policy)
        found[-1].ms["evidence"] = 1e3 * (perf_counter() - start)
        start = perf_counter()
        said = decide_on(measured, trace, system.policy, limits)
        on = said.status[0] == Status.refuse and bool(chain.goes_on(measured.evidence, limits).any())
        found[-1].ms["gates"] = 1e3 * (perf_counter() - start)
        if not on:
            break
    if system.caches is not None and not known:
        system.caches.strategies.set(digest, {"arm": arm, "depths": packed(found)})
    return said, found, bool(known)


def case_trace(case: Case, arm: str, found: Sequence[Found], system: Lab) -> TraceData:
    """Trace of one question, of the depths that were retrieved."""
    hits = Hits._make(np.concatenate(fields, axis=2) for fields in zip(*(one.hits for one in found), strict=True))
    places = np.unique(hits.chunk[hits.chunk >= 0])
    chunks, hits, vectors = only_hit(system.retriever, hits)
    entities = tuple(system.entities[int(place)] for place in places)
    seen = pattern_hits([case], chunks, system.policy.pattern_lists, entities, system.policy.patterns.digest)
    return TraceData((case,), chunks, (arm,), hits, seen, {"fingerprint": system.fingerprint}, vectors=vectors)


def _fields(said: Decisions, system: Lab, made: Checked | None) -> dict[str, Any]:
    status = Status(int(said.status[0]))
    refused = status == Status.refuse
    answer = system.policy.refusal_message if refused else made.text if made is not None else None
    return {
        "answer": answer,
        "sources": [] if status != Status.ok else _sources(said, said.in_slot(0), made),
        "status": status.name,
        "refused": refused,
        "refusal_reason": said.reason(0) if refused else None,
        "options": _options(said),
        "warnings": said.warnings(0),
        "confidence": float(said.confidence()[0]),
        "route": said.route(0),
        "clarification": None,
        "default_applied": None,
    }


def _sources(said: Decisions, chunks: Sequence[int], made: Checked | None) -> list[str]:
    """Where the answer comes from: what it cites, first, then what else it was given."""
    first = [] if made is None else [chunks[place] for place in made.cited]
    return list(dict.fromkeys(said.trace.chunks[number].shown for number in (*first, *chunks)))


def _options(said: Decisions) -> list[dict[str, Any]]:
    return [
        {
            "id": option.option_id,
            "sources": [f"{name}#{page}" for name, page in option.sources],
            "best_l2": option.best_l2,
            "text": " ".join(said.trace.chunks[option.chunks[0]].text.split())[:PREVIEW],
        }
        for option in said.options(said.trace.cases[0].id)
    ]


def _selected(said: Decisions, selected: int, text: str, system: Lab, seen: Seen) -> tuple[dict[str, Any], Seen]:
    """The user's choice among the options completes the question (rule S3.7)."""
    seen = seen._replace(offered=tuple(_options(said)))
    fields = _fields(said, system, None) | {"options": [], "status": "refuse", "refused": True, "sources": []}
    fields["answer"] = system.policy.refusal_message
    try:
        option = said.select(said.trace.cases[0].id, selected)
    except KeyError as error:
        return fields | {"refusal_reason": str(error.args[0])}, seen
    made = checked(text, [said.trace.chunks[number] for number in option.chunks], system.generator, system.scorer)
    worth = calibrated(np.array(made.confidence), system.policy.structure.calibration)
    told = (float(worth), made.support, made.claim, made.refused)
    checks = tuple(answer_checks(*told, thresholds([system.policy])))
    failed = next((check for check in checks if not check.passes), None)
    if failed is not None:
        return fields | {"refusal_reason": failed.text}, seen._replace(checks=checks)
    sources = _sources(said, option.chunks, made)
    ok = {"status": "ok", "refused": False, "refusal_reason": None, "answer": made.text, "sources": sources}
    return fields | ok, seen._replace(checks=checks)


_WORDS = {
    "en": {"yes": "Yes", "no": "No", OTHER: "Other", "hint": "your own words"},
    "fr": {"yes": "Oui", "no": "Non", OTHER: "Autre", "hint": "avec vos mots"},
}
_FRENCH = frozenset({"autre chose", "une autre page, par son numéro"})  # texts of the option `other`


def buttons(said: Response, *, lab: Lab, then: Callable[[Response], object] | None = None) -> Any:  # noqa: ANN401 - a widget
    """A box with the question, a button each for yes, no and the other values, and a field for anything else.

    A click replies once: the buttons go and the answer stands in their place. A reply that is refused is shown, and
    the buttons stay.

    Args:
      said: a response whose `clarification` asks. lab: that gave it. then: called with the answer.

    Raises:
      ValueError: the response asks nothing.

    Example: `raglab.buttons(raglab.ask("Who is the insurer?", lab=lab, documents=["a.md"]), lab=lab)`
    """
    asked = said["clarification"]
    if asked is None:
        msg = f"buttons need a response that asks, got one of status {said['status']!r}; show the response itself."
        raise ValueError(msg)
    import ipywidgets as widgets

    words = _WORDS["fr" if said["options"][-1]["text"] in _FRENCH else "en"]
    shown, box = widgets.Output(), widgets.VBox()
    own = widgets.Text(placeholder=words["hint"])

    def answered(text: str) -> None:
        shown.clear_output()
        try:
            done = reply(said["request_id"], text, lab=lab)
        except ValueError as error:
            shown.append_stdout(f"{error}\n")
            return
        box.children = (head, shown)
        shown.append_display_data(done)
        if then is not None:
            then(done)

    def button(label: str, text: Callable[[], str]) -> Any:  # noqa: ANN401 - a widget
        made = widgets.Button(description=label, layout=widgets.Layout(width="auto"))
        made.on_click(lambda _: answered(text()))
        return made

    head = widgets.HTML(escape(asked["question_to_user"]))  # breaks its lines, as a label does not
    others = [one for one in said["options"] if one["value"] not in {asked["proposed_default"], OTHER}]
    agreed = [] if asked["proposed_default"] is None else [button(words["yes"], lambda: "yes")]
    row = [
        *agreed,
        button(words["no"], lambda: "no"),
        *(button(one["text"], lambda value=one["value"]: value) for one in others),  # type: ignore[misc]
    ]
    box.children = (head, widgets.HBox(row), widgets.HBox([own, button(words[OTHER], lambda: own.value)]), shown)
    return box
