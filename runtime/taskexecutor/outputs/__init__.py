"""Outputs of jobs in the storage of their users: how they become visible (R26, R27, R28)."""
