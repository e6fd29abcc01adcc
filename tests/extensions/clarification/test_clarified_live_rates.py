"""Live rates from what users said to questions and defaults."""

from __future__ import annotations

from datetime import timedelta

from log_samples import POLICY, START
from log_samples import decided_request as decide
from log_samples import newest_rate as rate
from raglab.audit.label_samples import draw_sample
from raglab.audit.live_rates import live_rates
from raglab.default_learner import ClarificationRequest

KEY = ("insurer_name", "contract", {})


def ask(log, request, status, *, minute=0, **more):
    """One request that is answered, refused by a gate or asked back with a proposal."""
    if status != "ambiguous":
        decide(log, request, status, minute=minute, **more)
        return
    now = START + timedelta(minutes=minute)
    log.opened(request, f"who is {request}?", policy=POLICY, fingerprint="f", models={}, now=now)
    row = log.met(request, KEY, now=now)
    asked = ClarificationRequest(
        target_field=KEY[0],
        question_to_user="Page 1?",
        candidate_values=["1", "toc"],
        proposed_default="1",
    )
    log.clarified(
        request, asked, row=row, kind="page_scope", why="gate ask", conditions={}, now=now
    )
    log.decided(request, {"status": status, "clarification": asked.model_dump()}, now=now)


class TestRates:
    """`live_rates`."""

    def test_feedback(self, audit_logs):
        """A refusal rephrased into an answer, an accepted proposal, a corrected question."""
        log = audit_logs()
        ask(log, "a", "refuse", session="ann", question="who is the insurer?")
        ask(log, "b", "ok", session="ann", question="who is the insurer here?", minute=1)
        ask(log, "c", "ambiguous", minute=2)
        log.signal("c", KEY, "1", "explicit_yes", conditions={})
        log.replied("c", "yes")
        ask(log, "d", "ambiguous", minute=3)
        log.signal("d", KEY, "1", "explicit_no", "toc", conditions={})
        log.replied("d", "toc")
        ask(log, "e", "ambiguous", minute=4)  # nobody replied
        ask(log, "f", "refuse", minute=5)  # taken in silence
        table = live_rates(log)
        refused, asked = (
            rate(table, "false_refusal_rate", "feedback"),
            rate(table, "over_ask_rate", "feedback"),
        )
        assert (refused["estimate"], refused["known"], refused["unknown"]) == (1 / 2, 2, 3)
        assert (asked["estimate"], asked["known"], asked["unknown"]) == (1 / 2, 2, 3)
        assert 0.0 < refused["low"] < 1 / 2 < refused["high"] < 1.0

    def test_silence_is_no_feedback(self, audit_logs):
        """Answers that nobody commented on are unknown.

        No rate counts them, each says how many they are.
        """
        log = audit_logs()
        for number in range(20):
            ask(log, f"s{number:02d}", "ok", minute=number)
        table = live_rates(log).query("source == 'feedback'")
        assert table[["estimate", "low", "high"]].isna().all(axis=None)
        assert table["known"].tolist() == [0, 0, 0]
        assert table["unknown"].tolist() == [20, 20, 20]
        ask(log, "a", "ok", minute=21)
        log.signal("a", KEY, "1", "explicit_no", "toc", conditions={})
        ask(log, "b", "ok", minute=22)
        log.signal("b", KEY, "1", "explicit_yes", conditions={})
        ask(log, "c", "refuse", minute=23)
        row = rate(live_rates(log), "correction_rate", "feedback")
        assert (row["estimate"], row["known"], row["unknown"], row["requests"]) == (
            1 / 2,
            2,
            20,
            23,
        )
        assert 0.0 < row["low"] < 1 / 2 < row["high"] < 1.0


def test_what_was_put_to_the_user_is_sampled(audit_logs):
    """The question to the user stands where an answer would, in a stratum of its own."""
    log = audit_logs()
    for number in range(3):
        ask(log, f"q{number}", "ambiguous", minute=number)
    drawn = draw_sample(log, 3, seed=0)
    assert set(drawn["stratum"]) == {"ambiguous by clarification"}
    assert drawn["answer"].eq("Page 1?").all()
