"""Whether the weekly tests are due, and the line that dates their last pass.

    python .ci/weekly.py due      exit code 0 where they are due
    python .ci/weekly.py passed   write today's line

The line stands in experiments/README.md. A pass is a day's, in UTC, of whoever ran
`make test-weekly` and commits the line.
"""

# ruff: noqa: INP001, T201 - a script that prints

from __future__ import annotations

import re
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

PAGE = Path(__file__).parents[1] / "experiments" / "README.md"
LINE = re.compile(r"^Last pass of `make test-weekly`: (\d{4}-\d{2}-\d{2})\.$", re.MULTILINE)
EVERY = timedelta(days=7)


def last_pass(page: str) -> date:
    """Day of the last pass.

    Raises:
      ValueError: the page must hold the line once.
    """
    days = LINE.findall(page)
    if len(days) != 1:
        msg = f"experiments/README.md must hold one line of the last weekly pass, got {len(days)}."
        raise ValueError(msg)
    return date.fromisoformat(days[0])


def is_due(page: str, today: date) -> bool:
    """Whether the last pass is older than seven days."""
    return today - last_pass(page) > EVERY


def main(words: list[str]) -> int:
    """See the head of the file; 1 where the tests are not due."""
    page, today = PAGE.read_text(encoding="utf-8"), datetime.now(UTC).date()
    if words == ["passed"]:
        last_pass(page)
        line = f"Last pass of `make test-weekly`: {today.isoformat()}."
        PAGE.write_text(LINE.sub(line, page), encoding="utf-8")
        return 0
    print(f"weekly tests: last pass {last_pass(page)}, {'' if is_due(page, today) else 'not '}due")
    return int(not is_due(page, today))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
