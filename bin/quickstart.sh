#!/usr/bin/env bash
# From nothing to a running cluster on which Airflow has run the example DAG.
#   bin/quickstart.sh            runs the DAG once with `airflow dags test`
#   bin/quickstart.sh --airflow  starts a whole Airflow with the DAGs and the connection in place
#   -D key=value                 configures the cluster, for instance -D rest.port=18081
set -u
FLINKLIKE_HOME="$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")"
export FLINKLIKE_HOME
source "$FLINKLIKE_HOME/bin/environment.sh"

with_airflow=false
options=()
scale_factor=0.1
while [ $# -gt 0 ]; do
  case "$1" in
    --airflow) with_airflow=true ;;
    --scale-factor) [ $# -gt 1 ] || _fail "--scale-factor needs a number, for instance 0.1."; scale_factor="$2"; shift ;;
    -D) [ $# -gt 1 ] || _fail "-D needs key=value."; options+=(-D "$2"); shift ;;
    -h | --help) sed -n '2,5p' "${BASH_SOURCE[0]}" | cut -c3-; exit 0 ;;
    *) _fail "Unknown argument '$1': see bin/quickstart.sh --help." ;;
  esac
  shift
done

echo "[1/4] Python"
ensure_environment requirements/examples.txt
source "$FLINKLIKE_HOME/bin/config.sh"

echo "[2/4] Cluster (etcd, JobManager, JobMaster processes, TaskManager with warm Spark slots)"
"$FLINKLIKE_PYTHON" -m runtime.entrypoint.control ensure-cluster "${options[@]}" ||
  _fail "The cluster did not start; its logs are in ${FLINKLIKE_RUN_DIR:-$FLINKLIKE_HOME/run}/log."

echo "[3/4] Airflow"
# The connection, as users would set it up in Airflow's own way.
eval "$("$FLINKLIKE_PYTHON" -m runtime.entrypoint.control airflow-environment "${options[@]}")"
if [ ! -e "$AIRFLOW_HOME/.migrated" ]; then
  echo "Making Airflow's database in $AIRFLOW_HOME (once)."
  "$FLINKLIKE_HOME/.venv/bin/airflow" db migrate > "$AIRFLOW_HOME/migrate.log" 2>&1 ||
    _fail "Airflow's database could not be made: see $AIRFLOW_HOME/migrate.log."
  touch "$AIRFLOW_HOME/.migrated"
fi

if $with_airflow; then
  exec "$FLINKLIKE_PYTHON" -m runtime.entrypoint.control airflow-standalone "${options[@]}"
fi

echo "[4/4] DAG tpch_revenue at scale factor $scale_factor (airflow dags test)"
log="$AIRFLOW_HOME/tpch_revenue.log"
"$FLINKLIKE_HOME/.venv/bin/airflow" dags test tpch_revenue --conf "{\"scale_factor\": $scale_factor}" > "$log" 2>&1
code=$?
report="$(sed -n 's/.*Report written to \([^ ]*\).*/\1/p' "$log" | tail -n 1)"
if [ $code -ne 0 ] || grep -q "state=failed\|DagRunState.FAILED" "$log"; then
  tail -n 30 "$log" >&2
  _fail "The DAG failed: the whole log is $log."
fi
[ -n "$report" ] && [ -r "$report/report.txt" ] && cat "$report/report.txt"
echo
"$FLINKLIKE_PYTHON" -m runtime.entrypoint.control status-cluster "${options[@]}"
echo "Jobs: bin/flinklike list    Stop: bin/stop-cluster.sh    A whole Airflow: bin/quickstart.sh --airflow"
