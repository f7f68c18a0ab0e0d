"""The JVM's class archive: AppCDS before Java 25, the AOT cache from 25 on. Halves the time to the first result.

One file per (runtime build, pyspark version, class path, kind of CPU). Built once, by one process at a time (lock
file), published by a rename. The JVM ignores an archive that does not fit; one with which it ends by itself, and
without which it starts, is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.security.file_mask import PRIVATE_MODE
from runtime.taskexecutor.driver_jvm.command import spark_home
from runtime.taskexecutor.driver_jvm.java import JavaRuntime

# Archives of other runtimes that are kept for a way back.
_ARCHIVES_MAX = 3
_DUMP_TIMEOUT = 120.0
_FORM = b"without a jar of ours"
"""Part of the key: archives that were made in another way are not used."""
_SILENT = "-Xlog:cds*=off:stderr"
"""Java uses an archive where it fits, and says nothing where it does not (`java_command` sends the rest to stderr)."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive for one runtime and one class path is, or would be."""

    java: JavaRuntime
    directory: Path
    key: str

    @classmethod
    def locate(cls, java: JavaRuntime, directory: Path, class_path: str) -> ClassArchive:
        """The archive of this runtime, this pyspark and these jars."""
        digest = hashlib.sha256(_FORM)
        for part in (java.build, str(java.home), spark_version(), class_path, platform.machine()):
            digest.update(part.encode() + b"\0")
        for jar in class_path.split(os.pathsep):
            stat = Path(jar).stat() if Path(jar).is_file() else None
            digest.update(f"{stat.st_size}:{stat.st_mtime_ns}".encode() if stat else b"-")
        return cls(java, directory, digest.hexdigest()[:24])

    @property
    def file(self) -> Path:
        """The published archive."""
        return self.directory / f"spark-{self.key}.{'aot' if self.java.has_aot_cache else 'jsa'}"

    @property
    def base_file(self) -> Path:
        """The archive of the runtime's own classes, where the runtime does not bring one."""
        return self.directory / f"base-{self.key}.jsa"

    def exists(self) -> bool:
        """True if there is something to start with."""
        return self.file.is_file() and (not self._needs_own_base() or self.base_file.is_file())

    def _needs_own_base(self) -> bool:
        return not self.java.has_aot_cache and not self.java.has_base_archive

    def use_options(self) -> tuple[str, ...]:
        """JVM options of a start with the archive; none while there is none."""
        if not self.exists():
            return ()
        if self.java.has_aot_cache:
            return (f"-XX:AOTCache={self.file}", "-XX:AOTMode=auto", "-Xlog:aot*=off:stderr", _SILENT)
        return (f"-XX:SharedArchiveFile={self._stacked(self.file)}", "-Xshare:auto", _SILENT)

    def train_options(self, target: Path) -> tuple[str, ...]:
        """JVM options of a run that writes the archive at its exit."""
        if self.java.has_aot_cache:
            return (f"-XX:AOTCacheOutput={target}",)
        base = (f"-XX:SharedArchiveFile={self.base_file}",) if self._needs_own_base() else ()
        return (*base, f"-XX:ArchiveClassesAtExit={target}")

    def _stacked(self, file: Path) -> str:
        return f"{self.base_file}:{file}" if self._needs_own_base() else str(file)

    def make_base(self) -> None:
        """Write the base archive where the runtime lacks one; into our directory, the runtime's may be read-only."""
        if not self._needs_own_base() or self.base_file.is_file():
            return
        target = self._temporary(self.base_file)
        command = [str(self.java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={target}"]
        subprocess.run(command, capture_output=True, timeout=_DUMP_TIMEOUT, check=True)
        target.replace(self.base_file)

    def training_target(self) -> Path:
        """Where a training run writes; `publish` takes it from there."""
        return self._temporary(self.file)

    def publish(self, target: Path) -> None:
        """Put a finished archive in place and drop the oldest of other runtimes."""
        target.replace(self.file)
        archives = sorted(self.directory.glob("spark-*.*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in archives[_ARCHIVES_MAX:]:
            old.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove an archive that does no good."""
        self.file.unlink(missing_ok=True)

    @contextmanager
    def building(self) -> Iterator[bool]:
        """Hold the lock of this archive; yields False when another process is building it. Ends with the process."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=PRIVATE_MODE)
        with (self.directory / f"{self.key}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            for leftover in self.directory.glob(f".*{self.key}*.tmp*"):
                leftover.unlink(missing_ok=True)
            yield True

    def _temporary(self, file: Path) -> Path:
        return file.with_name(f".{file.name}.{os.getpid()}.tmp")


def spark_version() -> str:
    """pyspark's version, read without importing it."""
    for line in (spark_home() / "version.py").read_text().splitlines():
        if line.startswith("__version__"):
            return line.partition("=")[2].strip(" \"'")
    return "unknown"
