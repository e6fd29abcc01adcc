"""League: published tables replayed from stored question outputs, one line a published cell."""

POINTS: dict[str, str] = {
    "league_table": "raglab.extensions.league.league:league_table",
    "league_page": "raglab.extensions.league.pages:league_page",
}
