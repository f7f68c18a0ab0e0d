"""Peers that are hostile, broken or somebody else."""
