"""Speed of the cockpit in a real browser: JupyterLab, its kernel and Chromium on this machine.

    .venv/bin/python experiments/bench_cockpit.py [--cases 10000] [--moves 200]

Prints p50 and p95 in milliseconds of: `drag`, a move of the pointer to the painted frame; `release`
of a slider and `switch` of a gate, to the page that the kernel answers with, painted; `case`, a
click on a case to its painted panel. The page measures itself (`performance.measure`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from browser import SECONDS, browser, jupyter_lab, only_this_machine, run_all, show_pane

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]
ACTS = ("drag", "release", "switch", "case")
PATHS = ("l2.max_l2", "similarity.min_similarity", "confidence.tau_default")
CELL = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/experiments"]
import raglab
from synthetic import FULL, synthetic_trace
cockpit = raglab.cockpit(synthetic_trace(FULL._replace(cases={cases})))
cockpit
"""


def measures(page: Page, name: str) -> np.ndarray:
    """Milliseconds that the page measured of an act."""
    script = "(name) => performance.getEntriesByName(name).map((entry) => entry.duration)"
    durations = page.evaluate(script, f"raglab:{name}")
    return np.array(durations, dtype=np.float64)


def wait_for(page: Page, name: str, count: int) -> None:
    """Wait until an act was measured so many times."""
    condition = "(act) => performance.getEntriesByName(act.name).length >= act.count"
    page.wait_for_function(
        condition, arg={"name": f"raglab:{name}", "count": count}, timeout=SECONDS * 1e3
    )


def drag(page: Page, path: str, moves: int, rng: np.random.Generator) -> None:
    """Drag a slider to and fro, and let it go somewhere.

    On the step that it came from nothing is released.
    """
    slider = page.locator(f'.threshold[data-path="{path}"] .slider')
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    if box is None:
        sys.exit(f"{path}: no slider is shown")
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 5, y)
    page.wait_for_timeout(1_000)
    page.mouse.down()
    for share in rng.uniform(0.02, 0.98, moves):
        page.mouse.move(box["x"] + float(share) * box["width"], y)
        page.wait_for_timeout(20)
    page.mouse.up()
    page.wait_for_timeout(1_500)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument(
        "--moves", type=int, default=200, help="pointer moves of each of the thresholds"
    )
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    cell = {
        "cell_type": "code",
        "id": "one",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
    }
    source = CELL.format(root=str(ROOT), cases=args.cases).strip()
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {
        "cells": [cell | {"source": source}],
        "metadata": kernel,
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    with tempfile.TemporaryDirectory() as place, browser() as opened:
        folder, settings = Path(place) / "lab", Path(place) / "settings"
        folder.mkdir()
        settings.mkdir()
        (folder / "bench.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        with jupyter_lab(folder, settings) as address:
            page = opened.new_page(viewport={"width": 1280, "height": 1000})
            refused = only_this_machine(page)
            run_all(page, address.format("bench.ipynb"))
            page.wait_for_selector(".raglab-cockpit", timeout=2 * SECONDS * 1e3)
            page.wait_for_timeout(3_000)
            for path in PATHS * 7:
                drag(page, path, args.moves // 7, rng)
            switch = page.locator('.gate[data-gate="similarity"] input[role=switch]')
            for count in range(1, 21):
                switch.click()
                wait_for(page, "switch", count)
                page.wait_for_timeout(300)
            show_pane(page, "cases")
            for count in range(1, 21):
                page.locator(".rows > *").nth(count % 6).click()
                wait_for(page, "case", count)
                page.keyboard.press("Escape")
                page.wait_for_timeout(300)
            print(f"{args.cases} cases; ms, p50 and p95; refused requests: {len(refused)}")
            for name in ACTS:
                durations = measures(page, name)
                half, most = np.quantile(durations, [0.5, 0.95])
                print(f"  {name:8} {half:7.1f} {most:7.1f}  (n {len(durations)})")


if __name__ == "__main__":
    main()
