"""Programs of jobs that use short-lived credentials."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path
from typing import Any

import fsspec

from runtime.jobgraph.task_credentials import task_credentials


def use_until_gate(ctx: Any) -> dict[str, int]:
    """Ask the service again and again, each time with the newest token, until the gate is there."""
    requests = 0
    tokens: set[str] = set()
    while not Path(ctx.params["gate"]).exists():
        token = ctx.credentials("vault")["token"]
        assert task_credentials("vault").keys() == {"token"}
        request = urllib.request.Request(ctx.params["url"] + "/data", headers={"authorization": token})
        urllib.request.urlopen(request, timeout=60).close()
        requests, tokens = requests + 1, tokens | {token}
        time.sleep(0.1)
    return {"requests": requests, "tokens": len(tokens)}


def write_with_fsspec(ctx: Any) -> None:
    """So many files, below whatever URL."""
    directory = ctx.output_path(ctx.params["base"], mode="overwrite")
    files, root = fsspec.core.url_to_fs(directory)
    files.makedirs(root)
    for number in range(ctx.params["files"]):
        with fsspec.open(f"{directory}/part-{number}", "w") as file:
            file.write("row\n")
