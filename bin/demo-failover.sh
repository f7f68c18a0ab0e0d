#!/usr/bin/env bash
# A long Spark job whose owner is killed, then the JobManager, and the same attempt goes on: demo-failover.sh [--blocks N]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
cd "$FLINKLIKE_HOME" && exec "$FLINKLIKE_PYTHON" -m tests.chaos.demo "$@"
