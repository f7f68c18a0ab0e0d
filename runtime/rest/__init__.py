"""The REST endpoint: Flink's paths and bodies, each with and without /v1, and what semantics.md adds.

Handlers read from memory or ask the owner of one job; a malformed, huge or hostile request costs only itself.
"""
