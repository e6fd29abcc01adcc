"""What a policy may hold (algebra): sections, arms, patterns, gate order, resolver rules."""
