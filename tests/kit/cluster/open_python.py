"""A cluster whose slots have users of their own, also where Python lies in a directory that others cannot enter."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.kit.cluster.script_cluster import ROOT, ScriptCluster

ENTER = """
set -e
mount --make-rprivate /
number=0
while read -r opened; do
    mkdir -p "$HIDDEN.$number"
    mount --bind "$opened" "$HIDDEN.$number"
    number=$((number + 1))
done <<< "$OPENED"
while read -r closed; do mount -t tmpfs -o mode=755 tmpfs "$closed"; done <<< "$CLOSED"
number=0
while read -r opened; do
    mkdir -p "$opened"
    mount --bind "$HIDDEN.$number" "$opened"
    number=$((number + 1))
done <<< "$OPENED"
exec "$@"
"""
"""In a mount namespace of its own a closed directory is an empty one with what is to be open in it."""


def closed_above(path: Path) -> Path | None:
    """The first directory above it that other users cannot enter."""
    return next((one for one in reversed(path.parents) if not one.stat().st_mode & stat.S_IXOTH), None)


def to_open() -> dict[Path, Path]:
    """Python and this installation, as far as others cannot enter them, and the directory that is closed."""
    needed = (Path(sys.base_prefix).resolve(), ROOT)
    return {path: closed for path in needed if (closed := closed_above(path)) is not None}


@cache
def why_not() -> str:
    """Why no cluster of this kind can be started here, "" if one can."""
    if os.geteuid() != 0:
        return "users of their own for slots need root"
    if not to_open():
        return ""
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"other users cannot enter {[*to_open().values()]}"


class OpenPythonCluster(ScriptCluster):
    """Its run directory can be entered, and so can Python. Its links are encrypted, as slots with users want it."""

    def __init__(self, options: Mapping[str, str], *, job_masters: int) -> None:
        super().__init__(options, job_masters=job_masters)
        self.encrypt()
        self.run.chmod(0o711)

    def script(
        self, name: str, *arguments: str, timeout: float = 240, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """As ever, where other users find the interpreter."""
        opened = to_open()
        if not opened or name == "flinklike":
            return super().script(name, *arguments, timeout=timeout, cwd=cwd)
        command = ["unshare", "-m", "bash", "-c", ENTER, "enter", str(ROOT / "bin" / name), *arguments]
        names = {
            "OPENED": "\n".join(map(str, opened)),
            "CLOSED": "\n".join(map(str, dict.fromkeys(opened.values()))),
            "HIDDEN": str(self.run / "opened"),
        }
        return subprocess.run(
            command,
            env={**self.environment, **names},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            cwd=cwd,
        )
