#!/usr/bin/env bash
# An environment for each Airflow other than that of .venv, for its tests: bin/airflow-environments.sh [3.0 ...]
# It has what an Airflow component of a user has, requirements/airflow-VERSION.txt and this package, in .venv-airflow/VERSION.
set -eu
FLINKLIKE_HOME="$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")"
export FLINKLIKE_HOME
source "$FLINKLIKE_HOME/bin/environment.sh"
[ $# -gt 0 ] || set -- 3.0 3.1 3.2
mkdir -p "$FLINKLIKE_HOME/.venv-airflow"
for version in "$@"; do
  VENV=".venv-airflow/$version"
  ensure_environment "requirements/airflow-$version.txt"
done
