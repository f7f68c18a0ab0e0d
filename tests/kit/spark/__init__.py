"""Spark and slots without a cluster."""
