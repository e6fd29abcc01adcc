"""What replay is made of (algebra): breakpoints, step functions, decisions in blocks."""
