"""System (shore): policies tuned and certified, gates fitted, rewards audited, studies tracked."""
