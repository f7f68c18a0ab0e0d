"""Savepoints: a directory that holds one committed batch of each query of a job, whole or not there at all (R60)."""
