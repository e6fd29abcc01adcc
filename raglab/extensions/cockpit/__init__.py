"""Cockpit: a policy over a trace, moved by hand in a notebook or drawn as a page."""

POINTS: dict[str, str] = {"study_page.cockpit": "raglab.extensions.cockpit.frozen_page:study_page"}
