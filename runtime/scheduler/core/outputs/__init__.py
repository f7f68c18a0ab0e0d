"""Outputs of a job: their modes, their commit, and what is kept when it cannot be carried out."""
