"""Names below a base that are no outputs: markers, scratch, and the hidden work of this and other jobs."""

from __future__ import annotations

import hashlib
import os

HIDDEN_ATTEMPT = ".attempt-"
HIDDEN_COMMIT = ".commit-"
SUCCESS = "_SUCCESS"
TEMPORARY = "_temporary"

_MARKERS = frozenset({SUCCESS, f".{SUCCESS}.crc"})


def digest_of(name: str) -> str:
    """A digest of a name, for a hidden file beside it: the name itself may be as long as names can be."""
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


def is_output(name: str) -> bool:
    """False for the markers and the scratch of Spark's committer, which mean nothing outside of their directory."""
    parts = name.split("/")
    return parts[-1] not in _MARKERS and TEMPORARY not in parts


def is_inner_marker(name: str) -> bool:
    """True for a marker of a directory within the base: another job had that directory for its own base."""
    *directories, last = name.split("/")
    return bool(directories) and last in _MARKERS and TEMPORARY not in directories


def is_hidden_work(part: str) -> bool:
    """True for a directory or file in which a job works; also in a base that lies within another one."""
    return part.startswith((HIDDEN_ATTEMPT, HIDDEN_COMMIT))
