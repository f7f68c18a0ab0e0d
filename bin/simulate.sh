#!/usr/bin/env bash
# Seeds of the simulated cluster: simulate.sh [--seeds N] [--from S] [--faults KINDS] [--story] [--log]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
cd "$FLINKLIKE_HOME" && exec "$FLINKLIKE_PYTHON" -m tests.kit.simulation "$@"
