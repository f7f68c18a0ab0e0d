"""Flink's own clients: the command line and the dashboard in `apache-flink-libraries`, and PyPI's `flink-rest-client`.

They are installed beside `.venv`, in `.venv-flink`, when a test first wants them; 360 MB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.kit.cluster.script_cluster import ROOT

_TARGET = ROOT / ".venv-flink"
_PINS = ROOT / "requirements" / "flink-clients.txt"
_INSTALL_TIMEOUT = 1800.0
_OPENS = ("java.lang", "java.util", "java.time", "java.nio")
_PROGRAM = """
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Numbers {
    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.fromSequence(1, 10).print();
        environment.execute("numbers");
    }
}
"""


def installed() -> Path:
    """The directory with the packages, as the pins have them."""
    mark = _TARGET / "pins"
    wanted = _PINS.read_text()
    if not mark.exists() or mark.read_text() != wanted:
        shutil.rmtree(_TARGET, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(_TARGET)]
        _run([*command, "--requirement", str(_PINS)])
        mark.write_text(wanted)
    return _TARGET


def distribution() -> Path:
    """flink-dist, which has the dashboard's files."""
    (found,) = (installed() / "pyflink" / "lib").glob("flink-dist-*.jar")
    return found


def flink(*arguments: str, address: str, token: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Flink's command line, with the token in its variable for headers. `home`: for its conf and its log."""
    libraries = installed() / "pyflink" / "lib"
    (home / "config.yaml").write_text("rest:\n  retry:\n    max-attempts: 3\n")
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS]
    java = ["java", "-Xmx256m", *opens, f"-Dlog.file={home}/client.log", "-cp", f"{libraries}/*"]
    action, *more = arguments
    command = [*java, "org.apache.flink.client.cli.CliFrontend", action, "-m", address.partition("//")[2], *more]
    environment = {
        **os.environ,
        "FLINK_CONF_DIR": str(home),
        "FLINK_REST_CLIENT_HEADERS": f"Authorization:Bearer {token}",
    }
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)


def java_program(folder: Path) -> Path | None:
    """A jar with a job of Flink; None without a compiler."""
    compiler = shutil.which("javac")
    if compiler is None:
        return None
    (folder / "Numbers.java").write_text(_PROGRAM)
    classes = f"{installed() / 'pyflink' / 'lib'}/*"
    _run([compiler, "-cp", classes, "-d", str(folder), str(folder / "Numbers.java")])
    made = folder / "numbers.jar"
    with zipfile.ZipFile(made, "w") as jar:
        jar.write(folder / "Numbers.class", "Numbers.class")
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nMain-Class: Numbers\n")
    return made


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
