#!/usr/bin/env bash
# Faults on a real cluster of its own: chaos.sh [--minutes M] [--every S] [--seed N] [--faults KINDS] [--json FILE]
# chaos.sh containers [--minutes M] [--every S] [--seed N] [--json FILE]: kill -9 of containers of the compose file
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
cd "$FLINKLIKE_HOME" && exec "$FLINKLIKE_PYTHON" -m tests.chaos "$@"
