"""Which exchange directory is it? Equal for two TaskManagers that see the same one (R20).

Partitions go from one TaskManager to another through it: that it is not shared shall be found when the second one
registers, not when the first edge is read.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from runtime.common.entropy import Entropy

logger = logging.getLogger(__name__)

MARK = ".exchange-id"
_ID_BYTES_MAX = 64


def exchange_identity(url: str, entropy: Entropy) -> str:
    """The id that lies in the directory, made by the first TaskManager; a remote URL is one place for all.

    Blocking. "" where it cannot be told.
    """
    if "://" in url and not url.startswith("file://"):
        return url
    directory = Path(url.removeprefix("file://"))
    mark = directory / MARK
    draft = directory / f"{MARK}.{entropy.hex_id()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not mark.exists():
            draft.write_text(entropy.hex_id(), encoding="ascii")
            try:
                # The file is complete as soon as it is visible, and of several writers at the same time one succeeds.
                with suppress(FileExistsError):
                    mark.hardlink_to(draft)
            finally:
                draft.unlink()
        with mark.open(encoding="ascii", errors="replace") as file:
            return file.read(_ID_BYTES_MAX)
    except OSError as error:
        logger.warning("whether %s is shared cannot be told: %s", directory, error)
        return ""
