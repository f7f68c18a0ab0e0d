#!/usr/bin/env bash
# Start or stop a taskmanager on this host: start|start-foreground|stop|stop-all|drain [-D key=value ...]
# stop does not wait for tasks: they run again elsewhere. drain lets them finish, for taskmanager.drain-timeout.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
exec "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.control taskmanager "$@"
