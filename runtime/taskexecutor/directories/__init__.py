"""Directories of a TaskManager on its host: which user owns them, what they hold, when they are deleted."""
