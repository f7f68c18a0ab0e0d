"""Traces: spans of jobs, and the reporter that is told them (D-114)."""
