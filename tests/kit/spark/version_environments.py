"""Python environments with other minor versions of PySpark, beside `.venv` (bin/pyspark-environments.sh)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
OTHER_MINORS = ("4.0", "4.1", "4.2")
"""All that are supported but the one in `.venv`."""

_INSTALL_TIMEOUT = 3600.0


def python_with(minor: str) -> Path:
    """The interpreter of the environment of this minor version, which is made if it is not there or not current."""
    command = [str(ROOT / "bin" / "pyspark-environments.sh"), minor]
    variables = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / ".venv-pyspark" / minor / "bin" / "python"


def variables_with(python: Path) -> dict[str, str]:
    """The environment of a process that runs with it, and of what that starts: no variable leads to another one."""
    unwanted = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "SPARK_HOME", "TEST_CLASS_ARCHIVE", "PYTEST_ADDOPTS"}
    plain = {key: value for key, value in os.environ.items() if key not in unwanted}
    return {**plain, "FLINKLIKE_PYTHON": str(python), "PATH": f"{python.parent}:{plain.get('PATH', '')}"}
