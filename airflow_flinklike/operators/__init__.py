"""Operators that run jobs."""
