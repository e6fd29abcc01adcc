"""Models (shore): encoders, cross-encoders and NLI models; their files and their tokens."""
