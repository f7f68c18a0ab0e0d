#!/usr/bin/env bash
# Feeds hostile input to every parser: fuzz.sh [--surface NAME]... [--minutes CPU_MINUTES] [--seed N] [--keep DIRECTORY] [--json]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
cd "$FLINKLIKE_HOME" && exec "$FLINKLIKE_PYTHON" -m tests.fuzz "$@"
