"""Scale: traces in shards, indexes on disk, several workers of one study."""

POINTS: dict[str, str] = {}
