"""The shore of retrieval: models and indexes turn a question into hits."""
