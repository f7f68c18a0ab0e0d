"""Python environments with other minor versions of PySpark, made once, beside `.venv`.

What they hold is pinned in `requirements/`: all that the cluster and the tests need, and no Airflow.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
OTHER_MINORS = ("4.0", "4.1", "4.2")
"""All that are supported but the one in `.venv`."""

_INSTALL_TIMEOUT = 3600.0


def requirement_files(minor: str) -> tuple[str, ...]:
    """What an environment is made of."""
    return ("runtime.txt", "testing.txt", f"pyspark-{minor}.txt")


def python_with(minor: str) -> Path:
    """The interpreter of the environment of this minor version; made when its pins are new."""
    directory = ROOT / f".venv-pyspark-{minor}"
    python, stamp = directory / "bin" / "python", directory / ".installed"
    wanted = _digest(minor)
    if not stamp.exists() or stamp.read_text() != wanted:
        _run([sys.executable, "-m", "venv", "--clear", str(directory)])
        files = [option for name in requirement_files(minor) for option in ("-r", str(ROOT / "requirements" / name))]
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *files])
        stamp.write_text(wanted)
    return python


def _digest(minor: str) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in ("base.txt", *requirement_files(minor)):
        digest.update((ROOT / "requirements" / name).read_bytes())
    return digest.hexdigest()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"


def variables_with(python: Path) -> dict[str, str]:
    """The environment of a process that runs with it, and of what that starts: no variable leads to another one."""
    unwanted = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "SPARK_HOME", "TEST_CLASS_ARCHIVE", "PYTEST_ADDOPTS"}
    plain = {key: value for key, value in os.environ.items() if key not in unwanted}
    return {**plain, "FLINKLIKE_PYTHON": str(python), "PATH": f"{python.parent}:{plain.get('PATH', '')}"}
