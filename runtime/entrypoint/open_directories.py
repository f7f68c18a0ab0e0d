"""Warnings about directories outside of the run directory that other users can read (R41), perhaps on purpose."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options.checkpointing import CHECKPOINTS_DIR
from runtime.config.options.high_availability import HA_STORAGE_DIR
from runtime.config.options.taskmanager import EXCHANGE_DIR
from runtime.security.file_mask import SHOWS


def open_directories(configuration: Configuration, layout: Layout) -> Iterator[str]:
    """A warning for each of storage, exchange and checkpoint directory that other users can read."""
    urls = (
        (HA_STORAGE_DIR, layout.storage_url(configuration)),
        (EXCHANGE_DIR, layout.exchange_url(configuration)),
        (CHECKPOINTS_DIR, layout.checkpoints_url(configuration)),
    )
    for option, url in urls:
        local = url.removeprefix("file://")
        path = Path(local)
        if "://" in local or path.is_relative_to(layout.run):
            continue
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue  # the directory is made later, for this user only, or its user reports the error
        if mode & SHOWS:
            yield f"others can read {path} ({option.key}, mode {mode:04o}), where jobs have their data: chmod 700 it"
