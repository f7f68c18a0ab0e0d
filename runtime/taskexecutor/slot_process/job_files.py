"""Files that a running task adds to its job (`addFile`, `addPyFile`, `addArchive`): they go to the job's directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import unquote, urlparse

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.slot_process import shared_files


def copy_into(directory: str, path: str, *, recursive: bool = False, is_shared: bool = False) -> Path:
    """Bring a file (plain path or file: URL) into the job's directory. Raises InvalidInputError for other schemes.

    `is_shared`: the group of the copy may do with it what its owner may.
    """
    parsed = urlparse(path)
    if parsed.scheme not in {"", "file"}:
        message = f"{path}: only local files can be added to a running job; list others in the job's files"
        raise InvalidInputError(message)
    source = Path(unquote(parsed.path) if parsed.scheme else path).resolve()
    target = Path(directory) / source.name
    if source.is_dir():
        if not recursive:
            message = f"{path} is a directory: add it with recursive=True"
            raise InvalidInputError(message)
        if source != target:
            shutil.copytree(source, target, dirs_exist_ok=True)
    elif source != target.resolve():
        target.unlink(missing_ok=True)
        shutil.copy2(source, target)
    if is_shared:
        shared_files.share(target)
    return target
