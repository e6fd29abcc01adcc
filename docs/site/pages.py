"""Pages of the site, staged.

The Markdown of `docs/`, the notebooks, and documents from elsewhere in the project.

Links between files of the repository work there as they stand. In the site a page may be at another
place, so each link is written again; one to a file that is no page becomes its text.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from rules import NUMBER

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {  # documents of the project that are pages of the site, by their path in it
    "raglab/RULES.md": "explanation/rules.md",
    "experiments/README.md": "explanation/findings.md",
    "experiments/scale.md": "explanation/scale.md",
    "SECURITY.md": "project/security.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "datasets/README.md": "project/datasets.md",
}
# folder -> place in the site
PICTURES = {"notebooks/pictures": "notebooks/pictures", "docs/pictures": "pictures"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
HOWTO = "howto/index.md"
FENCE = re.compile(r"^ *(```|~~~)")
ENTRY = re.compile(r"^[ \t]*(?:[^<>\n]*<)?(/?[\w./-]+)>?[ \t]*$", re.MULTILINE)
RULES_LINK = re.compile(r'href="\.\./raglab/RULES\.md"([^>]*)>([^<]*)')
TOCTREE = re.compile(r"^(`{3,}|:{3,})\{toctree\}[^\n]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def sources() -> dict[str, str]:
    """Path in the site of every page that is written by hand, by its path in the repository."""
    pages = {
        path: path.removeprefix("docs/")
        for path in paths("docs", "**/*.md")
        if not path.startswith("docs/site/")
    }
    pages |= {path: path for path in paths("notebooks", "*.ipynb")}
    return pages | {path: place for path, place in ELSEWHERE.items() if (ROOT / path).is_file()}


def paths(folder: str, pattern: str) -> list[str]:
    """Files of a folder, relative to the repository, sorted.

    What a person or a program hides is none of them.
    """
    files = sorted(path.relative_to(ROOT) for path in (ROOT / folder).glob(pattern))
    return [
        path.as_posix() for path in files if not any(part.startswith(".") for part in path.parts)
    ]


def stage(target: Path, generated: dict[str, str]) -> dict[str, str]:
    """Write every page.

    A page that is there with the same text keeps its time, so that Sphinx reads it once.

    Args:
      target: folder; what is in it and is no page any more is removed.
      generated: pages from the tables of the code, by their path in the site.

    Returns:
      the pages that no table of contents names, by title; they are added to that of the how-to
      pages.
    """
    pages = sources()
    remove_others(target, {*pages.values(), *generated})
    texts = {place: staged_text(path, pages) for path, place in pages.items()} | generated
    unlisted = unlisted_pages(texts)
    texts[HOWTO] += further_pages(unlisted)
    for place, text in texts.items():
        write(target / place, text)
    for folder, place in PICTURES.items():
        shutil.copytree(ROOT / folder, target / place, dirs_exist_ok=True)
    return unlisted


def write(path: Path, text: str) -> None:
    """Write a page and its folder; not where the page has that text already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def remove_others(target: Path, places: Iterable[str]) -> None:
    """Remove the files of earlier builds that are no page now.

    Those that Sphinx writes stay, for it checks them.
    """
    wanted = {target / place for place in places}
    for file in [
        path for path in target.rglob("*") if path.is_file() and "names" not in path.parts
    ]:
        if file not in wanted:
            file.unlink()


def staged_text(path: str, pages: dict[str, str]) -> str:
    """Text of a page of the repository with its links as the site has them.

    Of a notebook those of its cells.
    """
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".ipynb"):
        return linked(text, path, pages)
    cells = json.loads(text)
    for row in cells["cells"]:
        if row["cell_type"] == "markdown":
            row["source"] = linked("".join(row["source"]), path, pages)
        for output in row.get("outputs", ()):
            if html := output.get("data", {}).get("text/html"):
                output["data"]["text/html"] = RULES_LINK.sub(rules_link, "".join(html))
    return json.dumps(cells)


def rules_link(link: re.Match[str]) -> str:
    """Link of an output of a notebook to a rule, at the page of rules."""
    number = NUMBER.search(link[2])
    return f'href="../explanation/rules.html{f"#{number[1]}" if number else ""}"{link[1]}>{link[2]}'


def linked(text: str, path: str, pages: dict[str, str]) -> str:
    """A page with its links as the site has them; blocks of code stay as they are.

    Args:
      text: Markdown of the page.
      path: of the page in the repository.
      pages: path in the site of each page.
    """
    lines, fence = [], ""
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if mark and fence in {"", mark[1]}:
            fence = "" if fence else mark[1]
        lines.append(
            line if fence or mark else LINK.sub(lambda link: new_link(link, path, pages), line)
        )
    return "".join(lines)


def new_link(link: re.Match[str], path: str, pages: dict[str, str]) -> str:
    """One link as the site has it: to a page, a picture, an address.

    Of any other file the text alone.
    """
    target, mark, anchor = link[3].partition("#")
    if ":" in link[3] or not target:
        return link[0]
    file = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if file in pages:
        return f"{link[1]}[{link[2]}](/{pages[file]}{mark}{anchor})"
    # generated, or missing, which Sphinx then says
    if file.startswith("docs/") and file.endswith(".md"):
        return f"{link[1]}[{link[2]}](/{file.removeprefix('docs/')}{mark}{anchor})"
    folder, _, name = file.rpartition("/")
    if folder in PICTURES:
        return f"{link[1]}[{link[2]}](/{PICTURES[folder]}/{name})"
    return link[2]


def toctree_entries(text: str) -> list[str]:
    """Entries of the tables of contents of a page."""
    bodies = [
        "\n".join(line for line in body.splitlines() if not line.startswith(":"))
        for _, body in TOCTREE.findall(text)
    ]
    return [entry for body in bodies for entry in ENTRY.findall(body)]


def unlisted_pages(texts: dict[str, str]) -> dict[str, str]:
    """Title of each page that no table of contents names, by its path without ending.

    Args:
      texts: Markdown, by path in the site.
    """
    listed = {"index"}
    for place, text in texts.items():
        entries = toctree_entries(text) if place.endswith(".md") else ()
        listed |= {
            posixpath.normpath(posixpath.join("/", posixpath.dirname(place), entry)).lstrip("/")
            for entry in entries
        }
    pages = {
        posixpath.splitext(place)[0]: text for place, text in texts.items() if place.endswith(".md")
    }
    return {place: title(text) for place, text in pages.items() if place not in listed}


def title(text: str) -> str:
    """First heading of a page of Markdown."""
    return next(
        (line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("# ")),
        "Untitled",
    )


def further_pages(places: Iterable[str]) -> str:
    """A table of contents of pages that no other one names; empty where there is none."""
    entries = "\n".join(f"/{place}" for place in places)
    return (
        f"\n```{{toctree}}\n:caption: Further pages\n:maxdepth: 1\n\n{entries}\n```\n"
        if entries
        else ""
    )


def described(text: str) -> str:
    """First sentence of a page of Markdown, without its links: what `llms.txt` says of it."""
    paragraph = ""
    for part in re.split(
        r"\n\s*\n", re.sub(r"^(```|:::).*?^\1[^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    ):
        if part.strip() and not re.match(r"\s*([#|(<>:-]|```|\d+\.|!\[)", part):
            paragraph = " ".join(LINK.sub(lambda link: link[2], part).split())
            break
    end = re.search(r"[.?!](?= [A-Z]|$)", paragraph)
    sentence = paragraph[: end.end()] if end else paragraph
    return sentence.replace("**", "").rstrip(":")
