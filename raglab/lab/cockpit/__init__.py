"""The cockpit (shore): every threshold of a policy moved by hand over a trace, with what each move does, exactly."""
