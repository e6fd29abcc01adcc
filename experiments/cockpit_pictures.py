"""Pictures of the cockpit in JupyterLab, light and dark, in a window of 1440 pixels.

`notebooks/pictures`.

    .venv/bin/python experiments/cockpit_pictures.py [--trace out/broker/trace.parquet] [--out
      notebooks/pictures]

The trace is that of notebook 01. The file browser is closed, so that numbers and cases stand side
by side.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from browser import SECONDS, browser, jupyter_lab, only_this_machine, run_all

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[1]
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
PATH = "l2.max_l2"  # the threshold whose curve is shown
CELL = """
import sys
sys.path.insert(0, {root!r})
import raglab
trace = raglab.Trace.load({trace!r})
policy = raglab.Policy.load({root!r} + "/datasets/broker/policy.yaml")
cockpit = raglab.cockpit(trace, policy).set("l2.max_l2", 1.3).set("similarity.min_similarity", 0.55)
cockpit
"""


def picture(page: Page, name: str, out: Path) -> None:
    """Point at a threshold, so that its curve is there, and take the cockpit alone."""
    page.locator(f'.threshold[data-path="{PATH}"] .slider').hover()
    page.wait_for_timeout(1_500)
    page.mouse.move(5, 5)
    page.locator(".raglab-cockpit").first.screenshot(path=str(out / f"cockpit-{name}.png"))


def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, default=ROOT / "out" / "broker" / "trace.parquet")
    parser.add_argument("--out", type=Path, default=ROOT / "notebooks" / "pictures")
    args = parser.parse_args()
    source = CELL.format(root=str(ROOT), trace=str(args.trace.resolve())).strip()
    cell = {
        "cell_type": "code",
        "id": "one",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = {
        "cells": [cell | {"source": source}],
        "metadata": kernel,
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    for theme, name in THEMES.items():
        with tempfile.TemporaryDirectory() as place, browser() as opened:
            folder, settings = Path(place) / "lab", Path(place) / "settings"
            folder.mkdir()
            themes = (
                settings / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
            )
            themes.mkdir(parents=True)
            (themes / "themes.jupyterlab-settings").write_text(
                json.dumps({"theme": name}), encoding="utf-8"
            )
            (folder / "cockpit.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
            with jupyter_lab(folder, settings) as address:
                page = opened.new_page(viewport={"width": 1440, "height": 1000})
                only_this_machine(page)
                run_all(page, address.format("cockpit.ipynb"))
                page.wait_for_selector(".raglab-cockpit", timeout=SECONDS * 1e3)
                page.locator("[data-id=filebrowser]").first.click()  # the file browser goes
                page.wait_for_timeout(1_000)
                picture(page, theme, args.out)


if __name__ == "__main__":
    main()
