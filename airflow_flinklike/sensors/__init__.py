"""Sensors that wait for jobs, and for free slots."""
