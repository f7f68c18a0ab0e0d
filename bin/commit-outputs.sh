#!/usr/bin/env bash
# Repeats a commit of outputs that has failed, or does one that never began: commit-outputs.sh BASE/.commit-JOB_ID, or
# commit-outputs.sh MODE=BASE/.attempt-ID ..., as the failure of the job names them
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/config.sh"
exec "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.commit_outputs "$@"
