"""Histories for tests."""
