"""The arms `graph` and `table`: entities of passages, rows of tables."""

POINTS: dict[str, str] = {}
