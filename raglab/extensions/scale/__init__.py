"""Scale: traces in shards, indexes on disk."""

_ROOM = "raglab.extensions.scale"

POINTS: dict[str, str] = {
    "drop_older.large": f"{_ROOM}.large_index:drop_older",
    "index.hnsw-sq8": f"{_ROOM}.large_index:large_indexes",
    "index.ivfpq": f"{_ROOM}.large_index:large_indexes",
    "open_shards": f"{_ROOM}.sharded_traces:open_shards",
    "save_shards": f"{_ROOM}.sharded_traces:save_shards",
}
