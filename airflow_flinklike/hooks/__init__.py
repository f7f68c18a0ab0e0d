"""Hooks: connections to clusters."""
