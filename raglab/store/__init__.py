"""The shore of files: corpora, labelled cases, policies and traces, read and written with care."""
