#!/usr/bin/env bash
# Start or stop a JobMaster process on this host: [start|start-foreground|stop|stop-all] [-D key=value ...]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
case "${1:-}" in "" | -D*) set -- start "$@" ;; esac
exec "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.control jobmaster "$@"
