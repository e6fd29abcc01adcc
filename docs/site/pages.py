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
MOST_WORDS = 1500  # of a page; a longer one is cut at its headings
UNCUT = ("explanation/rules.md", "methods.md")  # looked up by number and by heading
# Words that a reader looks for, and the page that the search of the site shows first for each.
SOUGHT = {
    "howto/calibration_curves.md": ("reliability diagram", "calibration curve"),
    "howto/cascade.md": ("cascade",),
    "howto/traffic_mix.md": ("prevalence",),
    "reference/gates.md": ("abstention",),
    "reference/metrics.md": ("selective prediction",),
}
# folder -> place in the site
PICTURES = {"notebooks/pictures": "notebooks/pictures", "docs/pictures": "pictures"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
HOWTO = "howto/index.md"
FENCE = re.compile(r"^ *(```|~~~)")
ENTRY = re.compile(r"^[ \t]*(?:[^<>\n]*<)?(/?[\w./-]+)>?[ \t]*$", re.MULTILINE)
HEADING = re.compile(r"^#{2,4} (.+)")
ANCHORED = re.compile(r"\]\(/([\w./-]+#[^()\s]+)\)")
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
    texts = {place: staged_text(path, pages) for path, place in pages.items()} | generated
    for place, words in SOUGHT.items():
        texts[place] = found_by(texts[place], words)
    texts = cut_pages(texts)
    remove_others(target, texts)
    unlisted = unlisted_pages(texts)
    texts[HOWTO] += further_pages(unlisted)
    for place, text in texts.items():
        write(target / place, text)
    for folder, place in PICTURES.items():
        shutil.copytree(ROOT / folder, target / place, dirs_exist_ok=True)
    return unlisted


def found_by(text: str, words: Iterable[str]) -> str:
    """A page with words of the index below its heading: the search puts it first for each."""
    head, _, body = text.partition("\n")
    return f"{head}\n\n```{{index}} {', '.join(f'! {word}' for word in words)}\n```\n{body}"


def cut_pages(texts: dict[str, str]) -> dict[str, str]:
    """Pages of at most `MOST_WORDS` words where headings allow it, with links that follow.

    Args:
      texts: of all pages, by path in the site.

    Returns:
      these; a long page has a page for each section, and lists them.
    """
    cut: dict[str, str] = {}
    moved: dict[str, str] = {}
    for place, text in texts.items():
        if not place.endswith(".md") or place in UNCUT or n_words(text) <= MOST_WORDS:
            cut[place] = text
            continue
        top, *sections = at_headings(text.replace("](#", f"](/{place}#"), "## ")
        entries = []
        for name, body in (part for section in sections for part in short_parts(section)):
            part = f"{place.removesuffix('.md')}/{slug(name)}.md"
            entries.append(f"{name} </{part.removesuffix('.md')}>")
            moved |= {f"{place}#{anchor}": f"{part}#{anchor}" for anchor in anchors(body)}
            cut[part] = "\n".join((f"# {title(text)} · {name}", *body.splitlines()[1:], ""))
            moved[f"{place}#{anchors(body)[0]}"] = part
        for section in sections:  # one of which each part has a page
            moved.setdefault(f"{place}#{anchors(section)[0]}", place)
        contents = "\n".join(entries)
        cut[place] = f"{top}\n```{{toctree}}\n:maxdepth: 1\n\n{contents}\n```\n"
    return {
        place: ANCHORED.sub(lambda link: f"](/{moved.get(link[1], link[1])})", text)
        for place, text in cut.items()
    }


def short_parts(section: str) -> list[tuple[str, str]]:
    """Name and text of a section, or where it is long of the parts below its headings."""
    top, *parts = at_headings(section, "### ") if n_words(section) > MOST_WORDS else [section]
    name = heading(top)
    below = [(f"{name} · {heading(part)}", part) for part in parts]
    return below if below and not top.partition("\n")[2].strip() else [(name, top), *below]


def n_words(text: str) -> int:
    """Words with a letter or a digit; the bars of a table are none."""
    return len(re.findall(r"\S*\w\S*", text))


def heading(text: str) -> str:
    """Words of the heading that a text begins with."""
    return re.sub(r"[\[\]`]", "", text.partition("\n")[0].lstrip("# "))


def anchors(text: str) -> list[str]:
    """Anchors of the headings below the first level."""
    return [slug(name) for line in text.splitlines() for name in HEADING.findall(line)]


def at_headings(text: str, mark: str) -> list[str]:
    """A page cut before each heading of a level."""
    parts = [""]
    for line, is_code in marked_lines(text):
        if line.startswith(mark) and not is_code:
            parts.append("")
        parts[-1] += line
    return parts


def slug(heading: str) -> str:
    """Anchor of a heading, as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def marked_lines(text: str) -> Iterable[tuple[str, bool]]:
    """Each line of a page of Markdown, and whether it is of a block of code."""
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = FENCE.match(line)
        if mark and fence in {"", mark[1]}:
            fence = "" if fence else mark[1]
        yield line, bool(fence or mark)


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
    return "".join(
        line if is_code else LINK.sub(lambda link: new_link(link, path, pages), line)
        for line, is_code in marked_lines(text)
    )


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
