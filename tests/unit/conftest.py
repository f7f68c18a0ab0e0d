"""Some of these are tests of properties."""

from tests.kit import any_speed

__all__ = ["any_speed"]
