"""Answering (shore): answers, their support and hygiene; what a question leaves out."""
