"""The name of a TaskManager, which outlives its process (D-058). Its log directory has this name.

The incarnation is another id, one for each life: tokens, keys and streams carry it.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from runtime.common.ids import Incarnation

logger = logging.getLogger(__name__)

_DRAWN = re.compile(r"[0-9a-f]{8}")


def kept_resource_id(file: Path | None, host: str, incarnation: Incarnation) -> str:
    """`<host>-<8 hex>`: the name in the file if it is of this host, else a new one, which is written to the file.

    Without a file, and when it cannot be written, the name is for this life only.
    """
    fresh = f"{host}-{incarnation[:8]}"
    if file is None:
        return fresh
    try:
        kept = _read(file)
        if kept.startswith(f"{host}-") and _DRAWN.fullmatch(kept.removeprefix(f"{host}-")):
            return kept
        file.parent.mkdir(parents=True, exist_ok=True)
        building = file.with_suffix(".building")
        building.write_text(f"{fresh}\n", encoding="utf-8")
        building.replace(file)
    except OSError as error:
        logger.warning("this TaskManager has a new name, because %s keeps none: %s", file, error)
    return fresh


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""
