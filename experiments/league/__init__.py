"""The league: published tables replayed from their stored outputs; see docs/league.md."""
