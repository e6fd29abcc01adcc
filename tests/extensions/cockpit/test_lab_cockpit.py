"""The cockpit: numbers are those of `sweep`, each drag an exact step, nothing lost or executed."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raglab
from decided import by_cost
from labelled import free_policy, labelled
from raglab.extensions.cockpit import views
from raglab.extensions.cockpit.frozen_page import frozen_html
from raglab.extensions.cockpit.state import CockpitState
from raglab.extensions.cockpit.views import Filter
from raglab.metrics import N_CELLS, cell_costs
from raglab.replay import case_cells
from raglab.store.policies import Policy
from raglab.store.traces import Trace
from raglab.words.characters import visible
from refusals import refused
from worlds import Hit, ask, random_policies, random_trace, trace_of, with_signals

SPLITS = {"tune": 60, "report": 40, "certify": 50}


def split_trace(seed=3):
    """A trace of three splits."""
    return labelled(seed, SPLITS)


def relabelled(trace, rows):
    """The trace with cases of these rows without a label."""
    cases = [
        case._replace(expect_status=None) if row in rows else case
        for row, case in enumerate(trace.cases)
    ]
    return dataclasses.replace(trace, cases=tuple(cases))


def opened(seed=3, **more):
    """A cockpit on split `tune`, with two gates on."""
    return raglab.cockpit(split_trace(seed), free_policy(), **more)


def whole(base):
    """A trace that is stored, of one that is not."""
    return Trace(**{field.name: getattr(base, field.name) for field in dataclasses.fields(base)})


def drawn(seed, n=12):
    """A random trace on coarse grids, and random policies with patterns of one kind."""
    trace = whole(random_trace(seed, n))
    policies = [Policy.model_validate(dict(policy)) for policy in random_policies(seed, 4)]
    return trace, policies


def check_rates(cockpit):
    """Rates, cost and table of the page are those of `sweep`."""
    page = cockpit.page()
    row = raglab.sweep(cockpit.trace, [cockpit.policy], arm=cockpit.arm).iloc[0]
    for rate in [*page["rates"], page["cost"] | {"name": "expected_cost"}]:
        for field in {"value", "k", "n", "low", "high"} & rate.keys():
            expected = row[rate["name"] + f"_{field}".replace("_value", "")]
            assert rate[field] == expected or (rate[field] is None and np.isnan(expected))
    assert np.sum(page["table"]) == len(cockpit.trace)


def embedded(page):
    """Data of a frozen page."""
    (text,) = re.findall(r'id="raglab-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


class Shards:
    """A trace that is no trace in memory."""


class TestNumbers:
    """Every number is that of `raglab.sweep` at the same policy."""

    def test_loading_a_policy_changes_nothing(self):
        """It begins with the very policy, no case changed and no difference."""
        cockpit = opened()
        assert cockpit.policy == free_policy()
        page = cockpit.page()
        assert page["changes"] == []
        assert {row["kind"] for row in page["cases"]["rows"]} == {"same"}
        assert all(shown["difference"] is None for shown in [*page["rates"], page["cost"]])

    def test_correct_cases_are_those_that_pass(self):
        """In the list and in a case; without labels nothing is correct or wrong."""
        cockpit = opened()
        page = cockpit.page()
        marks = {row["id"]: row["correct"] for row in page["cases"]["rows"]}
        rate = next(rate for rate in page["rates"] if rate["name"] == "pass_rate")
        assert len(marks) == len(cockpit.trace)
        assert sum(marks.values()) == rate["k"]
        for case_id, correct in marks.items():
            assert views.case_view(cockpit.here, case_id, labelled=True)["correct"] is correct
        assert views.case_view(cockpit.here, next(iter(marks)), labelled=False)["correct"] is None

    @given(st.integers(0, 400))
    @settings(max_examples=5, deadline=None)
    def test_random_policies_show_what_sweep_says(self, seed):
        """Policies with all gates and rules, over hits with ties."""
        trace, policies = drawn(seed)
        for policy in policies:
            check_rates(raglab.cockpit(trace, policy, compare=policies[0]))

    def test_an_answered_case_is_no_case_of_a_gate(self):
        """Its first hit decides nothing.

        2 of 4 are answered, 1 is asked back by the resolver and 1 refused by l2.
        """
        apart = [Hit(0.25), Hit(0.5, "b.md")]
        equal = [Hit(0.25, "a.md"), Hit(0.25, "b.md")]
        rows = [
            (ask(), [apart]),
            (ask(), [apart]),
            (ask(expect_status="ambiguous"), [equal]),
            (ask(), [[Hit(1.5)]]),
        ]
        policy = Policy.from_mapping({"confidence": {"enabled": False}})
        cockpit = raglab.cockpit(whole(trace_of(*rows)), policy)
        page = cockpit.page()
        counts = {row["name"]: row["decided"] for row in page["gates"] if sum(row["decided"])}
        assert counts == {"answered": [2, 0, 0], "l2": [0, 1, 0], "resolver.options": [0, 0, 1]}
        assert np.sum(page["table"], axis=0).tolist() == [2, 1, 1]

    @given(st.integers(0, 400))
    @settings(max_examples=2, deadline=None)
    def test_counts_beside_gates_are_the_matrix(self, seed):
        """By decision they sum to the table; each filter lists exactly those cases.

        A gate that is off has none.
        """
        trace, policies = drawn(seed)
        (gated,) = with_signals(policies[1:2], seed)
        for policy in (
            policies[0],
            Policy.from_mapping(gated.model_dump(exclude={"policy_id"})),
            by_cost(policies[0]),
        ):
            cockpit = raglab.cockpit(trace, policy)
            page = cockpit.page()
            counts = np.array([row["decided"] for row in page["gates"]])
            assert counts.sum(axis=0).tolist() == np.sum(page["table"], axis=0).tolist()
            names = cockpit.here.decisions.decided_by
            for row in page["gates"]:
                assert row["on"] or not sum(row["decided"]), row["name"]
                assert not row["off_reason"] or not sum(row["decided"]), row["name"]
                cockpit.filter = Filter(decided_by=row["name"])
                assert (
                    cockpit.page()["cases"]["total"]
                    == sum(row["decided"])
                    == int((names == row["name"]).sum())
                )

    def test_the_difference_is_that_of_the_cases(self):
        """The mean of each case's own difference, with Student's t."""
        cockpit = opened().set("similarity.min_similarity", 0.9)
        cells = [
            views.shown(raglab.decide(cockpit.trace, policy)).cells
            for policy in (free_policy(), cockpit.policy)
        ]
        price = cell_costs()
        more = price[cells[1]] - price[cells[0]]
        view = cockpit.page()["cost"]
        assert view["difference"] == pytest.approx(more.mean())
        reach = 2.0009954 * more.std(ddof=1) / np.sqrt(60)  # t of 59 degrees of freedom
        assert view["difference_high"] - view["difference"] == pytest.approx(reach)
        compared = raglab.compare(cockpit.trace, free_policy(), cockpit.policy).table
        differences = compared.set_index("measure")["difference"]
        for rate in cockpit.page()["rates"]:
            if rate["difference"] is not None:
                assert rate["difference"] == differences[rate["name"]]


class TestAxes:
    """A slider moves over exact steps."""

    @given(st.integers(0, 400))
    @settings(max_examples=4, deadline=None)
    def test_every_position_is_an_exact_step(self, seed):
        """Low and high are those of `raglab.steps`, and the policy of a step has its cells."""
        trace, policies = drawn(seed)
        cockpit = raglab.cockpit(trace, policies[0])
        for swept in views.swept_rows(cockpit.here):
            axis = cockpit.axis(swept.path)
            policy = policies[0]
            if policy.value(swept.path) is not None:
                table = raglab.steps(trace, policy, path=swept.path)
                assert axis.low.tolist() == table["low"].tolist()
                assert axis.high.tolist() == table["high"].tolist()
                assert len(axis.cells[0]) == N_CELLS
                assert axis.at >= 0
            inside = (axis.low <= axis.value) & (axis.value <= axis.high)
            assert inside.all()
            for step in {0, len(axis.low) // 2, len(axis.low) - 1}:
                moved = raglab.cockpit(trace, policy).drop(swept.path, step)
                expected = np.bincount(
                    case_cells(moved.here.evidence, [moved.policy])[0], minlength=N_CELLS
                )
                assert axis.cells[step].tolist() == expected.tolist(), (swept.path, step)


class TestMoves:
    """Moves are exact, and can be taken back."""

    def test_undo_redo_and_reset(self):
        """Undo and redo go back and forth, a new move ends what could be redone."""
        cockpit = (
            opened().set("similarity.min_similarity", 0.1 + 0.2).set("similarity.enabled", False)
        )
        assert cockpit.policy.similarity.min_similarity == 0.1 + 0.2
        assert cockpit.undo().policy.similarity.enabled
        assert cockpit.undo().undo().policy == free_policy()
        assert not cockpit.redo().redo().redo().policy.similarity.enabled
        assert cockpit.reset().policy == free_policy()
        assert not cockpit.undo().policy.similarity.enabled
        assert not cockpit.set("similarity.enabled", True).page()["redo"]

    def test_what_is_locked_does_not_move(self):
        """Neither a threshold nor all of a gate."""
        cockpit = opened().lock("similarity.min_similarity").lock("confidence")
        for path in ("similarity.min_similarity", "confidence.tau_default"):
            refused("unlock it first", cockpit.set, path, 0.5)
        cockpit.lock("confidence", False).set("confidence.tau_default", 50.0)
        assert cockpit.policy.confidence.tau_default == 50

    def test_a_search_keeps_what_is_locked(self):
        """It costs no more than before, and is one move."""
        cockpit = opened().lock("similarity")
        points: list[int] = []
        cockpit.tune(trials=100, on_batch=lambda batch: points.append(len(batch)) is None)
        assert cockpit.policy.similarity == free_policy().similarity
        costs = cockpit.rates()["expected_cost"]
        assert costs["here"] <= costs["baseline"]
        assert sum(points) == len(cockpit.trials) == 100
        assert cockpit.undo().policy == free_policy()

    def test_code_and_file_give_the_policy_back(self, tmp_path):
        """As a user would run the one and load the other."""
        policy = free_policy()
        cockpit = (
            raglab.cockpit(split_trace(), policy)
            .set("similarity.min_similarity", 0.55)
            .set("l2.soft_max_l2", None)
        )
        names: dict[str, Any] = {"policy": policy, "raglab": raglab}
        exec(cockpit.code(), names)  # noqa: S102 - our own code, run as a user would
        assert names["policy"] == cockpit.policy
        assert Policy.load(cockpit.save(tmp_path / "policy.yaml")) == cockpit.policy


class TestReport:
    """What was not looked at stays so."""

    def test_each_look_at_the_sealed_split_is_counted(self):
        """Numbered from 1, with the costs that `sweep` has there."""
        cockpit = opened().set("similarity.min_similarity", 0.5)
        assert {case.split for case in cockpit.trace.cases} == {"tune"}
        assert cockpit.report_views == []
        table = cockpit.report()
        cockpit.report()
        assert [look.number for look in cockpit.report_views] == [1, 2]
        assert cockpit.report_views[0].cases == SPLITS["report"]
        swept = raglab.sweep(split_trace().split("report"), [cockpit.policy])
        assert table.loc["here", "expected_cost"] == swept["expected_cost"][0]

    def test_a_certificate_is_of_this_policy(self):
        """The policy as it stands is tested, for the goal's targets or those that are stated."""
        cockpit = opened(goal=raglab.Goal(targets={"hallucination_rate": 0.9}))
        certified = cockpit.certify()
        assert certified.policy.policy_id == cockpit.policy.policy_id
        stated = opened().certify(targets={"hallucination_rate": 0.9})
        assert repr(stated.certificate.promises) == repr(certified.certificate.promises)


class TestOddTraces:
    """Traces that have little."""

    def test_cases_without_labels_show_decisions_and_no_rates(self):
        """A change is neither gain nor loss."""
        cockpit = raglab.cockpit(relabelled(split_trace(), range(150)), free_policy())
        page = cockpit.set("similarity.min_similarity", 0.9).page()
        assert page["rates"] is page["cost"] is page["plane"] is None
        assert page["cases"]["other"] > 0 == page["cases"]["gained"]
        assert any("No case has a label" in note for note in cockpit.notes)
        shown = cockpit._repr_mimebundle_()[0]
        assert shown.keys() == {
            "application/vnd.jupyter.widget-view+json",
            "text/plain",
            "text/html",
        }
        assert "<table" in shown["text/html"]  # where no widget is shown
        assert "<script" not in shown["text/html"]
        refused("label the cases", cockpit.tune, trials=50)

    def test_cases_without_a_label_are_left_out_beside_others(self):
        """And a note says how many."""
        cockpit = raglab.cockpit(relabelled(split_trace(), range(7)), free_policy())
        assert len(cockpit.trace) == SPLITS["tune"] - 7
        assert "7 of 60" in cockpit.notes[0]

    def test_what_learned_from_the_shown_cases_is_in_sample(self):
        """The starting policy and the baseline, each with the count (S6.5, S6.11)."""
        trace = split_trace()
        fitted = raglab.fit_decision(trace, free_policy())
        says = (
            "in sample, not comparable: the model of the decision was fitted or tuned on 60 of "
            "these 60 cases."
        )
        cockpit = raglab.cockpit(trace, fitted)
        assert f"The policy that it begins with is {says}" in cockpit.notes
        compared = raglab.cockpit(trace, free_policy(), compare=fitted)
        assert f"The baseline is {says}" in compared.notes
        assert not any("in sample" in note for note in raglab.cockpit(trace, free_policy()).notes)

    def test_a_trace_of_shards_is_refused(self):
        """With the remedy."""
        with pytest.raises(
            TypeError,
            match=r"^a cockpit must have a trace in memory, got a Shards; .*draw some cases",
        ):
            CockpitState(Shards(), free_policy())  # type: ignore[arg-type]

    def test_no_case_is_refused(self):
        """With what to do."""
        refused("must have cases", raglab.cockpit, split_trace().subset([]), free_policy())

    @pytest.mark.parametrize(
        "text",
        [
            "</script><script>alert(1)</script>",
            "<!-- <img src=x onerror=alert(1)>",
            "\u202egpj.exe\u2066<\u2069",
            "a\u2028b\u2029c\x85d",
            "\x1b[2J\x9b\x07\ufeff\U000e0041",
        ],
    )
    def test_text_of_cases_is_no_markup(self, text):
        """Text that would end the script, a line or its direction is in the page only as data."""
        trace = split_trace()
        cases = tuple(
            case._replace(id=f"{text}{row}", query=text) for row, case in enumerate(trace.cases)
        )
        chunks = tuple(chunk._replace(text=text, source=text) for chunk in trace.chunks)
        cockpit = raglab.cockpit(
            dataclasses.replace(trace, cases=cases, chunks=chunks), free_policy()
        )
        cockpit.set("similarity.min_similarity", 0.9)
        page = frozen_html(cockpit)
        assert text not in page
        assert visible(page, lines=True) == page
        assert page.count("</script>") == 2
        assert {row["query"] for row in embedded(page)["page"]["cases"]["rows"]} == {text}

    def test_a_policy_that_decides_by_cost_shows_its_costs(self):
        """Instead of the gates that it does not use."""
        trace, policies = drawn(5)
        cockpit = raglab.cockpit(trace, by_cost(policies[0]))
        names = [row["name"] for row in cockpit.page()["gates"]]
        assert "expected_cost" in names
        assert "similarity" not in names
        keys = [row["key"] for gate in cockpit.page()["gates"] for row in gate["thresholds"]]
        assert len({*keys}) == len(keys)
        assert {"ok: answered_wrong", "ratio"} <= {*keys}
        check_rates(cockpit.set("decision.ratio", 3.0))
        refused("decides by expected cost", cockpit.tune, trials=50)


class TestFrozen:
    """The page without a kernel."""

    def test_the_page_asks_no_machine_and_holds_its_axes(self, tmp_path):
        """No address, no import; the same cockpit gives the same bytes."""
        cockpit = opened().set("similarity.min_similarity", 0.5)
        page = cockpit.freeze(tmp_path / "cockpit")
        text = page.read_text()
        assert page.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert not re.search(
            r"(?:src|href)\s*=|@import|fetch\(|\bimport\b\s*[(\"'{*]", text.split("<main")[1]
        )
        assert "default-src 'none'" in text
        data = embedded(text)
        assert data["setup"]["frozen"]
        assert set(data["axes"]) == {swept.path for swept in views.swept_rows(cockpit.here)}
        assert cockpit.freeze(tmp_path / "again.html").read_text() == text


class TestWidget:
    """Messages of the page."""

    def test_a_message_moves_the_policy_and_the_page(self):
        """Each gives a page with the next number."""
        cockpit = opened()
        widget = cockpit.widget
        first = widget.page["number"]
        widget.take({"do": "set", "path": "similarity.min_similarity", "value": 0.9})
        assert cockpit.policy.similarity.min_similarity == 0.9
        assert widget.page["number"] == first + 1
        widget.take({"do": "drop", "path": "similarity.min_similarity", "step": 0})
        axis = cockpit.axis("similarity.min_similarity")
        assert cockpit.policy.similarity.min_similarity == axis.value[0]
        widget.take({"do": "switch", "path": "similarity.enabled", "on": False})
        widget.take({"do": "undo"})
        assert cockpit.policy.similarity.enabled
        widget.take(
            {"do": "filter", "filter": {"kind": None, "label": "refuse", "search": "QUESTION"}}
        )
        rows = widget.page["cases"]
        assert rows["total"] == sum(case.expect_status == "refuse" for case in cockpit.trace.cases)

    def test_a_case_shows_its_gates_and_what_would_flip_it(self):
        """Setting the smallest change flips it."""
        cockpit = opened().set("similarity.min_similarity", 0.9)
        row = cockpit.page()["cases"]["rows"][0]
        view = views.case_view(cockpit.here, row["id"], labelled=True)
        assert view["decision"] == row["after"] == "refuse"
        assert not all(check["passes"] for check in view["checks"] if check["gate"] == "similarity")
        flips = {flip["path"]: flip for flip in views.flip_views(cockpit.here, row["id"])}
        flip = flips["similarity.min_similarity"]
        cockpit.set(flip["path"], flip["at"])
        view = views.case_view(cockpit.here, row["id"], labelled=True)
        assert view["decision"] == flip["becomes"]
