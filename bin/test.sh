#!/usr/bin/env bash
# All checks and tests: bin/test.sh [--fast] [pytest arguments]
#   --fast  checks and tests without Spark, Airflow, etcd and processes; under a minute
# The light tests run in two processes, the others one after another. Arguments go to both; -m is taken.
set -u
FLINKLIKE_HOME="$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")"
export FLINKLIKE_HOME
unset PYTHONDONTWRITEBYTECODE # or each of the hundreds of processes compiles all sources again
source "$FLINKLIKE_HOME/bin/environment.sh"
ensure_environment requirements/dev.txt
cd "$FLINKLIKE_HOME" || exit 1

heavy='spark or airflow or etcd or process or slow'
is_fast=''
if [ "${1:-}" = --fast ]; then
  is_fast=1
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
has_tests=''
tests() { # tests ARGUMENTS...: pytest; no test (exit code 5) is a failure only where no other step has one
  .venv/bin/pytest -q "$@"
  local code=$?
  [ $code -ne 5 ] || return 0
  has_tests=1
  return $code
}

step "ruff" .venv/bin/ruff check .
step "format" .venv/bin/ruff format --check .
step "mypy" .venv/bin/mypy
step "light tests" tests -n 2 "$@" -m "not ($heavy)"
[ -n "$is_fast" ] || step "heavy tests" tests "$@" -m "$heavy"
[ -n "$has_tests" ] || failed+=("no test is selected")

if [ ${#failed[@]} -gt 0 ]; then
  echo "Failed: ${failed[*]}"
  exit 1
fi
echo "All checks and tests passed."
