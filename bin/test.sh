#!/usr/bin/env bash
# All checks and tests: bin/test.sh [--fast] [pytest arguments]
#   --fast  checks and tests without Spark, Airflow, etcd and processes; under a minute
set -u
FLINKLIKE_HOME="$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")"
export FLINKLIKE_HOME
source "$FLINKLIKE_HOME/bin/environment.sh"
ensure_environment requirements/dev.txt
cd "$FLINKLIKE_HOME" || exit 1

select=''
if [ "${1:-}" = --fast ]; then
  select='not spark and not airflow and not etcd and not process and not slow'
  shift
fi
failed=()
step() { # step NAME COMMAND...: run it, say how long it took, remember whether it failed
  local name="$1" begin=$SECONDS
  shift
  echo "== $name"
  "$@" || failed+=("$name")
  echo "== $name: $((SECONDS - begin)) s"
}

step "ruff" .venv/bin/ruff check .
step "format" .venv/bin/ruff format --check .
step "mypy" .venv/bin/mypy
step "tests" .venv/bin/pytest -q -m "$select" "$@"

if [ ${#failed[@]} -gt 0 ]; then
  echo "Failed: ${failed[*]}"
  exit 1
fi
echo "All checks and tests passed."
