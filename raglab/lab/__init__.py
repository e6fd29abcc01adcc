"""The shore of experiments: building traces, studies, tracking, plots and reports."""
