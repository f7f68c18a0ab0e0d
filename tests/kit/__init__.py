"""Doubles and fixtures that tests of several packages share."""
