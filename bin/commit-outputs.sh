#!/usr/bin/env bash
# Repeats a commit of outputs that has failed, from what its job has left: commit-outputs.sh BASE/.commit-JOB_ID
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
exec "$FLINKLIKE_PYTHON" -m runtime.taskexecutor.repeat_commit "$@"
