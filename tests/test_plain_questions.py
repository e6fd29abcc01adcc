"""One question, however it is written: the same in looks, policies, baselines and imports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from labelled import labelled
from raglab.decision.learned_cases import (
    PLAIN_FORM_CODE,
    code_text,
    hash_queries,
    learned_cases,
    with_tuned_cases,
)
from raglab.lab.baseline import baseline_of, compare_baselines
from raglab.lab.certificate_checks import check_policy
from raglab.lab.certification import certify_policy
from raglab.lab.trace_comparison import pair_cases
from raglab.store.case_labels import first_form, question_fingerprint
from raglab.store.policies import Policy
from raglab.words.characters import plain_question

_WIDE = {number: number + 0xFEE0 for number in range(ord("A"), ord("z") + 1)}
WAYS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: f"{text} ",
    lambda text: f"\t{text}\n",
    lambda text: text.replace(" ", "  "),
    lambda text: text.replace(" ", "\u00a0"),
    lambda text: text.upper(),
    lambda text: text.removesuffix("?"),
    lambda text: text.replace("?", " ?!"),
    lambda text: text.replace("?", "？"),
    lambda text: f"\ufeff{text}\u200b",
    lambda text: text[:2] + "\u00ad\u200d" + text[2:],
    lambda text: text.translate(_WIDE),
)
every_way = pytest.mark.parametrize("way", WAYS[1:])
POLICY = Policy.load()


@pytest.fixture(scope="module")
def trace():
    """Cases to certify on, whose questions end in a question mark."""
    return rewritten(labelled(0, {"certify": 120}), lambda text: f"{text}?")


def rewritten(trace, way):
    """The same cases with their questions written in another way."""
    return replace(trace, cases=tuple(case._replace(query=way(case.query)) for case in trace.cases))


@pytest.mark.parametrize(
    "text", ["Who pays?", "Straße 5 m² …", "ﬁle ID no. 7:", "?", "", "e\u200b\u0301"]
)
def test_the_plain_form_is_its_own(text):
    """It is the same for all ways to write a question, and its own plain form."""
    assert len({plain_question(way(f"{text.strip('?')} Yes?")) for way in WAYS}) == 1
    assert plain_question(plain_question(text)) == plain_question(text)


@pytest.mark.parametrize(
    "pair", [("Is it 5 %?", "Is it 5?"), ("What is C#", "What is C"), ("1.2?", "12?"), ("?", "")]
)
def test_other_questions_stay_apart(pair):
    """Signs that mean something are kept."""
    assert plain_question(pair[0]) != plain_question(pair[1])


@every_way
def test_a_case_is_known_however_it_is_written(trace, way, tmp_path):
    """What a policy learned from, a look in a file and in a certificate, a case of a check."""
    again = rewritten(trace, way)
    queries, others = ([case.query for case in of.cases] for of in (trace, again))
    tuned = with_tuned_cases(POLICY, queries)
    (learned,) = learned_cases([tuned], {"certify": others})
    assert (learned.k, learned.n) == (120, 120)
    with pytest.raises(ValueError, match="fitted on"):
        certify_policy(again, tuned, targets={"hallucination_rate": 0.4})
    looks = tmp_path / "looks.jsonl"
    certified = certify_policy(trace, POLICY, targets={"hallucination_rate": 0.4}, looks=looks)
    assert certified.policy is not None
    for file in (looks, None):
        with pytest.raises(ValueError, match="certified on once"):
            certify_policy(again, certified.policy, targets={"hallucination_rate": 0.3}, looks=file)
    with pytest.raises(ValueError, match="new cases"):
        check_policy(again, certified.policy)


@every_way
def test_pairs_are_of_the_same_questions(trace, way):
    """In baselines, between traces, and in tables of scores."""
    again = rewritten(trace, way)
    pairs = compare_baselines(baseline_of(trace, POLICY), baseline_of(again, POLICY))
    assert (pairs.cases, sum(pairs.unpaired.values())) == (120, 0)
    renamed = [case._replace(id=f"new {case.id}") for case in again.cases]
    assert pair_cases(trace.cases, renamed).new == list(range(120))


def _first_codes(queries, monkeypatch):
    """Codes as raglab 0.1.0 wrote them."""
    with monkeypatch.context() as first:
        first.setattr("raglab.decision.learned_cases.plain_question", lambda text: text)
        return code_text(queries).removeprefix(PLAIN_FORM_CODE)


def test_files_of_raglab_0_1_0_are_read_in_both_forms(trace, tmp_path, monkeypatch):
    """The same text is known; of another one the doubt is said, once a set."""
    queries = [case.query for case in trace.cases]
    codes = _first_codes(queries, monkeypatch)
    policy = POLICY.replace(
        "tuned_on", hash_queries(queries), "learned_cases", {hash_queries(queries): codes}
    )
    (known,) = learned_cases([policy], {None: queries[:60]})
    assert (known.k, known.doubt) == (60, "")
    (unseen,) = learned_cases([policy], {None: [text.upper() for text in queries[:60]]})
    assert (unseen.k, unseen.unknown) == (0, ("policy",))
    assert unseen.doubt
    looks = tmp_path / "looks.jsonl"
    looks.write_text(
        f'{{"cases_hash": "{hash_queries(queries)}", "codes": "{codes}", '
        '"key": "k", "delta": 0.1}\n'
    )
    part = trace.subset(list(range(60)))
    with pytest.raises(ValueError, match="certified on once"):
        certify_policy(part, POLICY, targets={"hallucination_rate": 0.4}, looks=looks)
    with pytest.warns(UserWarning, match=r"0\.1\.0") as said:
        certify_policy(
            rewritten(part, str.upper), POLICY, targets={"hallucination_rate": 0.4}, looks=looks
        )
    assert sum("0.1.0" in str(warning.message) for warning in said) == 1


def test_a_baseline_of_raglab_0_1_0_is_paired(trace):
    """By the form that it was written with."""
    now = baseline_of(trace, POLICY)
    former = replace(
        now,
        cases=tuple(
            case._replace(question=question_fingerprint(of, first_form))
            for case, of in zip(now.cases, sorted(trace.cases), strict=True)
        ),
    )
    assert former.cases != now.cases
    assert compare_baselines(former, now).cases == 120
