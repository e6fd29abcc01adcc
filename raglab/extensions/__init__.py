"""Extensions: optional rooms, each with `POINTS` that say what it offers the core.

See `raglab.extension_points`.

A room's folder and its tests in `tests/extensions` can be deleted, and everything else goes on. The
core never imports a room; a room imports the core.
"""
