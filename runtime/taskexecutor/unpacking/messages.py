"""One request of the TaskManager to the process that unpacks archives, and one answer, as JSON."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from runtime.taskexecutor.unpacking.limits import UnpackLimits

DONE, REFUSED, DENIED = "done", "refused", "denied"


@dataclass(frozen=True, slots=True)
class ArchiveToUnpack:
    """`root` is made for it, unless it is there and empty. `name` tells its kind, unless it is a wheel."""

    archive: str
    name: str
    root: str
    is_wheel: bool = False


@dataclass(frozen=True, slots=True)
class UnpackAnswer:
    """REFUSED: the archives are to blame. DENIED: the host, with its `errno`."""

    outcome: str
    message: str = ""
    errno: int = 0


def request_line(archives: tuple[ArchiveToUnpack, ...], limits: UnpackLimits, user: int | None = None) -> bytes:
    """The request as a line. `user`: the user that the process becomes, and the number of its group."""
    request: dict[str, Any] = {"parent": os.getpid(), "limits": asdict(limits), "user": user}
    request["archives"] = [asdict(one) for one in archives]
    return json.dumps(request).encode()


def parse_answer(line: bytes) -> UnpackAnswer:
    """The answer that the process wrote. Raises ValueError and TypeError for bytes that are no answer."""
    return UnpackAnswer(**json.loads(line))
