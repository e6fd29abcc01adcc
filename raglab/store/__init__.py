"""Store (shore): files and databases, and nothing else that touches them."""
