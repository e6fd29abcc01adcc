"""Notebooks in a real browser: 02 runs in JupyterLab and its run opens in MLflow.

The buttons of 06 answer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cockpit_browser import PATH, cockpit_of, figure, policy_id, slide, turned
from experiments.browser import (
    SECONDS,
    browser,
    chromium_path,
    jupyter_lab,
    only_this_machine,
    run_all,
    show_pane,
    wait_for_server,
)
from raglab.store.policies import Policy

pytestmark = [
    pytest.mark.skipif(
        not chromium_path(), reason="no Chromium on this machine: apt-get install chromium"
    ),
]
ROOT = Path(__file__).parents[1]
COCKPIT, CLARIFICATION = "02_cockpit_and_tuning.ipynb", "06_clarification.ipynb"
MINUTES = 4
SERVE = "from raglab.lab.tracking import serve; raise SystemExit(serve(port={port}))"


@pytest.fixture(scope="module")
def opened():
    """One browser for all tests."""
    with browser() as found:
        yield found


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem
)
def test_what_a_notebook_shows_fits_its_page(opened, path, tmp_path):
    """No output is taller than a screen or wider than the page."""
    from nbconvert import HTMLExporter

    made = tmp_path / "page.html"
    made.write_text(HTMLExporter().from_filename(str(path))[0], encoding="utf-8")
    page = opened.new_page(viewport={"width": 1100, "height": 800})
    only_this_machine(page)
    page.goto(made.as_uri(), wait_until="domcontentloaded")
    boxes = page.evaluate(
        "() => [...document.querySelectorAll('.jp-OutputArea-output')]"
        ".map((one) => [one.getBoundingClientRect().height, one.scrollWidth - one.clientWidth])"
    )
    assert len(boxes) > 10
    assert max(height for height, _ in boxes) < 700
    assert max(over for _, over in boxes) <= 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 1100
    page.close()


@pytest.fixture(scope="module")
def project(tmp_path_factory, built):
    """Copy of the project as far as notebooks read it, 06 up to its first buttons."""
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "datasets", root / "datasets", ignore=shutil.ignore_patterns("sealed*"))
    (root / "notebooks").mkdir()
    (root / "out" / "broker").mkdir(parents=True)
    shutil.copyfile(built, root / "out" / "broker" / "trace.parquet")
    for name in (COCKPIT, CLARIFICATION):
        notebook = json.loads((ROOT / "notebooks" / name).read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
        if name == CLARIFICATION:
            asks = [at for at, cell in enumerate(notebook["cells"]) if _shows_buttons(cell)]
            del notebook["cells"][asks[0] + 1 :]
        (root / "notebooks" / name).write_text(json.dumps(notebook), encoding="utf-8")
    return root


def _shows_buttons(cell):
    return cell["cell_type"] == "code" and ".buttons(" in "".join(cell["source"])


@pytest.fixture(scope="module")
def system(project, tmp_path_factory):
    """Address of a JupyterLab at the root of the project."""
    before = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "HF_HUB_OFFLINE": "1"}
    try:
        with jupyter_lab(project, tmp_path_factory.mktemp("settings")) as address:
            yield address
    finally:
        os.environ.clear()
        os.environ |= before


def ran(page, address):
    """Run a notebook to its end; addresses that it asked for on other machines."""
    asked = only_this_machine(page)
    run_all(page, address)
    # Cells that are under way show a star; the last of them is done when none does.
    page.wait_for_function(
        "() => { const all = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')];"
        " return all.length > 0 && all.some((one) => /\\d/.test(one.innerText))"
        " && !all.some((one) => one.innerText.includes('*')); }",
        timeout=MINUTES * 60e3,
    )
    return asked


@pytest.fixture(scope="module")
def page(opened, system):
    """Notebook 02, run whole."""
    found = opened.new_page(viewport={"width": 1280, "height": 2000})
    asked = ran(found, system.format(f"notebooks/{COCKPIT}"))
    assert (
        found.locator(
            ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']"
        ).count()
        == 0
    )
    assert [one for one in asked if "raglab" in one] == []
    yield found
    found.close()


def test_a_threshold_of_the_second_notebook_is_moved(page, project):
    """Numbers and picture change, a case opens, undo restores, saved YAML is the policy shown."""
    cockpit_of(page).scroll_into_view_if_needed()
    show_pane(page, "numbers")
    before, first, picture = figure(page, "coverage"), policy_id(page), _drawing(page)
    slide(page, PATH, 0.3)
    page.mouse.up()
    turned(page, first)
    page.wait_for_function(
        "(was) => document.querySelector('.curve .drawing').innerHTML !== was", arg=picture
    )
    assert figure(page, "coverage") != before
    cockpit_of(page).get_by_role("button", name="save YAML").click()
    page.wait_for_selector("text=saved policy.yaml")
    assert Policy.load(project / "notebooks" / "policy.yaml").policy_id == policy_id(page)
    show_pane(page, "cases")
    cockpit_of(page).locator(".rows > *").first.click()
    page.wait_for_selector(".raglab-cockpit .case:not([hidden]) >> text=set it")
    page.keyboard.press("Escape")
    cockpit_of(page).get_by_role("button", name="undo").click()
    turned(page, first, back=True)
    show_pane(page, "numbers")
    assert figure(page, "coverage") == before


def _drawing(page):
    """The step curve as it is drawn."""
    return str(page.evaluate("document.querySelector('.curve .drawing').innerHTML"))


def test_its_run_opens_in_mlflow(page, opened, project):
    """The page lists the run by name, with its cost and the report among its files."""
    assert page is not None  # its last cells tracked the study
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = os.environ | {"PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(port=port)],
        cwd=project,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for_server(f"http://127.0.0.1:{port}/health", server)
        runs = opened.new_page(viewport={"width": 1600, "height": 1000})
        asked = only_this_machine(runs)
        runs.goto(f"http://127.0.0.1:{port}/#/experiments/1/runs")
        run = runs.locator("a[href*='/runs/']").first
        run.wait_for(timeout=SECONDS * 1e3)
        address = run.get_attribute("href")
        assert run.inner_text().startswith("broker")
        run.click()
        # its description, a metric by trial, a child
        for told in ("Selected: ", "best_cost", "always-answer"):
            runs.locator(f"text={told}").first.wait_for(timeout=SECONDS * 1e3)
        runs.goto(f"http://127.0.0.1:{port}/{address}/artifacts")
        runs.wait_for_selector("text=report.html", timeout=SECONDS * 1e3)
        assert [one for one in asked if "raglab" in one] == []
        runs.close()
    finally:
        os.killpg(server.pid, signal.SIGTERM)  # MLflow serves by processes of its own
        server.wait(SECONDS)


def test_a_click_answers_the_clarification(opened, system):
    """The buttons of the sixth notebook go, and the answer stands in their place."""
    page = opened.new_page(viewport={"width": 1280, "height": 1600})
    # A workspace of its own: the one of the other page would open its notebook too.
    ran(
        page,
        system.replace("/lab/tree/", "/lab/workspaces/buttons/tree/").format(
            f"notebooks/{CLARIFICATION}"
        ),
    )
    buttons = page.locator(".jp-OutputArea-output .widget-button")
    buttons.first.wait_for(timeout=SECONDS * 1e3)
    buttons.first.scroll_into_view_if_needed()
    buttons.first.click()
    buttons.first.wait_for(state="detached", timeout=SECONDS * 1e3)
    answered = page.locator(".jp-OutputArea-output .jupyter-widgets", has_text="answer").last
    answered.wait_for(timeout=SECONDS * 1e3)  # the kernel sends it after the buttons go
    assert "answer" in answered.inner_text()
    page.close()
