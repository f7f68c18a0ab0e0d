#!/usr/bin/env bash
# Checks and tests: bin/test.sh [--fast | --all] [pytest arguments]
#   --fast  checks and tests without Spark, Airflow, etcd and processes; three to five minutes
#   --all   all of them, and then the `extended` ones with nothing beside them; two hours more, or longer
# Without arguments a sixteenth of the files in tests/suite/rotated.txt runs, which one follows from the commit.
# Parts of them:
#   --changed [BASE]                  checks, and the tests that the changes since BASE (HEAD) need; under three minutes
#   --repeat N [--load K] ARGUMENTS   the selected tests N times in random orders, beside K busy processes
#   --coverage                        the light tests, and the floor of each component
# Light tests run in three processes, with mypy and the build of the class archive beside them; then the heavy ones,
# which wait most of their time, in four lanes at once: with Airflow, with whole clusters and Spark, with Spark only, without a
# JVM. Arguments go to all, but -m, which is taken.
set -u
FLINKLIKE_HOME="$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")"
export FLINKLIKE_HOME
unset PYTHONDONTWRITEBYTECODE # or each of the hundreds of processes compiles all sources again
source "$FLINKLIKE_HOME/bin/environment.sh"
ensure_environment requirements/dev.txt
cd "$FLINKLIKE_HOME" || exit 1

jvm='spark or airflow'
heavy='etcd or process or slow'
light=(-n 3 --ignore=tests/airflow --ignore=tests/spark) # none of those is light, and to collect them loads Airflow
with_jvm=(--ignore=tests/unit --ignore=tests/tidy)       # none of those needs one, and to collect them takes ten seconds
mode=''
case "${1:-}" in
  --repeat) shift; exec .venv/bin/python -m tests.suite.repeat "$@" ;;
  --fast | --all | --changed | --coverage) mode="${1#--}"; shift ;;
esac
share=() # of the rotated tests; who selects tests has all of them
if [ -z "$mode$*" ] && commit="$(git rev-parse --short=8 HEAD 2> /dev/null)"; then
  share=("--share=$((16#${commit:0:8} % 16))")
  echo "Of the heavy tests in tests/suite/rotated.txt this run has share ${share[0]#--share=} (of 0 to 15, by its commit)."
fi
failed=()
FLINKLIKE_TEST_NOTES="$(mktemp "${TMPDIR:-/tmp}/flinklike-notes.XXXXXX")" # each pytest adds its own (tests/conftest.py)
export FLINKLIKE_TEST_NOTES
archive=''
trap 'rm -rf "$FLINKLIKE_TEST_NOTES" ${archive:+"$archive"}' EXIT
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
  .venv/bin/pytest -q --durations=15 "${share[@]}" "$@"
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
  env --default-signal=INT .venv/bin/pytest -q --durations=15 "${share[@]}" "$@"
}
heavy_tests() { # heavy_tests ARGUMENTS...: they wait most of their time, so they do it together
  local logs code=0 lane lanes=(airflow clusters spark)
  local -A pids marks=(
    [airflow]='airflow'
    [clusters]='spark and (slow or process) and not airflow'
    [spark]='spark and not (slow or process) and not airflow'
  )
  local -A processes=([airflow]=0 [clusters]=2 [spark]=0) # a kill of a task hung once beside another process of tests
  logs="$(mktemp -d "${TMPDIR:-/tmp}/flinklike-test.XXXXXX")"
  echo "Three lanes write to $logs, which is shown at their end."
  for lane in "${lanes[@]}"; do
    background -n "${processes[$lane]}" --dist loadfile "${with_jvm[@]}" "$@" -m "${marks[$lane]} and not extended" \
      > "$logs/$lane" 2>&1 &
    pids[$lane]=$!
  done
  tests -n 3 --dist loadfile "$@" -m "($heavy) and not ($jvm) and not extended" || code=1
  for lane in "${lanes[@]}"; do
    joined "${pids[$lane]}" "$logs/$lane"
    count $? || code=1
  done
  rmdir "$logs"
  return $code
}

light_tests() { # light_tests ARGUMENTS...
  tests "${light[@]}" "$@" -m "not ($heavy or $jvm)"
}
covered_tests() { # covered_tests ARGUMENTS...: light tests under coverage, and the floors when all of them have passed
  local code data
  data="$(mktemp -d "${TMPDIR:-/tmp}/flinklike-coverage.XXXXXX")"
  export COVERAGE_FILE="$data/data"
  .venv/bin/coverage run -m pytest -q --durations=15 "${light[@]}" "$@" -m "not ($heavy or $jvm)"
  code=$?
  count $code || true
  if [ $code -eq 0 ]; then
    .venv/bin/coverage combine --quiet && .venv/bin/coverage json --quiet -o "$data/report.json" &&
      .venv/bin/python -m tests.suite.floors "$data/report.json"
    code=$?
  fi
  rm -r "$data"
  unset COVERAGE_FILE
  return $code
}
changed_tests() { # changed_tests KIND ARGUMENTS...: the selected files of that kind
  local kind="$1" files=() one
  shift
  while read -r one; do
    if [ "${one%% *}" = "$kind" ]; then files+=("${one#* }"); fi
  done <<< "$selected"
  if [ ${#files[@]} -gt 0 ]; then tests "$@" "${files[@]}"; else has_tests=1; fi
}

if [ "$mode" = changed ]; then
  selected="$(.venv/bin/python -m tests.suite.changed "$@")" || exit 1
  base="${1:-}"
  set --
fi
step "ruff" .venv/bin/ruff check .
step "format" .venv/bin/ruff format --check .
types="$(mktemp "${TMPDIR:-/tmp}/flinklike-types.XXXXXX")"
.venv/bin/mypy > "$types" 2>&1 &
mypy=$!
if [ -z "$mode$*" ] || [ "$mode$*" = all ]; then # for a selection of tests it costs more than it saves
  archive="$(mktemp -d "${TMPDIR:-/tmp}/flinklike-archive.XXXXXX")"
  .venv/bin/python -m tests.kit.spark.archive_build "$archive" > "$archive/said" 2>&1 &
  builder=$!
  export TEST_CLASS_ARCHIVE="$archive/cds" # of Spark's JVM, for all that start one (tests/kit/fixtures.py)
fi
case "$mode" in
  changed) step "light tests" changed_tests light -n 4 -m "not ($heavy or $jvm)" ;;
  coverage) step "light tests" covered_tests "$@" ;;
  *) step "light tests" light_tests "$@" ;;
esac
step "mypy" joined $mypy "$types"
[ -z "$archive" ] || step "class archive" joined $builder "$archive/said"
case "$mode" in
  changed)
    step "heavy tests" changed_tests heavy -n 2 --dist loadfile -m "($heavy or $jvm) and not extended"
    step "changelog" .venv/bin/python -m tests.suite.changelog ${base:+"$base"}
    ;;
  fast | coverage) ;;
  *) step "heavy tests" heavy_tests "$@" ;;
esac
if [ "$mode" = all ]; then
  step "environments of other Airflows" bin/airflow-environments.sh
  step "environments of other PySparks" bin/pyspark-environments.sh
  step "extended tests" tests "$@" -m extended
fi
[ -n "$has_tests" ] || failed+=("no test is selected")

echo "== time of the slowest files"
awk '$1 == "SPENT" { seconds[$2] += $4 } END { for (file in seconds) print seconds[file] " s", file }' \
  "$FLINKLIKE_TEST_NOTES" | sort -rn | awk 'NR <= 40'
echo "== time of tests, by folder"
awk '$1 == "SPENT" { split($2, part, "/"); folder = part[1] "/" part[2]; tests[folder] += $3; seconds[folder] += $4 }
  END { for (folder in tests) print folder ": " tests[folder] " tests, " seconds[folder] " s" }' "$FLINKLIKE_TEST_NOTES" | sort
if unseen="$(grep -c '^NO-BROWSER ' "$FLINKLIKE_TEST_NOTES")"; then
  echo "Skipped $unseen tests of the dashboard's pages: chromium is not installed."
fi
if [ ${#failed[@]} -gt 0 ]; then
  grep '^FAILED ' "$FLINKLIKE_TEST_NOTES" >&2
  echo "Failed: ${failed[*]}" >&2
  exit 1
fi
echo "All checks and tests passed."
