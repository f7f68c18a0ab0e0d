"""User code that takes what others need too, each kind bounded so that the machine survives. Ends after its seconds."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CHUNK = b"x" * (1 << 20)


def _rest(ctx: Any, begun: float) -> None:
    while time.monotonic() - begun < float(ctx.params["seconds"]) and not ctx.cancelled:
        time.sleep(0.05)


def processes(ctx: Any) -> int:
    """Processes that start processes, as many as params['count'] altogether, and not one more."""
    begun, alive = time.monotonic(), []
    sleeps = "import time; time.sleep(60)"
    for _ in range(int(ctx.params["count"])):
        if time.monotonic() - begun > float(ctx.params["seconds"]):
            break
        alive.append(subprocess.Popen([sys.executable, "-S", "-c", sleeps]))
    _rest(ctx, begun)
    for process in alive:
        process.kill()
    for process in alive:
        process.wait()
    return len(alive)


def descriptors(ctx: Any) -> int:
    """As many as this process may have."""
    begun = time.monotonic()
    opened: list[int] = []
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        while len(opened) < limit:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass  # that is what it wanted
    _rest(ctx, begun)
    for descriptor in opened:
        os.close(descriptor)
    return len(opened)


def disk(ctx: Any) -> int:
    """Writes params['mebibytes'] into its directory, over and over, and syncs."""
    begun, written = time.monotonic(), 0
    while time.monotonic() - begun < float(ctx.params["seconds"]):
        with Path("filler").open("wb") as file:
            for _ in range(int(ctx.params["mebibytes"])):
                file.write(CHUNK)
                written += 1
            os.fsync(file.fileno())
    return written


def log(ctx: Any) -> int:
    """A gigabyte a minute of standard output: 17 MiB in a second."""
    begun, written = time.monotonic(), 0
    line = "x" * 1023 + "\n"
    while (elapsed := time.monotonic() - begun) < float(ctx.params["seconds"]):
        while written < elapsed * 17 * 1024:
            sys.stdout.write(line)
            written += 1
        time.sleep(0.01)
    return written // 1024
