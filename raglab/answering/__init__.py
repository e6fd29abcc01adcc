"""The shore of language models: answers from passages, and whether the passages carry them."""
