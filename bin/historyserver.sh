#!/usr/bin/env bash
# Start or stop a history server on this host: start|start-foreground|stop|stop-all [-D key=value ...]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
exec "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.control historyserver "$@"
