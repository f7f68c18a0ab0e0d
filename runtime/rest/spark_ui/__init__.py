"""Spark's own pages, on an origin of their own (R58)."""
