"""Report (shore): figures, displays and the page."""
