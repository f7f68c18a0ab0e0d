# Sourced by every script in bin/: finds the installation and its Python.
# Environment: FLINKLIKE_HOME, FLINKLIKE_CONF_DIR, FLINKLIKE_RUN_DIR, FLINKLIKE_PYTHON, FLINKLIKE_IDENT_STRING.

export FLINKLIKE_HOME="${FLINKLIKE_HOME:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)}"

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
# One of each of our requirements: an environment that is not ours lacks them, and a half-made one may.
if ! _missing="$("$FLINKLIKE_PYTHON" - psutil yaml pydantic grpc typer cryptography 2>&1 << 'EOF'
import sys
from importlib.util import find_spec
if sys.version_info < (3, 11):
    sys.exit("Python 3.11 or newer")
sys.exit(next((module for module in sys.argv[1:] if not find_spec(module)), None))
EOF
)"; then
  echo "$FLINKLIKE_PYTHON cannot run this ($_missing is missing): run bin/quickstart.sh, or set FLINKLIKE_PYTHON." >&2
  exit 1
fi
export FLINKLIKE_PYTHON
export PYTHONPATH="$FLINKLIKE_HOME${PYTHONPATH:+:$PYTHONPATH}"
