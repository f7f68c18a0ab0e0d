#!/usr/bin/env bash
# Benchmarks on real processes: bench.sh NAME... | --all [--small] [--runs N] [--plot FILE] [--json FILE]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
cd "$FLINKLIKE_HOME" && exec "$FLINKLIKE_PYTHON" -m tests.benchmarks "$@"
