"""The ready file, which tells the script that started this process that it serves: one JSON file, written at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from runtime.entrypoint.control.daemon import READY_FILE_VARIABLE


def report_ready(environment: Mapping[str, str], facts: Mapping[str, str]) -> None:
    """Write `facts` to the file that FLINKLIKE_READY_FILE names; nothing if it names none."""
    name = environment.get(READY_FILE_VARIABLE)
    if not name:
        return
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.part")
    draft.write_text(json.dumps(dict(facts)), encoding="utf-8")
    draft.replace(path)


def forget_ready(environment: Mapping[str, str]) -> None:
    """Delete that file: the process ends by itself, and no script will do so."""
    name = environment.get(READY_FILE_VARIABLE)
    if name:
        Path(name).unlink(missing_ok=True)
