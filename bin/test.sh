#!/usr/bin/env bash
# All checks and tests: bin/test.sh [--fast | --all] [pytest arguments]
#   --fast  checks and tests without Spark, Airflow, etcd and processes; under a minute
#   --all   and then the `extended` ones, with nothing beside them; an hour and a half more, or longer
# Light tests run in four processes (some wait), with mypy beside them; then those with Airflow and those with Spark in a process each
# beside two of other heavy ones. Arguments go to all, but -m, which is taken.
set -u
FLINKLIKE_HOME="$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")"
export FLINKLIKE_HOME
unset PYTHONDONTWRITEBYTECODE # or each of the hundreds of processes compiles all sources again
source "$FLINKLIKE_HOME/bin/environment.sh"
ensure_environment requirements/dev.txt
cd "$FLINKLIKE_HOME" || exit 1

jvm='spark or airflow'
heavy='etcd or process or slow'
light=(-n 4 --ignore=tests/airflow --ignore=tests/spark) # none of those is light, and to collect them loads Airflow
is_fast=''
with_extended=''
case "${1:-}" in
  --fast) is_fast=1; shift ;;
  --all) with_extended=1; shift ;;
esac
failed=()
FLINKLIKE_FAILED_TESTS="$(mktemp "${TMPDIR:-/tmp}/flinklike-failed.XXXXXX")" # each pytest adds its own (tests/conftest.py)
export FLINKLIKE_FAILED_TESTS
trap 'rm -f "$FLINKLIKE_FAILED_TESTS"' EXIT
step() { # step NAME COMMAND...: run it, say how long it took, remember whether it failed
  local name="$1" begin=$SECONDS
  shift
  echo "== $name"
  "$@" || failed+=("$name")
  echo "== $name: $((SECONDS - begin)) s"
}
has_tests=''
count() { # count CODE: of a pytest; no test (exit code 5) is a failure only where no other run has one
  [ "$1" -ne 5 ] || return 0
  has_tests=1
  return "$1"
}
tests() { # tests ARGUMENTS...: pytest
  .venv/bin/pytest -q --durations=15 "$@"
  count $?
}
joined() { # joined PID LOG: wait for what runs in the background, and show what it has written
  local code
  wait "$1"
  code=$?
  cat "$2"
  rm "$2"
  return $code
}
background() { # background ARGUMENTS...: pytest; bash has what it puts into the background ignore Ctrl-C
  env --default-signal=INT .venv/bin/pytest -q --durations=15 "$@"
}
either() { # either CODE CODE: of two pytests; one that found no test (exit code 5) says nothing
  [ "$1" -eq 5 ] && return "$2"
  [ "$1" -eq 0 ] && [ "$2" -ne 5 ] && return "$2"
  return "$1"
}
airflow_tests() { # airflow_tests ARGUMENTS...: and behind them those of whole clusters with Spark, and the slow ones
  local code
  background "$@" -m "airflow and not extended"
  code=$?
  [ $code -ne 2 ] || return 2 # interrupted
  background "$@" -m "spark and (slow or process) and not airflow and not extended"
  either $code $?
}
heavy_tests() { # heavy_tests ARGUMENTS...: they wait most of their time, so they do it together
  local logs pids code
  logs="$(mktemp -d "${TMPDIR:-/tmp}/flinklike-test.XXXXXX")"
  echo "Tests with Airflow and with Spark write to $logs, which is shown at their end."
  airflow_tests "$@" > "$logs/airflow" 2>&1 &
  pids=($!)
  background "$@" -m "spark and not (slow or process) and not airflow and not extended" > "$logs/spark" 2>&1 &
  pids+=($!)
  tests -n 2 --dist loadfile "$@" -m "($heavy) and not ($jvm) and not extended"
  code=$?
  joined "${pids[0]}" "$logs/airflow"
  count $? || code=1
  joined "${pids[1]}" "$logs/spark"
  count $? || code=1
  rmdir "$logs"
  return $code
}

step "ruff" .venv/bin/ruff check .
step "format" .venv/bin/ruff format --check .
types="$(mktemp "${TMPDIR:-/tmp}/flinklike-types.XXXXXX")"
.venv/bin/mypy > "$types" 2>&1 &
mypy=$!
step "light tests" tests "${light[@]}" "$@" -m "not ($heavy or $jvm)"
step "mypy" joined $mypy "$types"
[ -n "$is_fast" ] || step "heavy tests" heavy_tests "$@"
[ -z "$with_extended" ] || step "extended tests" tests "$@" -m extended
[ -n "$has_tests" ] || failed+=("no test is selected")

if [ ${#failed[@]} -gt 0 ]; then
  cat "$FLINKLIKE_FAILED_TESTS" >&2
  echo "Failed: ${failed[*]}" >&2
  exit 1
fi
echo "All checks and tests passed."
