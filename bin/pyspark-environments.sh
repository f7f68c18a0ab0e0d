#!/usr/bin/env bash
# An environment for each PySpark other than that of .venv, for its tests: bin/pyspark-environments.sh [4.0 ...]
# It has what the cluster and the tests need, and no Airflow, in .venv-pyspark/VERSION.
set -eu
FLINKLIKE_HOME="$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")"
export FLINKLIKE_HOME
source "$FLINKLIKE_HOME/bin/environment.sh"
[ $# -gt 0 ] || set -- 4.0 4.1 4.2
mkdir -p "$FLINKLIKE_HOME/.venv-pyspark"
for version in "$@"; do
  VENV=".venv-pyspark/$version"
  ensure_environment requirements/runtime.txt requirements/testing.txt "requirements/pyspark-$version.txt"
done
