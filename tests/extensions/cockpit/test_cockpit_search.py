"""A search in a cockpit that is moved meanwhile.

It is of one goal, and what is shown is of one moment.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import raglab
from labelled import free_policy, labelled
from raglab.extensions.cockpit import state, views, widget
from raglab.extensions.cockpit.state import CockpitState

WAIT_S, TRIALS = 60.0, 150


def opened():
    """A cockpit on 60 cases, with two gates on."""
    return raglab.cockpit(labelled(3, {"tune": 60}), free_policy())


def searching(widget):
    """The thread of the widget's search."""
    thread = widget._searching
    assert thread is not None
    return thread


class Pages:
    """A widget that keeps messages, and whose search waits after each batch until it may go on."""

    def __init__(self, monkeypatch):
        self.cockpit = opened()
        self.widget = self.cockpit.widget
        self.sent: list[dict[str, Any]] = []
        self.batch, self.go_on = threading.Event(), threading.Event()
        monkeypatch.setattr(self.widget, "send", lambda message, _=None: self.sent.append(message))
        monkeypatch.setattr(widget, "SEARCH_TRIALS", TRIALS)
        tried_policies = state.tried_policies

        def slowly(job, on_batch, **sizes):
            def wait(points):
                going_on: bool = on_batch(points)
                self.batch.set()
                assert self.go_on.wait(WAIT_S)
                return going_on

            return tried_policies(job, wait, **sizes)

        monkeypatch.setattr(state, "tried_policies", slowly)

    def start(self):
        """Begin to search; returns after the first batch."""
        self.widget.take({"do": "tune"})
        assert self.batch.wait(WAIT_S)
        return searching(self.widget)

    def end(self, thread):
        """Let a search end."""
        self.go_on.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


class TestCosts:
    """Costs that change while a search runs."""

    def test_costs_that_change_during_the_line_search_count(self, monkeypatch):
        """What was found for the old goal is not taken."""
        from raglab.extensions.cockpit import state

        cockpit, best = opened(), state.best_policy

        def changed(*args):
            cockpit.set_cost("ok", "refused", 5.0)
            return best(*args)

        monkeypatch.setattr(state, "best_policy", changed)
        assert cockpit.tune(trials=100).policy == free_policy()
        assert len(cockpit.trials) == 0

    def test_a_page_gets_no_trial_of_the_old_goal(self, monkeypatch):
        """Its trials are removed, the search ends at once, and the next one may begin."""
        pages = Pages(monkeypatch)
        old = pages.start()
        assert pages.widget.page["tuning"]["done"] == len(pages.cockpit.trials) > 0
        pages.widget.take({"do": "cost", "label": "ok", "outcome": "refused", "value": 5.0})
        assert pages.sent[-1] == {"kind": "trials", "from": 0, "n": 0, "total": 0}
        assert pages.widget.page["tuning"] is None
        assert "costs changed" in pages.widget.page["notice"]["text"]
        before = len(pages.sent)
        page = pages.widget.page
        pages.end(old)
        assert pages.sent[before:] == []
        assert pages.widget.page == page
        assert pages.cockpit.policy == free_policy()
        pages.widget.take({"do": "tune"})
        searching(pages.widget).join(WAIT_S)
        assert len(pages.cockpit.trials) == TRIALS
        assert 5.0 in pages.cockpit.page()["costs"][0]
        assert pages.sent[-1]["total"] == TRIALS

    def test_a_search_whose_costs_changed_does_not_hold_up_the_next(self, monkeypatch):
        """It begins while the old one has not ended, and shows points of its own alone."""
        pages = Pages(monkeypatch)
        old = pages.start()
        pages.widget.take({"do": "cost", "label": "ok", "outcome": "refused", "value": 5.0})
        pages.widget.take({"do": "tune"})
        new = searching(pages.widget)
        assert new is not old
        pages.end(old)
        pages.end(new)
        assert len(pages.cockpit.trials) == TRIALS


class TestMoves:
    """Moves while a search runs."""

    def test_a_move_keeps_the_search_on_the_page(self, monkeypatch):
        """It is not started twice, and stops when it is told to."""
        pages = Pages(monkeypatch)
        thread = pages.start()
        progress = pages.widget.page["tuning"]
        pages.widget.take({"do": "set", "path": "similarity.min_similarity", "value": 0.9})
        pages.widget.take({"do": "tune"})
        assert pages.widget.page["tuning"] == progress
        assert searching(pages.widget) is thread
        pages.widget.take({"do": "stop"})
        pages.end(thread)
        assert len(pages.cockpit.trials) < TRIALS
        assert pages.widget.page["tuning"] is None
        assert not pages.cockpit.searching

    def test_a_page_is_of_one_policy(self, monkeypatch):
        """What another thread moves meanwhile is on the next page."""
        cockpit, rate_views = opened(), views.rate_views
        movers: list[threading.Thread] = []

        def moved_meanwhile(*args):
            if not movers:
                movers.append(
                    threading.Thread(target=cockpit.set, args=("similarity.min_similarity", 0.9))
                )
                movers[0].start()
                movers[0].join(0.5)
            return rate_views(*args)

        monkeypatch.setattr(views, "rate_views", moved_meanwhile)
        page = cockpit.page()
        movers[0].join(WAIT_S)
        after = cockpit.page()
        assert (page["policy_id"], page["changes"], page["undo"]) == (
            free_policy().policy_id,
            [],
            False,
        )
        assert [change["path"] for change in after["changes"]] == ["similarity.min_similarity"]

    def test_messages_of_many_threads_lose_nothing(self):
        """Each is a page with its own number, every move is in the history, each page is whole."""
        cockpit = opened()
        first = cockpit.widget.page["number"]
        pages: list[dict[str, Any]] = []
        cockpit.widget.observe(lambda change: pages.append(change["new"]), "page")

        def moves(thread):
            for step in range(5):
                value = round(0.1 + 0.1 * thread + 0.01 * step, 3)
                cockpit.widget.take(
                    {"do": "set", "path": "similarity.min_similarity", "value": value}
                )

        threads = [threading.Thread(target=moves, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert [page["number"] for page in pages] == list(range(first + 1, first + 21))
        policies = {page["policy_id"] for page in pages}
        for _ in range(20):
            policies -= {cockpit.policy.policy_id}
            cockpit.undo()
        assert policies == set()
        assert cockpit.policy == free_policy()
        for page in pages[:4]:
            (change,) = page["changes"]
            alone = CockpitState(cockpit.trace, free_policy()).set(change["path"], change["to"])
            assert page["policy_id"] == alone.policy.policy_id
            assert np.array_equal(page["table"], alone.page()["table"])
