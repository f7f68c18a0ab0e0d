"""Sensors that wait for jobs."""
