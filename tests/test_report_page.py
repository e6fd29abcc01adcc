"""The report: worked examples of its numbers first, then the page.

Whole, escaped, the same bytes twice.
"""

from __future__ import annotations

import base64
import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from hostile_texts import MARKUP, assert_inert
from labelled import labelled, unsplit
from raglab import metrics, replay
from raglab.displays import tables
from raglab.lab.answer_signals import AnswerSignals
from raglab.lab.certificate_checks import check_policy
from raglab.lab.certification import certify_best, certify_policy
from raglab.lab.decision_fitting import fit_decision
from raglab.lab.goals import front
from raglab.lab.report import blocks, rendering
from raglab.lab.report import first_screen as first
from raglab.lab.report import page as report_page
from raglab.lab.report import promise_sections as promises
from raglab.lab.report.case_counts import (
    confusion_counts,
    decided_by_label,
    flipped_cases,
    threshold_curves,
)
from raglab.lab.report.page import write_report
from raglab.lab.study import tune
from raglab.lab.study_result import TuneResult
from raglab.lab.targets import BOUGHT, UNREACHABLE, reachable, verdicts
from raglab.lab.traffic_review import review
from raglab.lab.untuned_policies import always_answer, always_refuse
from raglab.store.policies import Policy
from raglab.store.traces import Trace as StoredTrace
from raglab.values import Case, Chunk, Hits, Status, TraceData
from raglab.words.html_display import Cell

EVIL = "<script>alert('1')</script>"
TARGETS = {"false_refusal_rate": 0.10, "hallucination_rate": 0.01}
RISK = "hallucination_rate"
VOID = {"meta", "img", "br", "link", "input", "hr", "wbr"}
CHUNKS = (
    Chunk("a", "the flood excess is 400", "docs/a.md", 1, tags={"product": "home"}),
    Chunk("b", "the theft excess is 250", "docs/b.md", 1, tags={"product": "fleet"}),
    Chunk("c", f"text {EVIL}", f"docs/{EVIL.replace('/', '')}.md", 1, tags={"product": "hostile"}),
)


def some_trace(rows, *, split="report"):
    """Trace of one arm and three hits a case.

    Chunks a, b, c, the first at `l2` and `score`, 0.1 apart.

    Args:
      rows: query, label, l2, score.
    """
    cases = tuple(
        Case(f"q{number}", query, label, ("a.md#1",) if label == "ok" else (), split=split)
        for number, (query, label, _, _) in enumerate(rows)
    )
    nearest, best = np.array([row[2:] for row in rows]).T[:, :, None, None, None]
    l2, score = nearest + np.array([0.0, 0.1, 0.2]), best * np.array([1.0, 0.5, 0.25])
    place = np.zeros(l2.shape, np.int32) + np.arange(3, dtype=np.int32)
    measured = (l2, 1 - l2 / 2, score, score, score, *[np.zeros_like(l2)] * 3)
    hits = Hits(place, place, *measured, np.full(l2.shape[:-1], 3, dtype=np.int32))
    meta = {
        "fingerprint": "f00d",
        "corpus": f"corpus {EVIL}",
        "n_documents": 3,
        "n_chunks": 3,
        "parameters": {"encoder": "none", "reranker": "late-interaction"},
    }
    return TraceData(cases, CHUNKS, ("hybrid",), hits, None, meta)


def stored(bare):
    """A trace with the methods of one."""
    return StoredTrace(bare.cases, bare.chunks, bare.arms, bare.hits, None, bare.meta)


ROWS = [
    ("flood excess?", "ok", 0.3, 0.9),
    ("theft excess?", "ok", 0.7, 0.7),
    (f'{EVIL} & "quotes"', "refuse", 0.9, 0.5),
    ("which one?", "ambiguous", 1.0, 0.2),
]


def policies():
    """Published thresholds, a looser policy, and one that refuses everything."""
    base = Policy.load()
    looser = base.replace("similarity.min_similarity", 0.4, "confidence.tau_default", 10.0)
    return {
        "defaults": base,
        "tuned": looser,
        "always-answer": always_answer(base),
        "always-refuse": always_refuse(base),
    }


class Tags(HTMLParser):
    """Tags, attributes and text of a page; a tag that is not closed is an error."""

    def __init__(self, page):
        """Read the page."""
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        """Close the tag that is open."""
        assert self.open.pop() == tag


def without_own_script(page):
    """Page without the one script that it runs, which is the project's own, named by its hash."""
    script = Path(rendering.__file__).with_name("tables.js").read_text(encoding="utf-8").strip()
    assert page.count(f"<script>{script}</script>") == 1
    policy = re.findall(r'Content-Security-Policy" content="([^"]+)"', page)[0]
    assert f"script-src {rendering.script_hash(script)};" in html.unescape(policy)
    return page.replace(f"<script>{script}</script>", "")


def written(folder, trace, these=None, **more):
    """Text of a report."""
    return write_report(trace, these or policies(), out=folder / "page.html", **more).read_text(
        encoding="utf-8"
    )


@pytest.fixture
def unpainted(monkeypatch):
    """Leave out the painting of pictures, which is most of the time of a page."""
    monkeypatch.setattr(blocks, "png", lambda drawn, note="": str((drawn, note)).encode())


def whole_page(folder):
    """Text of a report with everything in it, names and frames hostile."""
    trials = pd.DataFrame(
        {"false_refusal_rate": [0.0, 0.5, 1.0], "hallucination_rate": [0.5, 0.2, np.nan]}
    )
    flat_ranges = pd.DataFrame({"path": [EVIL], "value": [0.5], "low": [np.nan]})
    these = policies() | {f"$x_{EVIL}": policies()["tuned"]}
    return written(
        folder,
        some_trace(ROWS),
        these,
        trials=trials,
        flat_ranges=flat_ranges,
        notes=[EVIL],
        targets=TARGETS,
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Report with everything in it, names and frames hostile."""
    return whole_page(tmp_path_factory.mktemp("report"))


def signals_of(score, right, label):
    """Answered cases with one signal."""
    return AnswerSignals(
        {"s": np.array(score)}, np.array(right), np.array(label, dtype=np.int8), explicit=False
    )


def test_a_rate_over_nothing_meets_nothing():
    """Refusing everything is 0 wrong of 0 answered, and no target is met."""
    row = replay.sweep(some_trace(ROWS), [always_refuse(Policy.load())]).iloc[0]
    rows = verdicts(dict(row), TARGETS, can=True)
    assert [verdict.says for verdict in rows] == ["not met", "not met", "not met", "met"]
    assert "0 of 2 targets" in blocks.verdict_sentence("x", rows)
    assert [verdict.says for verdict in verdicts(dict(row), TARGETS, can=False)][:2] == [
        UNREACHABLE
    ] * 2


def _row(**rates):
    """A row of the sweep, of k and n by rate."""
    counts = {"false_refusal_rate": (0, 40), "hallucination_rate": (0, 50), "coverage": (50, 100)}
    counts |= {"over_ask_rate": (0, 80)} | rates
    row: dict[str, Any] = {}
    for name, (k, n) in counts.items():
        row |= {
            name: k / n if n else np.nan,
            f"{name}_k": k,
            f"{name}_n": n,
            f"{name}_low": 0.0,
            f"{name}_high": 1.0,
        }
    return row


def test_a_target_that_asking_back_earns_is_not_met():
    """40 of 100 are answerable.

    Below 20 answered, or above 10 % asked back, nothing is met, and the page says why.
    """
    asks, refuses = {"over_ask_rate": (9, 80)}, [BOUGHT, BOUGHT, "not met", "met"]
    limits: dict[str, Any]
    for rates, limits, says in (
        ({}, {}, ["met"] * 4),
        (asks, {"max_over_ask": 0.2}, ["met"] * 4),
        (asks, {}, [BOUGHT, BOUGHT, "met", "not met"]),
        ({"coverage": (19, 100)}, {}, refuses),
        ({}, {"min_coverage": 0.6}, refuses),
    ):
        rows = verdicts(_row(**rates), TARGETS, can=True, **limits)
        assert [verdict.says for verdict in rows] == says
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        verdicts(_row(), TARGETS, can=True, max_over_ask=-0.1)


def test_what_can_be_met_together_answers():
    """A policy that asks everybody keeps both targets and does not count.

    One that answers does, and is named.
    """
    ok, refuse = Status.ok, Status.refuse
    here = signals_of([4, 3, 2, 1], [True, False, True, True], [ok, refuse, ok, ok])
    asks = dict.fromkeys(TARGETS, 0.0) | {"coverage": 0.5, "over_ask_rate": 0.4}
    table = pd.DataFrame([asks], index=["asks"])
    bought = reachable(here, table, None, TARGETS)
    assert (bought.together, bought.min_coverage) == (False, 0.375)
    assert bought.bought == ("asks", 0.5, 0.4)
    assert reachable(here, table, None, TARGETS, max_over_ask=0.5).best == ("asks", 0.5, 0.4)
    trials = pd.DataFrame(
        [asks | {"over_ask_rate": 0.1, "coverage": share} for share in (0.4, 0.6)]
    )
    reached = reachable(here, table, trials, TARGETS)
    assert reached.best == ("a trial of the study", 0.6, 0.1)
    assert not reachable(here, table, trials, TARGETS, min_coverage=0.7).together


def test_most_harmful_flip_first():
    """A new wrong answer stands before a new false refusal, and that before a mended case."""
    rows = [("one", "ok", 0.3, 0.2), ("two", "refuse", 0.9, 0.9), ("three", "ok", 0.5, 0.9)]
    trace = some_trace(rows)
    before = Policy.load().replace(
        "similarity.min_similarity", 0.76, "confidence.tau_default", 10.0
    )
    after = before.replace("similarity.min_similarity", 0.1, "confidence.tau_default", 40.0)
    assert flipped_cases(replay.decide(trace, before), replay.decide(trace, after)) == [1, 0, 2]


@pytest.mark.parametrize("table", [confusion_counts, decided_by_label])
def test_a_case_without_a_label_is_of_no_label(table):
    """It is refused, rather than counted under the last one."""
    trace = some_trace(ROWS)
    cases = (*trace.cases[:-1], trace.cases[-1]._replace(expect_status=None))
    with pytest.raises(
        ValueError, match="every case must have a label where decisions are counted, got 1 of 4"
    ):
        table(replay.decide(replace(trace, cases=cases), policies()["tuned"]))


def test_front_keeps_what_no_other_beats():
    """No point of the front is beaten, every other one is, and equal points stand together."""
    refused, wrong = np.random.default_rng(1).integers(0, 6, (2, 40)) / 5.0
    is_front = front(refused, wrong)
    for place in range(40):
        beaten = (
            (refused <= refused[place])
            & (wrong <= wrong[place])
            & ((refused < refused[place]) | (wrong < wrong[place]))
        ).any()
        assert is_front[place] == (not beaten)
    assert not front(np.array([np.nan]), np.array([0.1])).any()


def test_each_threshold_is_swept_or_idle():
    """Of the subject, beside the values of both; one whose gate is off has no panel."""
    these = policies()
    tuned = these["tuned"].replace("similarity.enabled", False, "signals.top1_cosine.min", 0.1)
    both = {"defaults": these["defaults"], "tuned": tuned}
    shown, idle = threshold_curves(some_trace(ROWS), both, "tuned")
    panels = {panel.path: panel for panel in shown}
    assert panels["confidence.tau_default"].marks == {"defaults": 40.0, "tuned": 10.0}
    assert "similarity.min_similarity" in idle
    assert not set(panels) & set(idle)
    assert set(panels) | set(idle) == {
        path
        for path in (*replay.SWEPT, "signals.top1_cosine.min")
        if not path.startswith("decision.") and tuned.value(path) is not None
    }


def test_nothing_from_outside_is_markup(page):
    """A script in a query, corpus, policy name, note, frame or test stands as text only."""
    text = without_own_script(page)
    tags = Tags(text)
    assert "script" not in {tag for tag, _ in tags.tags}
    assert "<script" not in text
    assert page.count("&lt;script&gt;") >= 6
    assert not [name for _, attributes in tags.tags for name in attributes if name.startswith("on")]


def test_page_needs_nothing_else(page):
    """Every image is inline, every link stays on the page, nothing is fetched."""
    page = without_own_script(page)
    tags = Tags(page).tags
    images = [attributes for tag, attributes in tags if tag == "img"]
    assert len(images) == 7
    assert all(
        str(image["src"]).startswith("data:image/png;base64,") and image["alt"] for image in images
    )
    places = {attributes.get("id") for _, attributes in tags}
    assert all(str(attributes["href"])[:1] == "#" for tag, attributes in tags if tag == "a")
    assert {str(attributes["href"])[1:] for tag, attributes in tags if tag == "a"} <= places
    assert not {"link", "iframe", "object", "script"} & {tag for tag, _ in tags}
    assert not re.search(r"https?://|url\(|@import", page)


@pytest.mark.usefixtures("unpainted")
def test_a_hostile_corpus_stays_text(tmp_path):
    """Ids, queries, tags, sources, names, notes.

    No script, address, formula, control character or override of theirs.

    Names of policies are drawn as they stand: what looks like a formula that has no end raises
    nothing.
    """
    rows = [(f"{query} {MARKUP}", *columns) for query, *columns in ROWS]
    plain = some_trace(rows)
    cases = tuple(
        item._replace(id=f"{item.id} {MARKUP}", doctype=MARKUP, intent=MARKUP)
        for item in plain.cases
    )
    chunks = tuple(
        item._replace(tags=dict.fromkeys(("product", "vendor"), MARKUP)) for item in plain.chunks
    )
    meta = {**plain.meta, "corpus": MARKUP}
    hostile = replace(plain, cases=cases, chunks=chunks, meta=meta)
    these = policies() | {f"{MARKUP} {item}": policies()["tuned"] for item in ("a", "b")}
    tuned = f"{MARKUP} a"
    text = written(tmp_path, hostile, these, tuned=tuned, notes=[MARKUP])
    assert_inert(without_own_script(text))
    assert "form-action 'none'" in text
    assert "base-uri 'none'" in text
    assert "{{7*7}}" in text  # and nothing of it is a template
    figures_ = {item.name for item in (tmp_path / "page_figures").iterdir()}
    assert all(re.fullmatch(r"[a-z_]+\.png", name) for name in figures_)


@pytest.mark.usefixtures("unpainted")
def test_traffic_has_a_section_where_a_review_is_given(tmp_path):
    """With its picture; a page without a review has none."""
    trace = some_trace(ROWS)
    page = written(tmp_path, trace, review=review(trace, policies()["tuned"]))
    assert "decided_by.answered" in page.partition("This traffic")[2]
    assert (tmp_path / "page_figures" / "traffic.png").is_file()
    assert "This traffic" not in written(tmp_path, trace)


@pytest.mark.usefixtures("unpainted")
def test_a_frozen_cockpit_stands_in_a_frame_of_its_own(tmp_path):
    """Byte for byte in a sandboxed frame.

    Its scripts, and no others, are named in the page's policy.
    """
    frozen = (
        '<p title="&amp;">\u202e"</p><script type="application/json">{}</script><script>go(1 < '
        "2)</script>"
    )
    shown = written(tmp_path, some_trace(ROWS), cockpit=frozen)
    (frame,) = [attributes for tag, attributes in Tags(shown).tags if tag == "iframe"]
    assert frame["sandbox"] == "allow-scripts"
    assert frame["srcdoc"] == frozen
    assert rendering.script_hash("go(1 < 2)") in html.unescape(shown.partition("<body>")[0])
    # as a browser reads it
    assert rendering.inline_scripts("<script>one\r\ntwo\r</script>") == ["one\ntwo\n"]
    assert "unsafe-inline'; script-src" in html.unescape(shown)
    assert "script-src 'unsafe-inline'" not in html.unescape(shown).partition("<body>")[0]


def test_same_input_same_bytes(page, tmp_path):
    """Written twice, page and figures are equal byte for byte; figures stand in it and beside."""
    assert whole_page(tmp_path) == page
    figures = [figure.read_bytes() for figure in tmp_path.rglob("*.png")]
    assert len(figures) >= 6
    assert all(base64.b64encode(figure).decode() in page for figure in figures)


@pytest.mark.usefixtures("unpainted")
def test_incumbent_alone(tmp_path):
    """Without a tuned policy there is no comparison, and the rest stands."""
    page = written(tmp_path, some_trace(ROWS), {"mine": Policy.load()})
    assert "compared with no other policy" in page
    assert "What changed" not in page
    assert "Here mine meets" not in page
    Tags(page)
    with pytest.warns(UserWarning, match="compares nothing.* tuned='mine'"):
        written(tmp_path, some_trace(ROWS), {"defaults": Policy.load(), "mine": Policy.load()})


@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("label", ["ok", "refuse", "ambiguous", None])
def test_cases_of_one_label_or_without_hits_make_a_whole_page(tmp_path, label):
    """What nothing counts is a dash."""
    trace = some_trace([(query, label or "ok", l2, score) for query, _, l2, score in ROWS])
    if label is None:
        none = (np.full_like(field, np.nan if field.dtype == float else -1) for field in trace.hits)
        trace = replace(trace, hits=Hits(*none))
    page = written(tmp_path, trace, targets=TARGETS)
    assert "0/0; –" in page
    Tags(page)


class Study(NamedTuple):
    """What a page reads of a study."""

    selected: str
    incumbent: str
    costs: pd.DataFrame
    held_out_estimate: float
    unseen: bool
    in_sample: tuple[str, ...] = ()
    n_certify: int | None = None
    crossing: Any = None
    mix_costs: Any = None
    findings: Any = None


NAN = float("nan")
CANDIDATES = pd.DataFrame(
    {
        "competes": [True, True, True, False, False],
        "in_sample": [0.5, 0.1, 0.4, 0.4, 0.45],
        "cross_validated": [0.5, 0.3, 0.45, 0.47, NAN],
        "report": [0.45, 0.35, 0.4, 0.44, 0.4],
        "gain": [-0.05, 0.15, 0.0, -0.02, NAN],
        "std_error": [0.05, 0.04, NAN, 0.03, NAN],
        "over_ask": [0.0, 0.02, 0.0, 0.0, NAN],
        "coverage": [1.0, 0.6, 0.7, 0.7, NAN],
        "meets_targets": True,
        "policy_id": "",
    },
    index=["always-answer", "expected cost", "defaults", "one threshold", "chain"],
)
FITTED = ("tuned", "expected cost")


@pytest.fixture(scope="module")
def decided_by_cost():
    """Split report cases, policies, the tuned one by expected cost, its study's words."""
    tuned = fit_decision(
        wide_trace(200, "tune", seed=6), Policy.load(), signals=["confidence", "top1_cosine"]
    )
    free = {"always-answer": always_answer(tuned), "always-refuse": always_refuse(Policy.load())}
    these = {"defaults": Policy.load(), "tuned": tuned, **free, "expected cost": tuned}
    return (
        wide_trace(120, "report", seed=7),
        these,
        Study("expected cost", "defaults", CANDIDATES, 0.37, True),
    )


def beaten(these):
    """Policies whose default refuses all, so that tuned is better than each needing no tuning."""
    return these | {"defaults": these["defaults"].replace("similarity.min_similarity", 0.9)}


def in_sample(study):
    """The study as it is where no case was kept from it."""
    return study._replace(unseen=False, in_sample=FITTED, costs=study.costs.assign(report=NAN))


@pytest.mark.usefixtures("unpainted")
def test_the_page_begins_with_what_was_selected(decided_by_cost, tmp_path):
    """What to use and whether that is shown first; then tuned against each other policy."""
    trace, these, study = decided_by_cost
    notes = ["A note.", "Another note."]
    shown = written(tmp_path, trace, beaten(these), notes=notes, study=study)
    opening, _, below = shown.partition("<nav")
    assert f'{first.USE}</dt><dd class="good">Use tuned' in opening
    assert these["tuned"].policy_id in opening
    assert notes[0] not in opening
    assert all(note in below for note in notes)
    assert opening.count("tuned is better") == 3
    assert "in sample" not in opening
    Tags(shown)


def report_data(trace, these, **more):
    """What the parts of a report read of tuned and default policy."""
    return report_page._report_data(trace, these, None, "tuned", "defaults", "report")._replace(
        **more
    )


def facts(shown):
    """Rows of the first screen by their heads."""
    return {row.head: row for row in shown.facts}


def screen(here, study=None):
    """First screen without costs."""
    return first.first_screen(here, study, None)


@pytest.mark.usefixtures("unpainted")
def test_nothing_is_better_on_the_cases_it_was_chosen_on(decided_by_cost, tmp_path):
    """The old page said in green "Use tuned for its lower cost", p = 1.5e-05.

    It judged a model on the cases it was fitted on.

    The nested estimate stands for its cost; there is no contest, no p-value, no green, and every
    table and figure of its rates says what they are.
    """
    trace, these, study = decided_by_cost
    shown = written(tmp_path, trace, these, study=in_sample(study))
    opening, _, below = shown.partition("<nav")
    assert "0.370 a case" in opening
    assert "chosen, not shown to be better" in opening
    assert 'class="good"' not in opening
    assert "Use tuned" not in opening
    assert not re.search(r"\bp = |tuned saves|>p</th>|tuned is better", shown)
    for title in ("What decided", "Risk and coverage", "Decision boundary"):
        section = below.partition(f"{title}</h3>")[2].partition("</details>")[0]
        captions = re.findall(
            r"<caption><span>(.*?)</span>|<figcaption>(.*?)</figcaption>", section, re.DOTALL
        )
        assert captions
        assert all("".join(pair).startswith("In sample, not comparable.") for pair in captions)
    rates = below.partition("Policies and their rates</h3>")[2].partition("</tbody>")[0]
    marked = dict(re.findall(r"<td>([^<]+)<small>([^<]+)", rates))
    assert set(marked) == set(these)
    assert {name for name in marked if "in sample, not comparable" in marked[name]} == {*FITTED}
    Tags(shown)


def test_tuned_is_not_called_better_where_that_is_not_shown(decided_by_cost):
    """Few cases, cases that may be those tuned on, or always-answer without recorded answers."""
    trace, these, study = decided_by_cost
    few = replace(trace, cases=trace.cases[:4], hits=Hits(*(column[:4] for column in trace.hits)))
    whole_set = report_data(trace, beaten(these))
    lacks = [5 if name == "always-answer" else 0 for name in whole_set.table.index]
    table = whole_set.table.assign(missing_answers_k=lacks, missing_answers_n=60)
    for here, study_shown, advice in (
        (report_data(few, these), study, "open"),
        (report_data(unsplit(trace), beaten(these)), None, "unknown"),
        (whole_set._replace(table=table), study, "uncompared"),
    ):
        shown = screen(here, study_shown)
        assert shown.advice == advice
        cells = [cell for row in shown.against.rows for cell in row]
        if advice == "unknown":
            assert "good" not in {cell.mark for cell in cells}
        assert "good" not in {row.mark for row in shown.facts}


def test_a_tuned_policy_that_is_worse_is_not_to_be_used(decided_by_cost):
    """If refusing all was selected and answering all is better, that wins, and advice says why."""
    trace, these, study = decided_by_cost
    here = report_data(trace, these | {"tuned": always_refuse(Policy.load())})
    shown = screen(here, study)
    rows = facts(shown)
    assert (shown.advice, rows[first.USE].mark, rows[first.NEXT].mark) == ("worse", "bad", "bad")
    by_name = {row[0].text: row for row in shown.against.rows}
    assert by_name["always-answer"][3] == Cell("tuned is worse", mark="bad")


def test_the_first_screen_says_what_is_not_known():
    """A policy that needs no tuning is named as such.

    Without a study nobody knows what was tuned on these cases.
    """
    these = policies() | {"tuned": always_answer(Policy.load())}
    shown = screen(report_data(some_trace(ROWS, split="tune"), these, targets=TARGETS))
    rows = facts(shown)
    assert shown.advice == "same"
    assert rows[first.CASES].mark == "bad"
    assert "meets 1 of 2 targets" in rows[first.PROMISED].details[0]


def test_what_a_policy_costs_is_that_of_the_sweep(decided_by_cost):
    """First-screen cost, saved cost, counts are those of `replay.sweep` and paired comparison."""
    trace, these, study = decided_by_cost
    here = report_data(trace, these)
    shown = screen(here, study)
    row = here.table.loc["tuned"]
    assert f"it costs {row.expected_cost:.3f} a case" in shown.facts[1].text
    for cells in shown.against.rows:
        tuned, second = (
            replay.decide(trace, these[name]).right for name in ("tuned", cells[0].text)
        )
        assert cells[1].text == f"{tuned.mean() - second.mean():+.3f}"
        assert [cells[4].text, cells[5].text] == [
            str((tuned & ~second).sum()),
            str((second & ~tuned).sum()),
        ]


@pytest.mark.usefixtures("unpainted")
def test_targets_are_those_that_the_user_set(decided_by_cost, tmp_path):
    """Nobody sets 10 % and 1 %, yet they made every result "not met".

    Without targets no page names one.
    """
    trace, these, study = decided_by_cost
    trials = pd.DataFrame({"false_refusal_rate": [0.0, 0.5], "hallucination_rate": [0.5, 0.2]})
    plain = written(tmp_path, trace, these, study=study, trials=trials)
    text = re.sub(r"base64,[^\"]+|<wbr>", "", plain)
    assert "<h3>Targets</h3>" not in plain
    assert not re.search("not met|meets no|meets every|>met<|[dD]ashed|meets_targets", text)
    wanted = written(
        tmp_path, trace, these, study=study, trials=trials, targets={"over_ask_rate": 0.2}
    )
    assert "over_ask_rate ≤ 20\u00a0%" in wanted
    assert "hallucination_rate ≤ 1\u00a0%" not in wanted
    with pytest.raises(ValueError, match="a target must be one of"):
        written(tmp_path, trace, these, targets={"x": 0.1})


def test_a_target_that_is_wanted_high_is_met_above_it():
    """Coverage of 1/2 keeps 0.4 and not 0.6.

    A target takes the place of the constraint of its name.
    """
    row = _row(coverage=(50, 100))
    for limit, says in ((0.4, "met"), (0.6, "not met")):
        rows = verdicts(row, {"coverage": limit}, can=True)
        assert [(verdict.name, verdict.says, verdict.is_target) for verdict in rows] == [
            ("coverage", says, True),
            ("over_ask_rate", "met", False),
        ]
    assert verdicts(row, {}, can=True) == []


@pytest.mark.parametrize("name", metrics.RATES)
def test_what_a_threshold_reaches_is_what_its_decisions_count(name):
    """Of each rate.

    A target at the rate of a threshold is reachable, one beyond all of them is not.
    """
    rng = np.random.default_rng(11)
    label = rng.integers(0, 3, 30).astype(np.int8)
    score, right = rng.random(30).round(1), (label == Status.ok) & (rng.random(30) < 0.7)
    here, low = (
        AnswerSignals({"s": score}, right, label, explicit=False),
        metrics.RATE_TABLE[name].better == "low",
    )
    rates = []
    for at in np.unique(score):
        answered = score >= at
        cells = np.where(answered, Status.ok, Status.refuse) * 6 + label * 2 + right
        counts = np.bincount(cells, minlength=metrics.N_CELLS)
        every = metrics.rates(metrics.rate_counts(counts), metrics.label_counts(counts))
        rates.append(float(every[metrics.RATES.index(name)]))
    best = min(rates) if low else max(rates)
    table, free = pd.DataFrame(index=[]), {"min_coverage": 0.0}
    assert reachable(
        here, table, None, {name: min(best + 1e-9, 1.0) if low else best - 1e-9}, **free
    ).together
    beyond = best - 0.01 if low else best + 0.01
    if 0.0 <= beyond <= 1.0:
        assert not reachable(here, table, None, {name: beyond}, **free).together


@pytest.mark.usefixtures("unpainted")
def test_the_page_of_a_study_shows_its_certification(small_study, tmp_path, monkeypatch):
    """Promised or refused, with its look.

    In neither case the first screen proposes the test that was made.
    """
    monkeypatch.setattr(TuneResult, "cockpit_page", lambda _: None)
    trace, result = small_study
    opening = {}
    for alpha in (None, 0.8, 0.001):
        tested = (
            None
            if alpha is None
            else certify_policy(trace, result.policy, targets={RISK: alpha}, again=True)
        )
        page = result.report(tmp_path / "page.html", certification=tested)
        shown = html.unescape(page.read_text(encoding="utf-8")).replace("\xa0", " ")
        opening[alpha] = shown.partition("<nav")[0]
    proposes = "Certify tuned on split certify"
    assert "Nothing: tuned holds no certificate." in opening[None]
    assert proposes in opening[None]
    assert (
        f"{RISK} ≤ 80 % with 90 % confidence, on questions like the 120 cases that certified it"
        in opening[0.8]
    )
    assert f"Nothing: tuned was tested and is not certified: {RISK} at most 0.001" in opening[0.001]
    assert not any(proposes in opening[alpha] for alpha in (0.8, 0.001))


@pytest.mark.usefixtures("unpainted")
def test_doors_state_the_rule(tmp_path):
    """No cases, no incumbent, and trials without rates stop with rule and remedy, write nothing."""
    here, base = some_trace(ROWS), Policy.load()
    more: dict[str, Any]
    for trace, these, more, rule in (
        (here, {"tuned": base, "mine": base}, {}, "hold the incumbent, got tuned, mine"),
        (here, {"defaults": base, "mine": base}, {"tuned": "mien"}, "got mine and tuned='mien'"),
        (here, None, {"trials": pd.DataFrame({"x": [1]})}, "false_refusal_rate"),
        (replace(here, cases=()), None, {}, "at least one case"),
    ):
        with pytest.raises(KeyError if "trials" in more else ValueError, match=rule):
            written(tmp_path, trace, these, **more)
    assert not list(tmp_path.iterdir())


def wide_trace(n, split, seed=0):
    """Trace of n answerable and unanswerable cases, separated by confidence, with own queries."""
    rng = np.random.default_rng(seed)
    good = rng.random(n) < 0.7
    score = np.clip(
        np.where(good, rng.normal(0.75, 0.1, n), rng.normal(0.3, 0.1, n)), 0.01, 0.99
    ).round(2)
    rows = [
        (f"{split} question {place}", "ok" if ok else "refuse", 0.3, float(value))
        for place, (ok, value) in enumerate(zip(good, score, strict=True))
    ]
    return stored(some_trace(rows, split=split))


@pytest.fixture(scope="module")
def certified():
    """Policy keeping two targets at 90 % confidence, certified on 300 cases, ordered on others.

    The others are 300 cases too.
    """
    two = [wide_trace(300, split, seed) for seed, split in enumerate(("tune", "certify"), start=1)]
    hits = Hits(*(np.concatenate(pair) for pair in zip(two[0].hits, two[1].hits, strict=True)))
    both = StoredTrace(two[0].cases + two[1].cases, CHUNKS, ("hybrid",), hits, None, two[0].meta)
    start = Policy.load().replace("similarity.min_similarity", 0.1)
    result = certify_best(
        both, start, targets={"hallucination_rate": 0.05, "false_refusal_rate": 0.1}
    )
    assert result.policy is not None
    return result.policy


@pytest.fixture(scope="module")
def small_study():
    """Return a trace with split certify and a study of four trials on it."""
    trace = labelled(3, {"tune": 80, "certify": 120})
    return trace, tune(trace, trials=4, folds=3, repeats=1)


def whole(trace, subject):
    """What the parts read of one policy."""
    return report_page._report_data(trace, {"mine": subject}, None, "tuned", "mine", "report")


FRESH = wide_trace(300, "report", seed=3)


def promised(subject, trace=FRESH, **more):
    """Blocks of the section on promises."""
    return promises.certificate_blocks(whole(trace, subject)._replace(**more))


def test_a_certificate_is_shown_and_tested_again(certified):
    """Promises as certified and, on other cases, the table of the check."""
    table, again, verdict, certificate_table = promised(certified)
    check = check_policy(FRESH, certified)
    answers = tables.percent(dict(certified.certificate or {})["coverage"])
    rows = {row[0].text: row[1].text for row in certificate_table.rows}
    assert (rows["coverage"], rows["over-ask"], rows["looks"]) == (answers, "0.0 %", "1 known of")
    line, mark = promises.promise_line(whole(FRESH, certified))
    assert "hallucination_rate ≤ 5 % and false_refusal_rate ≤ 10 %, all together" in line
    assert mark == "good"
    shown_rows = [[cell.text for cell in row] for row in again.rows]
    assert shown_rows == [
        [tables.number_text(value) for value in row] for row in check.table.itertuples(index=False)
    ]
    assert [row[0].text for row in table.rows] == check.table["target"].tolist()
    assert verdict.text.startswith("Re-test upheld")


def test_cases_that_made_a_certificate_do_not_test_it(certified):
    """On the split that it was certified on the promises stand without a re-test."""
    table, text, _ = promised(certified, wide_trace(300, "certify", seed=2))
    assert table.head[-1] == "upper bound"
    assert text.text.startswith("No re-test")


def test_a_certificate_of_something_else_is_said(certified):
    """One of another policy, of an older raglab or without its parts is no promise."""
    stated = dict(certified.certificate or {})
    older = {
        name: value
        for name, value in stated.items()
        if name not in {"pilot_hash", "looks_recorded"}
    }
    for wrong in ({"hello": 1}, stated | {"policy_id": "000000000000"}, older):
        shown = screen(whole(FRESH, certified.replace("certificate", wrong)))
        row = facts(shown)[first.PROMISED]
        assert (shown.advice, row.mark) == ("invalid certificate", "bad")
        assert "not valid" in row.text
    warning = promised(certified.replace("certificate", stated | {"arm": "graph"}))[-2]
    assert warning.warning
    assert "arm must be one of hybrid" in warning.text


def test_a_promise_of_further_looks_or_by_asking_is_warned_of(certified):
    """The looks as rows, asking back as a warning, and the confidence of all looks beside one's."""
    stated = dict(certified.certificate or {})
    asking = {"rests_on_asking": True, "over_ask_rate": 0.4}
    changed = certified.replace("certificate", stated | {"looks": 2, "spent": 0.15} | asking)
    _, _, warning, *_, certificate_table = promised(changed)
    rows = {row[0].text: row[1].text for row in certificate_table.rows}
    assert (rows["looks"], rows["chance that a look errs"]) == ("2 known of", "15.0 %")
    assert "40.0 %" in warning.text
    line, _ = promises.promise_line(whole(FRESH, changed))
    assert "with 90 % confidence for this test alone, 85 % for all 2 together" in line


def test_without_a_certificate_the_data_it_needs_are_named():
    """A row a target; on the cases it was tuned on a policy's counts promise nothing."""
    needs, *_, table = promised(Policy.load(), targets=TARGETS)
    column = needs.head.index("needed")
    assert [(row[0].text, row[column].text) for row in needs.rows] == [
        ("false_refusal_rate", "(22, 38, 52)"),
        ("hallucination_rate", "(230, 388, 531)"),
    ]
    assert "at a risk of 5 %; 1 % is beyond" in table.caption
    tuned_here = promised(Policy.load(), in_sample=("mine",))
    assert not any("needed" in block.head for block in tuned_here if block.kind == "table")


@pytest.mark.usefixtures("unpainted")
def test_a_certification_of_other_cases_is_no_promise_of_the_page(
    small_study, tmp_path, monkeypatch
):
    """Of another arm, another policy, or candidates that a sequence did not reach.

    Of too few cases it was no test.
    """
    monkeypatch.setattr(TuneResult, "cockpit_page", lambda _: None)
    trace, result = small_study
    certified = certify_policy(trace, result.policy, targets={RISK: 0.8})
    of_another = certify_policy(
        trace, always_answer(result.policy), targets={RISK: 0.9}, again=True
    )
    of_arm = replace(result, settings={**result.settings, "arm": "dense"})
    table = pd.DataFrame({"policy_id": ["first", result.policy.policy_id], "tested": [True, False]})
    stopped = replace(certified, policy=None, table=table)
    for study, certification, rule in (
        (of_arm, certified, "of arm dense, got hybrid"),
        (result, stopped, "of the selected policy"),
        (result, of_another, "of the selected policy"),
    ):
        with pytest.raises(ValueError, match=rule):
            study.report(tmp_path / "page.html", certification=certification)
    few = certify_best(trace, [result.policy], targets={RISK: 0.001})
    page = result.report(tmp_path / "page.html", certification=few).read_text(encoding="utf-8")
    shown = html.unescape(page.partition("<nav")[0]).replace("\xa0", " ")
    assert "tuned was tested" not in shown
    assert "Label more questions of split certify" in shown


@pytest.mark.usefixtures("unpainted")
def test_no_certificate_is_proposed_on_cases_that_a_policy_learned_from(tmp_path):
    """By hand as by a study: the next step names no split certify that the policy was fitted on."""
    trace = labelled(3, {"tune": 80, "certify": 120})
    for split in ("tune", "certify"):
        fitted = fit_decision(trace.split(split), Policy.load())
        policies = {"defaults": Policy.load(), "tuned": fitted}
        page = write_report(trace.split(split), policies, out=tmp_path / "page.html")
        assert "Certify tuned on split certify" not in page.read_text(encoding="utf-8"), split
    page = write_report(trace, policies, out=tmp_path / "page.html")
    assert "Certify tuned on split certify" not in page.read_text(encoding="utf-8")
