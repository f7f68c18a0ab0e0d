"""The process that unpacks the archives of one job, and ends then (R42).

Archives are hostile bytes, so this process has small limits, holds nothing, and is told nothing but paths and limits.
Where slots have users, the process opens the archives as root, and becomes a user with a number of its own before it
reads one.

The process answers with one line of JSON; without an answer, its exit code tells the cause. Its files count only behind
that answer: otherwise the TaskManager deletes the directory.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runtime.common.errors import InvalidInputError
from runtime.system.linux import die_with_parent, refuse_new_privileges, set_process_name
from runtime.taskexecutor.unpacking.archive import unpack
from runtime.taskexecutor.unpacking.limits import Budget, UnpackLimits
from runtime.taskexecutor.unpacking.messages import DENIED, DONE, REFUSED, ArchiveToUnpack, UnpackAnswer

_NICENESS = 5
_OOM_SCORE = "600"
_OPEN_FILES_MAX = 64
_PROCESSES_MAX = 16
"""Threads count too: of libraries. It has no use for another process."""
_ARCHIVE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE = 0o077
_GRACE_SECONDS = 5


def _bound(limits: UnpackLimits, archives: int) -> None:
    """Set the limits of this process: from here on hostile bytes may do to it what they like, within these."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    files = _OPEN_FILES_MAX + archives
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds_max, limits.cpu_seconds_max + _GRACE_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes_max, limits.memory_bytes_max))
    os.nice(_NICENESS)
    Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE, encoding="ascii")


def _become(user: int, parent: int) -> None:
    """Give up all rights but those of `user`, of which nothing else runs; for good."""
    resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES_MAX, _PROCESSES_MAX))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    die_with_parent(parent)  # the kernel has taken it back with the rights
    os.umask(_PRIVATE)


def _opened(archives: Sequence[ArchiveToUnpack], user: int | None) -> Sequence[Path | int]:
    """Open the archives as root, which alone may read them, before this process becomes `user`."""
    return [Path(one.archive) if user is None else os.open(one.archive, _ARCHIVE) for one in archives]


def _answer(request: dict[str, Any], limits: UnpackLimits) -> UnpackAnswer:
    archives = [ArchiveToUnpack(**fields) for fields in request["archives"]]
    budget, user = Budget(limits), request["user"]
    try:
        _bound(limits, len(archives))
        opened = _opened(archives, user)
        if user is not None:
            _become(user, request["parent"])
        for one, source in zip(archives, opened, strict=True):
            unpack(source, one.name, Path(one.root), budget, is_wheel=one.is_wheel)
    except InvalidInputError as error:
        return UnpackAnswer(REFUSED, str(error))
    except OSError as error:
        return UnpackAnswer(DENIED, error.strerror or str(error), error.errno or 0)
    return UnpackAnswer(DONE)


def main() -> None:
    """Read the request, unpack, answer."""
    request = json.loads(sys.stdin.buffer.read())
    die_with_parent(request["parent"])
    refuse_new_privileges()
    set_process_name("unpack")
    answer = _answer(request, UnpackLimits(**request["limits"]))
    sys.stdout.write(json.dumps(asdict(answer)))
    sys.stdout.flush()
