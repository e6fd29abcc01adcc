"""Lab (shore): traces built, policies tuned, promises certified."""
