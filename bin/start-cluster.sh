#!/usr/bin/env bash
# Start everything that conf/masters, conf/JOB_MASTERS and conf/workers say: [-D key=value ...]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
exec "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.control start-cluster "$@"
