"""Arguments (algebra): plain arrays, checked fields, warnings at the line of the caller."""
