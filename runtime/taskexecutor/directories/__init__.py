"""Directories of a TaskManager on its host: whose they are, what they hold, when they go."""
