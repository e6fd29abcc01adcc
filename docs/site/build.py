"""Build the site from the repository, offline: `make docs`, or `python docs/site/build.py`.

The first page is printed.

Warnings of Sphinx are errors, as are links to a page or a place in a page that is not there.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shutil
import sys
import time
import warnings
from contextlib import chdir, redirect_stdout
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import pages  # noqa: E402
import tables  # noqa: E402


class Places(HTMLParser):
    """Anchors and links of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect `id`, `href` and `src`."""
        named = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := named.get(key))}
        if (
            link := named.get("href") if tag == "a" else named.get("src") if tag == "img" else None
        ) is not None:
            self.links.append(link)


def broken_links(folder: Path) -> list[str]:
    """Links of built pages to a file or an anchor that is not there, `page: link`.

    Args:
      folder: of the built site.
    """
    places = {}
    for file in sorted(folder.rglob("*.html")):
        places[file] = Places()
        places[file].feed(file.read_text(encoding="utf-8"))
    broken = []
    for file, page in places.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (file.parent / unquote(address.path)).resolve() if address.path else file
            anchors = places[target].anchors if target in places else None
            anchor = unquote(address.fragment)
            if not target.exists() or (anchor and anchors is not None and anchor not in anchors):
                broken.append(f"{file.relative_to(folder)}: {link}")
    return broken


def freeze_cockpit(file: Path) -> None:
    """Write the cockpit of the questions of `start.md` as one page that needs no kernel.

    Args:
      file: of the page.
    """
    import raglab

    os.environ.setdefault("RAGLAB_PROGRESS", "0")
    blocks = re.findall(
        r"```python\n(.*?)```",
        (pages.ROOT / "docs" / "start.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    names: dict[str, Any] = {}
    with TemporaryDirectory() as folder, chdir(folder), redirect_stdout(StringIO()):
        for block in blocks[:2]:  # the documents and questions, and their trace
            exec(compile(block, "start.md", "exec"), names)  # noqa: S102 - the project's own page
        raglab.cockpit(names["trace"], raglab.Policy.load()).freeze(file.with_suffix(""))


BLOCK = re.compile(r"```python\n(.*?)```\n", re.DOTALL)
IMAGE = """
```{{image}} {place}
:alt: {alt}
:width: 340px
```
"""


DRAWN = (
    *("howto/calibration_curves.md", "howto/figures.md", "howto/own_objective.md"),
    "howto/traffic_mix.md",
)
SAVED = re.compile(r'savefig\("([\w-]+\.png)"\)')
HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)
CARD = """
:::{{grid-item-card}} {title}
:link: {link}
:img-top: {place}
:img-alt: {alt}
:class-title: sd-fs-6
:::
"""


def draw_page(page: Path, folder: Path) -> list[str]:
    """Run the blocks of a page; below each that makes or saves a figure that is put.

    Args:
      page: as it is staged; the figures lie in a folder of its name.
      folder: in which the blocks run.

    Returns:
      a card a figure for the front page, with a link to its heading.
    """
    names: dict[str, Any] = {}
    (pictures := page.with_suffix("")).mkdir(exist_ok=True)
    text, cards = page.read_text(encoding="utf-8"), []

    def with_figure(block: re.Match[str]) -> str:
        names.pop("display", None)
        if block[1].startswith("# not run:"):
            return block[0]
        exec(compile(block[1], page.name, "exec"), names)  # noqa: S102 - the project's own page
        saved = SAVED.search(block[1])
        if "display" not in names and not saved:
            return block[0]
        file = pictures / f"{len(cards)}.png"
        place, alt = file.relative_to(page.parent), ""
        if "display" in names:
            alt = repr(names["display"])
            names["display"].figure_.savefig(
                file, dpi=160, facecolor="white", metadata={"Software": None}
            )
        elif saved:
            alt = saved[1]
            shutil.copyfile(saved[1], file)
        title = HEADING.findall(text[: block.start()])[-1]
        link = f"{page.stem}.html#{pages.slug(title)}"
        cards.append(CARD.format(title=title, link=link, place=place, alt=alt))
        return block[0] + IMAGE.format(place=place, alt=alt)

    with chdir(folder), redirect_stdout(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = BLOCK.sub(with_figure, text)
    page.write_text(drawn, encoding="utf-8")
    return cards


def draw_pages(source: Path) -> None:
    """Draw the figures of the gallery, of some how-tos, and the front page's cards of them.

    Args:
      source: folder of the staged pages.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # not a line a trial
    front = source / "index.md"
    cards = "".join(draw_page(source / "gallery.md", pages.ROOT))
    text = front.read_text(encoding="utf-8")
    front.write_text(text.replace("<!-- cards of the gallery -->\n", cards), encoding="utf-8")
    os.environ.setdefault("RAGLAB_PROGRESS", "0")
    for name in DRAWN:
        with TemporaryDirectory() as folder:
            draw_page(source / name, Path(folder))


def main() -> int:
    """Stage the pages, build them, check the links."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=pages.ROOT / "out" / "docs", help="folder of the site"
    )
    parser.add_argument(
        "--draft", action="store_true", help="read only the pages that changed since the last build"
    )
    options = parser.parse_args()
    try:
        from sphinx.cmd.build import build_main
    except ImportError:
        sys.stderr.write(
            'Sphinx is not installed: .venv/bin/pip install -e ".[docs]", then make docs again.\n'
        )
        return 1
    start = time.monotonic()
    source, html, doctrees = (options.out / name for name in ("source", "html", "doctrees"))
    for folder in (html,) if options.draft else (html, source, doctrees):
        shutil.rmtree(folder, ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    # first, as the gallery is, for Sphinx turns on every line of every log
    freeze_cockpit(frozen := options.out / "cockpit.html")
    yaml = (pages.ROOT / "raglab" / "defaults.yaml").read_text(encoding="utf-8")
    pages.stage(source, tables.reference_pages(yaml))
    draw_pages(source)
    for file in (source / "reference" / "api" / "names").glob("*.rst"):  # of an earlier build
        door, _, name = file.stem.rpartition(".")
        if name not in tables.public_names(importlib.import_module(door)):
            file.unlink()
    arguments = [
        "-b",
        "html",
        "-q",
        "-j",
        "auto",
        "-W",
        "--keep-going",
        "-n",
        "-c",
        str(HERE),
        "-d",
        str(doctrees),
    ]
    if code := build_main([*arguments, str(source), str(html)]):
        return code
    shutil.copyfile(frozen, html / frozen.name)
    if broken := broken_links(html):
        sys.stderr.write("\n".join(["Links to places that are not there:", *broken, ""]))
        return 1
    n_pages = len(list(html.rglob("*.html")))
    sys.stdout.write(
        f"{html / 'index.html'}: {n_pages} pages in {time.monotonic() - start:.0f} s\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
