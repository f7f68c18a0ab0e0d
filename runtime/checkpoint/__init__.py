"""Checkpoints of streaming jobs: which batches all queries of a job have committed, recorded together."""
