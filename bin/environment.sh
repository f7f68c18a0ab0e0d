# Sourced by quickstart.sh, test.sh and the *-environments.sh: makes .venv with what a requirements file pins, once.
# ensure_environment FILE...: returns at once when nothing has changed since the last time.
# It makes the folder that VENV names.

VENV=.venv

_fail() {
  echo "$1" >&2
  exit 1
}

_as_configuration() { # _as_configuration -D key=value ...: the same as lines of conf/config.yaml
  local one
  for one in "$@"; do
    one="${one#-D}"
    if [ -n "$one" ]; then echo "${one/=/: }"; fi
  done
}

_find_python() {
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    [ -n "$candidate" ] && command -v "$candidate" > /dev/null || continue
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2> /dev/null; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

_make_venv() { # _make_venv LOG PYTHON: as _install; what was made by half goes away, or the next run would use it
  rm -rf "$VENV"
  if command -v uv > /dev/null && uv venv --quiet --no-config --python "$2" "$VENV" >> "$1" 2>&1; then return 0; fi
  rm -rf "$VENV"
  if "$2" -m venv "$VENV" >> "$1" 2>&1; then return 0; fi
  rm -rf "$VENV"
  return 1
}

_install() { # _install LOG ARGUMENTS...: uv if it is there and works here, else pip
  local log="$1"
  shift
  if command -v uv > /dev/null && uv pip install --python "$VENV/bin/python" --compile-bytecode "$@" >> "$log" 2>&1; then
    return 0
  fi
  "$VENV/bin/python" -m pip --version > /dev/null 2>&1 || "$VENV/bin/python" -m ensurepip >> "$log" 2>&1
  "$VENV/bin/python" -m pip install --disable-pip-version-check "$@" >> "$log" 2>&1
}

_with_progress() { # _with_progress TEXT COMMAND...: a line that counts the seconds while it runs
  local text="$1" begin=$SECONDS pid
  shift
  "$@" &
  pid=$!
  while kill -0 "$pid" 2> /dev/null; do
    if [ -t 1 ]; then printf '\r%s %d s' "$text" $((SECONDS - begin)); fi
    sleep 1
  done
  [ -t 1 ] && printf '\r'
  wait "$pid" || return 1
  echo "$text done ($((SECONDS - begin)) s)"
}

ensure_environment() {
  local stamp wanted log python
  cd "$FLINKLIKE_HOME" || exit 1
  wanted="$(cat requirements/*.txt pyproject.toml | cksum) $*"
  stamp="$VENV/.installed-$(echo "$*" | tr ' /' '__')"
  if [ -x "$VENV/bin/python" ] && [ "$(cat "$stamp" 2> /dev/null)" = "$wanted" ]; then
    echo "Python environment: $VENV is current."
    return 0
  fi
  python="$(_find_python)" || _fail "Python 3.11 to 3.13 is needed: install it, or name it with PYTHON=/path/to/python3.11."
  log="$(mktemp "${TMPDIR:-/tmp}/flinklike-install.XXXXXX")"
  if [ ! -x "$VENV/bin/python" ]; then
    echo "Python environment: making $VENV with $("$python" --version)."
    _make_venv "$log" "$python" || _fail "Making $VENV failed; see $log (on Debian, install uv or python3-venv)."
  fi
  local arguments=()
  for file in "$@"; do arguments+=(-r "$file"); done
  _with_progress "Python environment: installing packages (a few minutes the first time) ..." \
    _install "$log" "${arguments[@]}" || _fail "Installing packages failed; the last lines of $log: $(tail -n 3 "$log")"
  _install "$log" --no-deps -e . || _fail "Installing this package failed; see $log."
  rm -f "$log"
  echo "$wanted" > "$stamp"
}
