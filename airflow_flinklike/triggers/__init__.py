"""Triggers: what waits for a job in the triggerer."""
