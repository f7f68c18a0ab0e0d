"""Puts files of jobs where their tasks find them: whole, under plain names, and never over another file."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from runtime.common.errors import InvalidInputError


def place(source: Path | bytes, target: Path) -> None:
    """Copy: user code may change its files, and the cache may lose its own. Raises InvalidInputError. Blocking."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, bytes):
        vacant(target).write_bytes(source)
        return
    building = target.with_name(f".{secrets.token_hex(8)}.building")  # which is no file that the job brings
    shutil.copyfile(source, building)
    building.rename(vacant(target))


def vacant(target: Path) -> Path:
    """The same path. Raises InvalidInputError where a file is there already."""
    if target.exists():
        raise twice(target)
    return target


def twice(target: Path) -> InvalidInputError:
    """The error of a job with two files of one name."""
    return InvalidInputError(f"the job brings two files named {target.name}")


def plain_name(name: str) -> str:
    """The same name. Raises InvalidInputError for one that leads elsewhere."""
    if not name or name in {".", ".."} or "/" in name or "\\" in name or "\0" in name:
        message = f"{name[:200]!r} is no plain file name"
        raise InvalidInputError(message)
    return name
