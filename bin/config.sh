# Sourced by every script in bin/: finds the installation and its Python.
# Environment: FLINKLIKE_HOME, FLINKLIKE_CONF_DIR, FLINKLIKE_RUN_DIR, FLINKLIKE_PYTHON, FLINKLIKE_IDENT_STRING.

_script="${BASH_SOURCE[1]:-$0}"
while [ -h "$_script" ]; do
  _target="$(readlink "$_script")"
  case "$_target" in
    /*) _script="$_target" ;;
    *) _script="$(dirname "$_script")/$_target" ;;
  esac
done
FLINKLIKE_BIN="$(cd "$(dirname "$_script")" && pwd -P)"
export FLINKLIKE_HOME="${FLINKLIKE_HOME:-$(dirname "$FLINKLIKE_BIN")}"

if [ -z "${FLINKLIKE_PYTHON:-}" ]; then
  if [ -x "$FLINKLIKE_HOME/.venv/bin/python" ]; then
    FLINKLIKE_PYTHON="$FLINKLIKE_HOME/.venv/bin/python"
  else
    FLINKLIKE_PYTHON="$(command -v python3 || true)"
  fi
fi
if [ -z "$FLINKLIKE_PYTHON" ]; then
  echo "No Python found: run bin/quickstart.sh, or set FLINKLIKE_PYTHON to a Python 3.11 with this package." >&2
  exit 1
fi
export FLINKLIKE_PYTHON
export PYTHONPATH="$FLINKLIKE_HOME${PYTHONPATH:+:$PYTHONPATH}"
