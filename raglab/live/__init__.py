"""Live (shore): a system that answers, asks back and learns."""
