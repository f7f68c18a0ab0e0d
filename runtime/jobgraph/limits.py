"""Bounds of a JobGraph. A hostile or mistaken graph is refused before it costs more than its request."""

from __future__ import annotations

GRAPH_BYTES_MAX = 16 * 1024 * 1024
VERTICES_MAX = 2_000
EDGES_MAX = 10_000
OPERATORS_PER_VERTEX_MAX = 200
PARALLELISM_MAX = 32_768
SUBTASKS_MAX = 100_000
JSON_DEPTH_MAX = 64
NAME_LENGTH_MAX = 256
ARTIFACTS_MAX = 1_000
SECRETS_MAX = 100
INTEGER_BITS_MAX = 1_024
MEMORY_BYTES_MAX = 2**63 - 1
PROBLEMS_SHOWN_MAX = 100
PROBLEMS_LISTED_MAX = 5_000
"""More problems are not listed at all, because their sentences would cost too much time (R41)."""
