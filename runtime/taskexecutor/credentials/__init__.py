"""Credentials of other services that tasks use: secrets and delegation tokens."""
