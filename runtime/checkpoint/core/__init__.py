"""Decisions about the checkpoints of one job, without I/O and without a clock."""
