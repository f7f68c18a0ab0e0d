#!/usr/bin/env bash
# Faults on a real cluster of its own: chaos.sh [--minutes M] [--every S] [--seed N] [--faults KINDS] [--json FILE]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
cd "$FLINKLIKE_HOME" && exec "$FLINKLIKE_PYTHON" -m tests.chaos "$@"
