"""The report in a real browser.

One screen, narrow as a phone, tables that sort, a frozen page that runs in a frame.
"""

from __future__ import annotations

from typing import Any

import pytest

from experiments.browser import browser, chromium_path
from labelled import labelled
from raglab.lab.report.page import write_report
from raglab.lab.untuned_policies import always_answer, always_refuse
from raglab.store.policies import Policy

pytestmark = [
    pytest.mark.skipif(
        not chromium_path(), reason="no Chromium on this machine: apt-get install chromium"
    ),
]
FROZEN = (
    '<p id="x">waits</p><script>document.getElementById("x").textContent = "runs";</script>'
    '<img src="x" onerror="document.title = 1">'
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Page of a chain beside the free policies, with a frozen page inside it."""
    base = Policy.load().replace("refine.max_depth", 0)
    these = {"defaults": base, "tuned": base.replace("similarity.enabled", False)}
    these |= {"always-answer": always_answer(base), "always-refuse": always_refuse(base)}
    trace = labelled(3, {"report": 60}, steps=None)
    return write_report(
        trace, these, out=tmp_path_factory.mktemp("report") / "page.html", cockpit=FROZEN
    )


@pytest.fixture(scope="module")
def chromium():
    """One browser for all tests."""
    with browser() as found:
        yield found


def opened(chromium, report, width, height):
    """The page in a window of its own, and what it asked for beyond itself or complained of."""
    page: Any = chromium.new_page(viewport={"width": width, "height": height})
    noted: list[str] = []
    page.on(
        "request", lambda one: noted.append(one.url) if one.url.startswith(("http", "ws")) else None
    )
    page.on("pageerror", lambda error: noted.append(str(error)))
    page.goto(report.as_uri())
    return page, noted


def test_the_first_screen_is_one_screen(chromium, report):
    """All of it stands above 800 px; nothing is fetched."""
    page, noted = opened(chromium, report, 1280, 800)
    assert page.evaluate("document.getElementById('first').getBoundingClientRect().bottom") <= 800
    assert not noted


def test_a_phone_scrolls_downwards_only(chromium, report):
    """What is wider than 390 px scrolls within itself."""
    page, _ = opened(chromium, report, 390, 844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_link_opens_a_folded_section_and_print_opens_all(chromium, report):
    """On a phone."""
    page, _ = opened(chromium, report, 390, 844)
    section = page.locator("#what-decided")
    assert section.get_attribute("open") is None
    page.locator('nav a[href="#what-decided"]').click()
    assert section.get_attribute("open") is not None
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0


def test_tables_sort_as_numbers_and_back(chromium, report):
    """By a click up, by Enter down, by another Enter to the order that they came in.

    A dash stays last.
    """
    page, _ = opened(chromium, report, 1280, 800)
    table = page.locator("details", has_text="Policies and their rates").locator("table").first
    head = table.locator("th", has_text="hallucination")
    column = head.evaluate("head => head.cellIndex") + 1
    cells = table.locator(f"tbody td:nth-child({column})")

    def shown():
        return [
            text.split("\n")[0].replace("\u00a0", " ").removesuffix(" %")
            for text in cells.all_inner_texts()
        ]

    came = shown()
    known = sorted(float(text) for text in came if text != "–")
    assert "–" in came
    head.locator("button").click()
    assert [float(text) for text in shown()[:-1]] == known
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(text) for text in shown()[:-1]] == known[::-1]
    assert shown()[-1] == "–"
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") is None
    assert shown() == came


def test_the_frozen_page_runs_and_nothing_else_of_it(chromium, report):
    """Its script runs in its frame, handlers on elements do not, and it cannot reach the page."""
    page, noted = opened(chromium, report, 1280, 800)
    frame = page.frames[1]
    assert frame.locator("#x").inner_text() == "runs"
    assert frame.title() == ""
    assert (
        frame.evaluate(
            "(() => { try { return parent.document.title } catch { return 'apart' } })()"
        )
        == "apart"
    )
    assert not noted
