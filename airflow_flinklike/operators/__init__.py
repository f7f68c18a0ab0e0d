"""Operators that run and cancel jobs."""
