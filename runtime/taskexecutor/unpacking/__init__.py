"""Unpacking of the archives of jobs, in a process of its own, within limits (R42)."""
