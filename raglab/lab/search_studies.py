"""Studies by one value (shore): what they tune goes to a `.env`, and to MLflow as one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from raglab.words.canonical import digest
from raglab.words.results import Result

if TYPE_CHECKING:
    import pandas as pd

    from raglab.lab.tracking import TrackedData, TrackedRun


class SearchStudy(Result):
    """Mixin of the outcome of a search: how it is written to a `.env` and to MLflow."""

    TABLE = "comparison"
    KIND: ClassVar[str]  # experiment of MLflow, and name of the `.env`
    MEASURES: ClassVar[tuple[str, ...]]  # columns of the comparison that a tracker gets

    trials: pd.DataFrame
    comparison: pd.DataFrame
    notes: tuple[str, ...]
    settings: Mapping[str, Any]

    def env(self) -> str:
        """Lines for a `.env` that put what was tuned to work online."""
        raise NotImplementedError

    def _run_name(self) -> str:
        raise NotImplementedError

    def _tuned(self) -> Mapping[str, Any]:
        """Values that the search chose, by name."""
        raise NotImplementedError

    def _source(self) -> tuple[dict[str, str], TrackedData | None]:
        """Tags of what the study was made of, and its data."""
        return {}, None

    def track(self, folder: str | Path | None = None) -> TrackedRun:
        """Log the study as one MLflow run.

        Settings and tuned values, metrics, and every table of the result.

        Args:
          folder: as for `raglab.track`.
        """
        import pandas as pd

        from raglab.lab.tracking import search_metrics, track_run

        column_names = [str(column) for column in self.comparison]
        measures = [column for column in column_names if column.split("_")[0] in self.MEASURES]
        tags, data = self._source()
        logged_texts = {f"{self.KIND}.env": self.env(), "notes.txt": "\n".join(self.notes) + "\n"}
        return track_run(
            f"{self._run_name()}: {digest(self.env(), 12)}",
            self.KIND,
            {
                **self.settings,
                **{f"tuned.{column}": value for column, value in self._tuned().items()},
            },
            search_metrics(self.trials, self.comparison, measures),
            {
                column: study_table
                for column, study_table in vars(self).items()
                if isinstance(study_table, pd.DataFrame)
            },
            folder,
            tags=tags,
            texts=logged_texts,
            data=data,
        )


def env_lines(prefix: str, rows: Mapping[str, Any]) -> str:
    """Lines of a `.env`: a variable of the prefix a row, true and false in small letters."""
    texts = {
        name.upper(): str(value).lower() if isinstance(value, bool) else value
        for name, value in rows.items()
    }
    return "".join(f"{prefix}_{name}={value}\n" for name, value in texts.items())
