"""Metrics of a process: which there are, how they are counted, and how they are reported (D-110)."""
