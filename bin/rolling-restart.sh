#!/usr/bin/env bash
# Restart all processes one after the other while jobs go on: [jobmaster] [jobmanager] [taskmanager] [-D key=value ...]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
exec "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.control rolling-restart "$@"
