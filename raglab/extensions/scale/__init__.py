"""Scale: traces in shards, indexes on disk."""

_ROOM = "raglab.extensions.scale"

POINTS: dict[str, str] = {
    "drop_older.large": f"{_ROOM}.large_index:drop_older",
    "open_shards": f"{_ROOM}.sharded_traces:open_shards",
    "save_shards": f"{_ROOM}.sharded_traces:save_shards",
    "stored_index": f"{_ROOM}.large_index:stored_index",
}
