"""Benchmarks on real processes: `bin/bench.sh NAME | --all [--small]`. They print tables and JSON, no verdicts."""
