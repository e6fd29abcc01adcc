"""Commands of raglab in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from raglab.cli import app


def run(*words: object) -> Result:
    """Result of a command, which may fail."""
    return CliRunner().invoke(app, list(map(str, words)))
