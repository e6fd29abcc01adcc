"""The league (shore): which published tables a folder has, and what raglab makes of each cell."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from raglab.extensions.league.accepted_answers import USED
from raglab.extensions.league.adarague import (
    PARTS,
    adarague_folders,
    adarague_rows,
    ignored_note,
    prediction_files,
)
from raglab.extensions.league.dba import dba_folders, dba_rows, is_dba
from raglab.extensions.league.nomiracl import FOLDERS, is_nomiracl, nomiracl_rows
from raglab.extensions.league.own_files import TABLE_SUFFIXES
from raglab.extensions.league.own_tables import own_rows
from raglab.extensions.league.paretobandit import paretobandit_rows
from raglab.extensions.league.rows import (
    AHEAD,
    BEHIND,
    LEVEL,
    NOT_JUDGED,
    RATES,
    TRADE,
    CellVerdict,
    LeagueRow,
    LeagueVerdict,
    cell_verdict,
    is_pooled,
    signed,
)
from raglab.extensions.league.stored_lines import first_record, line_files, walked
from raglab.metrics.intervals import check_level
from raglab.store.files import Where, input_error, shown_value
from raglab.words.html_display import Cell, Fold, Mark, display

if TYPE_CHECKING:
    import pandas as pd

MOST = 12  # folders below that of a layout in which its files lie
SHOWN_CELLS = 5  # cells that a line of text names
DEEPEST = 5  # folders below the path in which a layout is looked for
VERDICTS: tuple[CellVerdict, ...] = (AHEAD, LEVEL, TRADE, BEHIND, NOT_JUDGED)
HEAD = ("cell", "metric", "n", "published", "reproduced", "free", "raglab", "difference", "verdict")
MANY = (
    "Of 20 intervals of a true difference of 0, one misses it on average; a verdict over two "
    "rates reads two."
)


class TableLayout(NamedTuple):
    """Layout of a published repository.

    Its name, what its folder holds, how it is known, and its rows.

    owns: names of the folders in it that are its own; others may hold further tables.
    ignored: sentence that counts the files of the layout that are not read.
    """

    name: str
    holds: str
    is_layout: Callable[[Path], bool]
    rows: Callable[..., list[LeagueRow]]
    takes_seed: bool
    owns: Callable[[Path], set[str]]
    ignored: Callable[[Path], str] = lambda _: ""


def is_paretobandit(folder: Path) -> bool:
    """Whether a folder has a `val_*` or `test_*` JSON lines file whose first record has `arms`."""
    paths = (path for path in line_files(folder) if path.name.startswith(("val_", "test_")))
    return any(isinstance(first_record(path).get("arms"), Mapping) for path in paths)


def is_adarague(folder: Path) -> bool:
    """Whether a folder holds `dev*` and `test*`, each with a folder of predictions.

    The folder in each is `ARM_qa_MODEL_SET`.
    """
    return len({part for part, _ in prediction_files(folder)}) == len(PARTS)


LAYOUTS = (
    TableLayout(
        "dba",
        "SET/MODEL/*.jsonl with `baselines`",
        is_dba,
        dba_rows,
        takes_seed=False,
        owns=dba_folders,
    ),
    TableLayout(
        "nomiracl",
        "relevant/*.jsonl and non_relevant/*.jsonl",
        is_nomiracl,
        nomiracl_rows,
        takes_seed=False,
        owns=lambda _: set(FOLDERS),
    ),
    TableLayout(
        "paretobandit",
        "val_*.jsonl and test_*.jsonl",
        is_paretobandit,
        paretobandit_rows,
        takes_seed=True,
        owns=lambda _: set(),
    ),
    TableLayout(
        "adarague",
        "dev*/ARM_qa_*/ and test*/ARM_qa_*/",
        is_adarague,
        adarague_rows,
        takes_seed=True,
        owns=adarague_folders,
        ignored=ignored_note,
    ),
)


@dataclass(frozen=True, eq=False, repr=False)
class League:
    """Published tables and raglab's place in each of their cells.

    Attributes:
      rows: one a cell and metric, by table; losses stay.
      notes: what was read, with hashes, and what was ignored, with counts.
    """

    rows: tuple[LeagueRow, ...]
    notes: tuple[str, ...]

    def frame(self) -> pd.DataFrame:
        """All rows, a column a field of `LeagueRow`."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=LeagueRow._fields)

    def verdict_counts(self) -> dict[str, dict[str, int]]:
        """Number of cells by table and verdict, a metric each, less the rows of all cells.

        Hallucination and error rate of a cell are counted as one, with the verdict of both
        (`cell_verdict`), which may be `trade`; a row has the verdict of its own interval.
        """
        return self._counts(are_pooled=False)

    def _counts(self, *, are_pooled: bool) -> dict[str, dict[str, int]]:
        tables = {row.table: Counter[str]() for row in self.rows}
        rates: dict[tuple[str, str], list[LeagueVerdict]] = {
            (row.table, row.cell): [] for row in self.rows
        }
        for row in self.rows:
            if row.metric in RATES:
                rates[row.table, row.cell].append(row.verdict)
        for row in (
            row for row in self.rows if is_pooled(row) == are_pooled and row.metric != RATES[1]
        ):
            verdict = (
                cell_verdict(rates[row.table, row.cell]) if row.metric == RATES[0] else row.verdict
            )
            tables[row.table][verdict] += 1
        return {
            table: {name: counts[name] for name in VERDICTS if counts[name]}
            for table, counts in tables.items()
        }

    def tally(self) -> list[tuple[str, str]]:
        """Tables with their cells' verdicts, and apart those of rows of all cells together."""
        pooled = self._counts(are_pooled=True)
        return [
            (
                table,
                _counts_text(counts)
                + f"; all cells together: {_counts_text(pooled[table])}" * bool(pooled[table]),
            )
            for table, counts in self.verdict_counts().items()
        ]

    def text(self) -> str:
        """All rows, a line each, unjudged ones grouped by reason, the tally, and the notes."""
        return "\n".join(
            [*_line_texts(self.rows), repr(self), *(f"note: {note}" for note in self.notes)]
        )

    def has_verdict(self) -> bool:
        """Whether a row is judged."""
        return any(row.verdict != NOT_JUDGED for row in self.rows)

    def __repr__(self) -> str:
        lines = [f"  {table}: {text}" for table, text in self.tally()]
        return "\n".join(
            [
                f"League(rows={len(self.rows)})",
                *lines,
                *([f"  {MANY}"] if self.has_verdict() else []),
            ]
        )

    def _repr_html_(self) -> str:
        """Display for a notebook: a fold a table, the rows of all cells first."""
        folds = []
        for table in dict.fromkeys(row.table for row in self.rows):
            rows = [row for row in self.rows if row.table == table]
            rows = sorted(rows, key=lambda row: not is_pooled(row))
            folds.append(Fold(table, [_cells(row) for row in rows], head=HEAD, open=True))
        notes = Fold("notes", [(note,) for note in (MANY, *self.notes)])
        return display("League", self.tally(), [*folds, notes])


def league_table(
    path: str | Path | pd.DataFrame, *, table: str | None = None, level: float = 0.95, seed: int = 0
) -> League:
    r"""Replay a folder's published tables, or one's own table, and judge raglab on each cell.

    Each cell is judged by what was fitted on other data, and compared in pairs with the published
    method where its stored outputs reproduce it, else with the best policy that costs no label. The
    verdict of a row is that of its interval. A table has many cells: of 100 intervals of true
    differences of 0, five lie on one side of 0 on average.

    Args:
      path: a folder with one or more of the layouts, anywhere up to five folders below; or a table
        of one's own (a DataFrame, or CSV, TSV, JSON lines, Parquet) with `id`, `correct`, signals,
        and optionally `group`, `cost` and `baseline`.
      table: only this layout; a table of one's own takes none.
      level: of the intervals, in (0, 1).
      seed: of resamples and folds. Which folds of questions it gives is no part of an interval.

    Raises:
      InputError: nothing of these is there, or a file cannot be read; with what was looked for.

    Source: docs/league.md.

    Example: a table of one's own, with two signals.
      >>> import tempfile
      >>> lines = [
      ...     f"q{row},{row % 2},{row % 2 + row % 3},{row % 2 + row // 2 % 5}" for row in range(600)
      ... ]
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     table = Path(folder, "own.csv")
      ...     _ = table.write_text("id,correct,first,second\n" + "\n".join(lines), encoding="utf-8")
      ...     print(*repr(league_table(table)).splitlines()[:2], sep="\n")
      League(rows=1)
        own: 1 ahead
    """
    check_level(level)
    if seed < 0:
        msg = f"seed must be 0 or more, got {seed}; choose another."
        raise ValueError(msg)
    if not isinstance(path, str | os.PathLike):
        return _own_league(path, table, level, seed)
    path = Path(path)
    if path.is_file() or (path.name.endswith(TABLE_SUFFIXES) and not path.exists()):
        return _own_league(path, table, level, seed)
    names = [layout.name for layout in LAYOUTS]
    if table is not None and table not in names:
        rule = f"table must be one of {', '.join(names)}"
        raise input_error(
            Where(str(path)), rule, "correct it, or leave it out for all", repr(table)[:40]
        )
    every = layout_folders(path)
    places = [(layout, folder) for layout, folder in every if table in {None, layout.name}]
    if not places:
        looked_for = "; ".join(
            f"{layout.name} ({layout.holds})" for layout in LAYOUTS if table in {None, layout.name}
        )
        rule = f"a folder must hold one of: {looked_for}"
        remedy = (
            f"point at one, or at a table {', '.join(TABLE_SUFFIXES)} with id, correct and signals"
        )
        raise input_error(
            Where(str(path)), rule, remedy, "none" if path.is_dir() else "no such folder"
        )
    rows, notes = [], []
    counts = Counter(layout.name for layout, _ in places)
    for layout, folder in places:
        more = {"seed": seed} if layout.takes_seed else {}
        cells = layout.rows(folder, level=level, **more)
        below = folder.relative_to(path).as_posix()
        if counts[layout.name] > 1:  # two copies of a table: the folder is part of the cell
            cells = [row._replace(cell=f"{row.cell} in {below}") for row in cells]
        rows += cells
        notes.append(
            _read_note(layout.name, folder, {place for _, place in every if place != folder})
        )
        notes += filter(None, [layout.ignored(folder)])
    return League(tuple(rows), tuple(notes))


def _own_league(source: Path | pd.DataFrame, table: str | None, level: float, seed: int) -> League:
    """League of a table of one's own.

    Raises:
      InputError: a layout is named, there is no such file, or it is no table.
    """
    where = Where(str(source) if isinstance(source, Path) else "the table")
    if table is not None:
        rule = "a table of one's own must be read without the name of a published table"
        raise input_error(where, rule, "leave table out", shown_value(table))
    read = []
    if isinstance(source, Path):
        if not source.name.endswith(TABLE_SUFFIXES):
            rule = f"a table of one's own must be a file {', '.join(TABLE_SUFFIXES)}"
            raise input_error(where, rule, "save it as one", source.suffix or "no suffix")
        if not source.is_file():
            raise input_error(
                where, "a table of one's own must be a file", "check the path", "no such file"
            )
        read = [_read_note(source.name, source)]
    rows, notes = own_rows(source, level=level, seed=seed)
    return League(tuple(rows), (*read, *notes))


def layout_folders(path: Path) -> list[tuple[TableLayout, Path]]:
    """Folders that have a layout, by layout and name.

    The folders that are a table's own hold no other.

    Args:
      path: itself or folders up to five below it; hidden folders are passed over, links to folders
        followed once.
    """
    places = []
    for folder, folders, _ in walked(path, DEEPEST):
        layouts = [layout for layout in LAYOUTS if layout.is_layout(folder)]
        places += [(layout, folder) for layout in layouts]
        owned = set().union(*(layout.owns(folder) for layout in layouts))
        folders[:] = [name for name in folders if not name.startswith(".") and name not in owned]
    return sorted(places, key=lambda place: (LAYOUTS.index(place[0]), place[1].as_posix()))


def _read_note(name: str, folder: Path, excluded: Collection[Path] = ()) -> str:
    """What was read.

    Number of JSON files in a folder, and one hash of their names and contents, in their order.

    Args:
      name: of the table.
      folder: its own, or a file.
      excluded: folders of other tables in it.
    """
    files = [folder] if folder.is_file() else []
    for root, folders, names in walked(folder, MOST):
        folders[:] = [place for place in folders if root / place not in excluded]
        files += [
            root / file for file in names if file.removesuffix(".gz").endswith((".json", ".jsonl"))
        ]
    total, unread = hashlib.sha256(), 0
    for file in sorted(files):
        try:
            contents = file.read_bytes() if file.is_file() else None
        except OSError:
            contents = None
        unread += contents is None
        shown = file.name if file == folder else file.relative_to(folder).as_posix()
        total.update(shown.encode() + b"\0" + hashlib.sha256(contents or b"").digest())
    lost = f", of which {unread:,} cannot be read" * bool(unread)
    size = f"{len(files):,} file{'s' * (len(files) != 1)}"
    return f"{name}: {size}{lost}, SHA-256 of names and contents {total.hexdigest()[:16]}."


def _cells(row: LeagueRow) -> list[Cell | str]:
    """Cells of a row for people."""
    marks: dict[str, Mark] = {AHEAD: "good", BEHIND: "bad"}
    return [
        row.cell,
        row.metric,
        f"{row.n:,}",
        *(figure(value) for value in (row.published, row.reproduced, row.free, row.raglab)),
        difference_text(row),
        Cell(row.verdict, mark=marks.get(row.verdict, "")),
    ]


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no cell"


def figure(value: float) -> str:
    """Figure of a row in three decimals, empty where there is none.

    Example:
      >>> figure(0.73649), figure(float("nan"))
      ('0.736', '')
    """
    return "" if isnan(value) else f"{value:.3f}"


def calls_text(row: LeagueRow) -> str:
    """Model calls behind raglab's decision and the reference's.

    The cost of an answer where calls are not known.
    """
    if isnan(row.reference_calls):
        return "" if isnan(row.calls) else f"cost {row.calls:.3g} an answer"
    return " against ".join(
        "?" if isnan(value) else f"{value:.3g}" for value in (row.calls, row.reference_calls)
    )


def line_text(row: LeagueRow) -> str:
    """Row in one line of text.

    Its verdict, figures with that of the free policy, calls where they differ, and note.
    """
    return _named_line(row, row.cell)


def _line_texts(rows: Sequence[LeagueRow]) -> list[str]:
    """Lines of rows.

    Rows of a table that are not judged for one reason share the line of the first of them.
    """
    cells: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        kind = "" if row.verdict == NOT_JUDGED else row.cell
        cells.setdefault((row.table, row.metric, row.verdict, row.note, kind), []).append(row.cell)
    lines = []
    for row in rows:
        kind = "" if row.verdict == NOT_JUDGED else row.cell
        names = cells.pop((row.table, row.metric, row.verdict, row.note, kind), [])
        more = f" and {len(names) - SHOWN_CELLS:,} more" * (len(names) > SHOWN_CELLS)
        if names:
            lines.append(_named_line(row, ", ".join(names[:SHOWN_CELLS]) + more))
    return lines


def _named_line(row: LeagueRow, name: str) -> str:
    texts: list[str] = [row.verdict]
    if not isnan(row.raglab) and row.verdict != NOT_JUDGED:
        texts.append(f"raglab {figure(row.raglab)}, {difference_text(row)} against {row.reference}")
        free = f"free policy {figure(row.free)}" + f" ({row.free_name})" * bool(row.free_name)
        texts += [free] * (not isnan(row.free))
        calls = calls_text(row)
        own, _, second = calls.partition(" against ")
        texts += [f"calls {calls}" if second else calls] * (own not in {"", second})
        texts += [part for part in row.fitted_on.split("; ") if part.startswith(USED)]
    return (
        f"{row.table} | {name} | {row.metric}: "
        f"{'; '.join([*texts, row.note] if row.note else texts)}"
    )


def difference_text(row: LeagueRow) -> str:
    """Difference with its interval; empty where it is not judged."""
    if isnan(row.difference) or row.verdict == NOT_JUDGED:
        return ""
    return f"{signed(row.difference)} [{signed(row.low)}, {signed(row.high)}]"
