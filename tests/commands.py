"""Commands of raglab in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from raglab.cli import app


def run(*words):
    """Result of a command, which may fail."""
    return CliRunner().invoke(app, list(map(str, words)))
