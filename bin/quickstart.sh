#!/usr/bin/env bash
# From nothing to a running cluster on which Airflow has run the example DAG.
#   bin/quickstart.sh            runs the DAG once with `airflow dags test`
#   bin/quickstart.sh --airflow  starts a whole Airflow with the DAGs and the connection in place; with
#                                AIRFLOW__CORE__DAGS_FOLDER=/my/dags before it, with DAGs of your own
#   --secure                     with certificates of its own: every link encrypted, REST by https
#   -D key=value                 configures the cluster, for instance -D rest.port=18081
set -u
FLINKLIKE_HOME="$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")"
export FLINKLIKE_HOME
source "$FLINKLIKE_HOME/bin/environment.sh"

with_airflow=false
secure=false
options=()
scale_factor=0.1
while [ $# -gt 0 ]; do
  case "$1" in
    --airflow) with_airflow=true ;;
    --secure) secure=true ;;
    --scale-factor) [ $# -gt 1 ] || _fail "--scale-factor needs a number, for instance 0.1."; scale_factor="$2"; shift ;;
    -D) [ $# -gt 1 ] || _fail "-D needs key=value."; options+=(-D "$2"); shift ;;
    -D?*) options+=("$1") ;;
    -h | --help) sed -n '2,7p' "${BASH_SOURCE[0]}" | cut -c3-; exit 0 ;;
    *) _fail "Unknown argument '$1': see bin/quickstart.sh --help." ;;
  esac
  shift
done
# What runs in the background behind a progress line ends with this script.
trap 'kill $(jobs -p) 2> /dev/null; exit 130' INT TERM HUP

_control() {
  "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.control "$@" "${options[@]}"
}

run="${FLINKLIKE_RUN_DIR:-$FLINKLIKE_HOME/run}"
certs="$run/certs"

_certs() { # _certs COMMAND...: what it says only when it fails
  local said
  said="$("$FLINKLIKE_PYTHON" -P -m airflow_flinklike.cli certs "$@" 2>&1)" || _fail "$said"
}

_running() { # _running TEXT: a JobManager that runs here has said that
  grep -qs -- "$1" "$run"/pid/jobmanager-*.json
}

_make_certificates() {
  (umask 077 && mkdir -p "$run") || exit 1
  if [ ! -e "$certs/rest-ca-key.pem" ]; then _certs init "$certs"; fi
  for name in internal rest; do
    [ -e "$certs/$name-localhost.pem" ] ||
      _certs issue "$certs" --name "$name" --host localhost --host "$(hostname)" --ip 127.0.0.1 --ip ::1
    secure_options+=("security.ssl.$name.enabled=true" "security.ssl.$name.cert=$certs/$name-localhost.pem"
      "security.ssl.$name.key=$certs/$name-localhost.pem" "security.ssl.$name.ca=$certs/$name-ca.pem")
  done
  _certs renew "$certs"
  for option in "${secure_options[@]}"; do options+=(-D "$option"); done
}

_airflow() { # _airflow LOG ARGUMENTS...: always in the background, and the process itself, so that it can be ended
  local log="$1"
  shift
  exec "$FLINKLIKE_HOME/.venv/bin/airflow" "$@" > "$log" 2>&1
}

echo "[1/4] Python"
ensure_environment requirements/examples.txt
source "$FLINKLIKE_HOME/bin/config.sh"

if ! $secure && _running "\"ca\": \"$certs/"; then
  echo "The cluster that runs here was started with --secure: going on with that."
  secure=true
fi
secure_options=()
if $secure; then
  if _running '"url": "http://'; then
    _fail "A cluster in plain text runs here: stop it with bin/stop-cluster.sh, then run this again."
  fi
  _make_certificates
  echo "Certificates: $certs (bin/flinklike certs renew $certs renews them)"
fi

$with_airflow || _control check-example || exit 1
echo "[2/4] Cluster (etcd, JobManager, JobMaster processes, TaskManager with warm Spark slots)"
_control start-cluster || _fail "The cluster did not start; its logs are in $run/log."

echo "[3/4] Airflow"
# The connection, as users would set it up in Airflow's own way.
own_dags="${AIRFLOW__CORE__DAGS_FOLDER:-}"
variables="$(_control airflow-environment)" || exit 1
eval "$variables"
if [ ! -e "$AIRFLOW_HOME/.migrated" ]; then
  _with_progress "Making Airflow's database in $AIRFLOW_HOME (once) ..." _airflow "$AIRFLOW_HOME/migrate.log" db migrate ||
    _fail "Airflow's database could not be made: see $AIRFLOW_HOME/migrate.log."
  touch "$AIRFLOW_HOME/.migrated"
fi

if $with_airflow; then
  trap - INT TERM HUP
  # Empty: the folder of airflow.cfg, else the example DAGs.
  export AIRFLOW__CORE__DAGS_FOLDER="$own_dags"
  exec "$FLINKLIKE_PYTHON" -P -m runtime.entrypoint.control airflow-standalone "${options[@]}"
fi

log="$AIRFLOW_HOME/tpch_revenue.log"
echo "[4/4] DAG tpch_revenue at scale factor $scale_factor (airflow dags test; log: $log)"
begun="$AIRFLOW_HOME/.begun"
touch "$begun"
: > "$log"
_airflow "$log" dags test tpch_revenue --conf "{\"scale_factor\": $scale_factor}" &
dag=$!
tail -n +1 -f --pid="$dag" "$log" | sed -u -n 's/.*\[DAG TEST\] starting task_id=\([^ ]*\).*/  task \1 .../p' &
wait "$dag"
code=$?
wait
if [ $code -ne 0 ] || grep -q "state=failed\|DagRunState.FAILED" "$log"; then
  { sed -n '/ \[error /,$p' "$log" | head -n 30 | grep . || tail -n 30 "$log"; } >&2
  _fail "The DAG failed: the whole log is $log."
fi
report="$(find "$FLINKLIKE_DATA_DIR/reports" -name report.txt -newer "$begun" -print -quit 2> /dev/null)"
[ -n "$report" ] || _fail "The DAG has written no report below $FLINKLIKE_DATA_DIR/reports: its log is $log."
cat "$report"
echo
_control status-cluster
if $secure; then
  echo "All links are encrypted. To start it like this yourself, put into conf/config.yaml:"
  _as_configuration "${options[@]}"
  if [ "$(id -u)" -eq 0 ]; then
    echo "Tasks run as root, and can read the cluster's keys: docs/operations.md says how slots are users of their own."
  fi
fi
echo "Dashboard: bin/flinklike open    Jobs: bin/flinklike list    Stop: bin/stop-cluster.sh"
echo "A whole Airflow: bin/quickstart.sh --airflow"
