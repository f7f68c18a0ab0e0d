"""The run directory before a start: it exists, and only its user may read it (R41)."""

from __future__ import annotations

from typing import TextIO

from runtime.config.layout import Layout
from runtime.entrypoint.control.pending import DaemonError
from runtime.security.file_mask import make_private


def prepare_run_directory(layout: Layout, out: TextIO) -> None:
    """Make the directory, or say that its mode was changed. Raises DaemonError when it cannot be private."""
    try:
        mended = make_private(layout.run)
    except OSError as error:
        message = f"the run directory cannot be used: {error}"
        raise DaemonError(message) from error
    if mended:
        out.write(f"[INFO] {mended}.\n")
