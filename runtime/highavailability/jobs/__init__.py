"""Durable jobs: graphs, owners, events, results and fences."""
