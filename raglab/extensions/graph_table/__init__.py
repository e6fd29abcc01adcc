"""The arms `graph` and `table`: entities of passages, rows of tables."""

POINTS: dict[str, str] = {
    "arm.graph": "raglab.extensions.graph_table.arm_indexes:GRAPH",
    "arm.table": "raglab.extensions.graph_table.arm_indexes:TABLE",
}
