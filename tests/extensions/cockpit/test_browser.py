"""In a real browser.

The cockpit in JupyterLab and frozen, as a user has them (`experiments/browser.py`).
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

import raglab
from cockpit_browser import (
    PATH,
    cockpit_of,
    cut_elements,
    figure,
    is_within,
    policy_id,
    slide,
    turned,
)
from experiments.browser import (
    SECONDS,
    browser,
    chromium_path,
    jupyter_lab,
    only_this_machine,
    run_all,
    show_pane,
)
from labelled import free_policy, labelled
from raglab.store.policies import Policy
from raglab.words.characters import visible

pytestmark = [
    pytest.mark.skipif(
        not chromium_path(), reason="no Chromium on this machine: apt-get install chromium"
    ),
]
ROOT = Path(__file__).parents[3]
FIRST = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
import raglab
from labelled import free_policy, labelled
trace = labelled(3, {{"tune": 120, "report": 30, "certify": 30}}, steps=None)
goal = raglab.Goal(targets={{"false_refusal_rate": 0.4, "coverage": 0.5}})
cockpit = raglab.cockpit(trace, free_policy(), goal=goal)
cockpit
"""
LAST = """
cockpit.freeze("frozen.html")
print("kernel has", cockpit.policy.policy_id)
"""


@pytest.fixture(scope="module")
def opened():
    """One browser for all tests."""
    with browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Folder of the notebook."""
    folder = tmp_path_factory.mktemp("lab")
    cells = [
        {
            "cell_type": "code",
            "id": f"cell{number}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": text,
        }
        for number, text in enumerate((FIRST.strip(), LAST.strip()))
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    (folder / "cockpit.ipynb").write_text(json.dumps(notebook))
    return folder


@pytest.fixture(scope="module")
def page(opened, place, tmp_path_factory):
    """The notebook with its cells run, in a JupyterLab that may ask no other machine."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    with jupyter_lab(place, tmp_path_factory.mktemp("settings")) as address:
        notebook_page = opened.new_context(viewport={"width": 1280, "height": 1000}).new_page()
        errors: list[str] = []
        notebook_page.on("pageerror", lambda error: errors.append(str(error)))
        addresses = only_this_machine(notebook_page)
        run_all(notebook_page, address.format("cockpit.ipynb"))
        notebook_page.wait_for_selector(".raglab-cockpit", timeout=SECONDS * 1e3)
        notebook_page.wait_for_selector(
            ".jp-OutputArea-output >> text=kernel has", timeout=SECONDS * 1e3
        )
        yield notebook_page
        assert errors == []
        assert [requested for requested in addresses if "raglab" in requested] == []
        notebook_page.close()


@pytest.fixture
def fresh(page):
    """The cockpit at its baseline."""
    cockpit_of(page).get_by_role("button", name="reset").click()
    page.wait_for_selector("text=no change from baseline")
    return page


class TestCockpit:
    """A threshold moved by hand."""

    def test_a_drag_changes_numbers_and_undo_brings_them_back(self, fresh, place):
        """While dragging from the axis, at release from the kernel.

        The saved policy is that of the fresh.
        """
        before, first = figure(fresh, "coverage"), policy_id(fresh)
        slide(fresh, PATH, 0.95)
        changed = (
            '(was) => !was.startsWith(document.querySelector(\'.rate[data-rate="coverage"] '
            ".value').innerText)"
        )
        fresh.wait_for_function(changed, arg=before)  # from the axis, before the kernel knows of it
        assert policy_id(fresh) == first
        during = figure(fresh, "coverage")
        fresh.mouse.up()
        turned(fresh, first)
        after = figure(fresh, "coverage")
        assert before != during == after
        moved = policy_id(fresh)
        cockpit_of(fresh).get_by_role("button", name="save YAML").click()
        fresh.wait_for_selector("text=saved policy.yaml")
        saved = Policy.load(place / "policy.yaml")
        assert saved.policy_id == moved
        assert saved.similarity.min_similarity > 0.5
        cockpit_of(fresh).get_by_role("button", name="undo").click()
        turned(fresh, first, back=True)
        assert figure(fresh, "coverage") == before

    def test_a_case_opens_with_its_gates(self, fresh):
        """A changed case shows its gates and the smallest changes that flip it."""
        slide(fresh, PATH, 0.95)
        fresh.mouse.up()
        show_pane(fresh, "cases")
        row = cockpit_of(fresh).locator(".rows > *").first
        row.wait_for()
        row.click()
        # flips come behind the gates
        fresh.wait_for_selector(".raglab-cockpit .case:not([hidden]) >> text=set it")
        case_text = cockpit_of(fresh).locator(".case").inner_text()
        assert "similarity" in case_text
        fresh.keyboard.press("Escape")
        show_pane(fresh, "numbers")

    def test_a_switch_and_the_keyboard(self, fresh):
        """A gate goes off and on; an arrow moves a slider by one exact step."""
        first = policy_id(fresh)
        switch = cockpit_of(fresh).locator('.gate[data-gate="similarity"] input[role=switch]')
        switch.click()
        turned(fresh, first)
        switch.click()
        turned(fresh, first, back=True)
        slider = cockpit_of(fresh).locator(f'.threshold[data-path="{PATH}"] .slider')
        slider.focus()
        value = slider.get_attribute("aria-valuetext")
        slider.press("ArrowRight")
        turned(fresh, first)
        assert slider.get_attribute("aria-valuetext") != value


@pytest.fixture
def window(fresh):
    """The cockpit in a window that a test makes smaller and larger."""
    yield fresh
    fresh.set_viewport_size({"width": 1280, "height": 1000})
    show_pane(fresh, "numbers")


class TestLayout:
    """What is seen in windows of two sizes, JupyterLab's file browser open as it starts."""

    def test_nothing_is_cut(self, window):
        """No word, unit or number is wider than its place, in numbers, cases and an open case."""
        window.set_viewport_size({"width": 1280, "height": 800})
        slide(window, PATH, 0.95)
        window.mouse.up()
        window.wait_for_timeout(300)
        assert cut_elements(window) == []
        show_pane(window, "cases")
        assert cut_elements(window) == []
        cockpit_of(window).locator(".rows > *").first.click()
        window.wait_for_selector(".raglab-cockpit .case:not([hidden]) >> text=set it")
        assert cut_elements(window) == []
        window.keyboard.press("Escape")

    def test_the_moved_slider_stays_in_view(self, window):
        """At its release, and in a window of another size.

        The expected cost is in view beside it or below it.
        """
        window.set_viewport_size({"width": 1600, "height": 1000})
        cockpit_of(window).evaluate("(one) => one.scrollIntoView()")
        threshold = f'.threshold[data-path="{PATH}"]'
        first = policy_id(window)
        slide(window, PATH, 0.95)
        before = cockpit_of(window).locator(threshold).bounding_box()
        window.mouse.up()
        turned(window, first)
        assert cockpit_of(window).locator(threshold).bounding_box() == before
        for width in (1280, 900):
            window.set_viewport_size({"width": width, "height": 900})
            window.wait_for_timeout(300)
            cockpit_of(window).evaluate("(one) => one.scrollIntoView()")
            assert is_within(window, threshold, ".left")
            assert is_within(window, ".headline", ".centre")


class TestFrozen:
    """The page without a kernel."""

    def test_it_works_without_network(self, opened, page, place):
        """Its slider moves the numbers; nothing is asked of any machine."""
        assert page is not None  # its last cell wrote the file
        context = opened.new_context(offline=True, viewport={"width": 1280, "height": 800})
        frozen = context.new_page()
        errors: list[str] = []
        frozen.on("pageerror", lambda error: errors.append(str(error)))
        frozen.goto((place / "frozen.html").as_uri())
        frozen.wait_for_selector(".raglab-cockpit")
        before = figure(frozen, "coverage")
        slide(frozen, PATH, 0.95)
        assert figure(frozen, "coverage") != before
        frozen.mouse.up()
        frozen.set_viewport_size({"width": 390, "height": 844})
        frozen.wait_for_timeout(300)
        assert frozen.evaluate("document.documentElement.scrollWidth") == 390
        assert cut_elements(frozen) == []
        assert is_within(frozen, f'.threshold[data-path="{PATH}"]', ".left")
        assert is_within(frozen, ".headline", ".centre")
        assert errors == []
        context.close()

    def test_unseen_characters_are_shown_as_escapes(self, opened, tmp_path):
        """Texts and tooltips of the page, as Python shows them."""
        odd = "\u202egpj.exe\u2066 a\u2028b\x1b[2J\x85\ufeff\U000e0041 e\u0301\u200dé 日本"
        trace = labelled(3, {"tune": 12}, steps=None)
        cases = tuple(
            case._replace(id=f"{odd}{row}", query=odd) for row, case in enumerate(trace.cases)
        )
        cockpit = raglab.cockpit(dataclasses.replace(trace, cases=cases), free_policy()).set(
            PATH, 0.9
        )
        context = opened.new_context(offline=True, viewport={"width": 1280, "height": 800})
        frozen = context.new_page()
        frozen.goto(cockpit.freeze(tmp_path / "odd.html").as_uri())
        frozen.wait_for_selector(".raglab-cockpit")
        texts = frozen.evaluate(
            """() => [...document.querySelectorAll(".raglab-cockpit *")].flatMap((one) =>
                 [one.textContent, one.getAttribute("title") ?? "", one.getAttribute("aria-label") \
?? ""])"""
        )
        context.close()
        assert [text for text in texts if visible(text, lines=True) != text] == []
        assert any(visible(odd) in text for text in texts)


class TestKernel:
    """What becomes of a page whose kernel is not there."""

    def test_a_tab_opened_again_shows_the_same(self, fresh):
        """The kernel has the state.

        Another tab of the saved notebook goes on with it, and both show its moves.
        """
        first = policy_id(fresh)
        slide(fresh, PATH, 0.95)
        fresh.mouse.up()
        turned(fresh, first)
        moved, shown = policy_id(fresh), figure(fresh, "coverage")
        fresh.locator('jp-button[data-command="docmanager:save"]').first.click()
        fresh.wait_for_timeout(2_000)
        again = fresh.context.new_page()
        again.goto(fresh.url)
        again.wait_for_selector(".raglab-cockpit", timeout=SECONDS * 1e3)
        turned(again, moved, back=True)
        assert figure(again, "coverage") == shown
        cockpit_of(again).get_by_role("button", name="undo").click()
        turned(again, first, back=True)
        turned(fresh, first, back=True)
        again.close()

    def test_a_restarted_kernel_is_told(self, fresh):
        """Nothing that is shown is lost, and the page says what to do."""
        before = figure(fresh, "coverage")
        fresh.get_by_role("menuitem", name="Kernel", exact=True).click()
        fresh.locator('li[data-command="kernelmenu:restart"]').click()
        fresh.locator(".jp-Dialog .jp-mod-accept").click()
        fresh.wait_for_selector("text=| Idle", timeout=SECONDS * 1e3)
        cockpit_of(fresh).locator('.gate[data-gate="similarity"] input[role=switch]').click()
        fresh.wait_for_selector(
            "text=kernel does not answer; run the cell again", timeout=SECONDS * 1e3
        )
        assert figure(fresh, "coverage") == before
