#!/usr/bin/env bash
# After etcd was restored from a snapshot, all processes being stopped: let the cluster begin again: [--keep-jobs] [-D key=value ...]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
exec "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.restored_etcd "$@"
