"""Decision (algebra): a trace measured once, the gates in their order, and one case explained."""
