#!/usr/bin/env bash
# Run one job as its own cluster: start|start-foreground --job TARGET [-D key=value ...] [options of flinklike run] [-- args], stop
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
exec "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.control standalonejob "$@"
