"""Command line (shore): league."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raglab.cli.common import AsJson, Seed, json_records, keep_inputs, say, say_json
from raglab.cli.experiments import OPEN
from raglab.extension_points import extension


def league(
    data: Annotated[
        Path,
        typer.Argument(
            help="Folder of published tables (dba, nomiracl, paretobandit, adarague), or a table "
            "of yours."
        ),
    ],
    table: Annotated[
        str | None, typer.Option(help="Only this table. Default: all that are there.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File .md or .csv of all rows.")
    ] = None,
    level: Annotated[float, typer.Option(help="Level of the intervals, in (0, 1).")] = 0.95,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Replay published tables from their stored outputs, or a table of yours.

    Ahead, level or behind, row by row.

    A row's verdict is that of its interval; two rates of a cell are counted as one, which may be a
    trade.
    """
    from raglab.store.files import Where, csv_text, input_error, write_text

    keep_inputs(out, data)
    if out is not None and out.suffix not in {".md", ".csv"}:
        rule = "--out must be a file .md or .csv"
        raise input_error(Where(str(out)), rule, "choose one of these", out.suffix or "no suffix")
    result = extension("league_table", "league", "raglab league")(
        data, table=table, level=level, seed=seed
    )
    if out is not None:
        page = extension("league_page", "league", "raglab league")
        write_text(page(result) if out.suffix == ".md" else csv_text(result.frame()), out)
    if as_json:
        say_json({"rows": json_records(result.frame()), "notes": result.notes}, indent=2)
    else:
        say(result.text())
    if not result.has_verdict():
        raise typer.Exit(OPEN)


COMMANDS = ((league, "raglab league own.csv --out out/league.md"),)
