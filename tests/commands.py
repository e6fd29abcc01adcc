"""Commands of raglab in this process, and a small folder for them."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from raglab.cli import app


def run(*words):
    """Result of a command, which may fail."""
    return CliRunner().invoke(app, list(map(str, words)))


PAGES = {
    "home.md": ("home", "The excess under the home policy is 350 pounds for each claim."),
    "fleet.md": (
        "motor_fleet",
        "The excess under the fleet policy is 1,000 pounds for each vehicle.",
    ),
    "cargo.md": ("marine_cargo", "Cargo is insured from warehouse to warehouse."),
}
CASES = [
    {
        "id": "q1",
        "query": "what is the excess under the home policy",
        "expect_status": "ok",
        "expect_sources": ["home.md#1"],
    },
    {
        "id": "q2",
        "query": "from where to where is cargo insured",
        "expect_status": "ok",
        "expect_sources": ["cargo.md#1"],
    },
    {"id": "q3", "query": "how do I bake bread", "expect_status": "refuse"},
    {"id": "q4", "query": "what is the excess", "expect_status": "ambiguous"},
]


def certified(*arguments):
    """Output of `raglab certify` that certifies nothing, for similarity and confidence gates."""
    ended = CliRunner().invoke(app, ["certify", *arguments])
    assert ended.exit_code == 3, ended.output
    return ended.stdout


def traced_folder(folder):
    """Fill a folder with three documents, eight cases in two splits, and their trace."""
    (folder / "documents").mkdir()
    for name, (domain, text) in PAGES.items():
        (folder / "documents" / name).write_text(
            f"---\ntitle: {domain}\ndomain: {domain}\n---\n{text}\n", encoding="utf-8"
        )
    rows = [
        {**case, "id": f"{split}-{case['id']}", "split": split}
        for split in ("tune", "report")
        for case in CASES
    ]
    (folder / "cases.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    done = run("trace", folder, "--out", folder / "t.parquet", "--quiet", "--json")
    assert done.exit_code == 0, done.output
    return folder
