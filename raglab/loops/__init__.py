"""Long loops (shore): workers that share them, and the door to compiled ones."""
