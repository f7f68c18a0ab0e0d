"""The labels of processes that a driver starts (R65): `w-<12 hex>`, and the profile behind it, if it has one (D-141).

A label outlives the process that gave it, so the next leader knows the profile of what it finds.
"""

from __future__ import annotations

import re

WORKER_ID_PREFIX = "w-"
PROFILE_PATTERN = r"[a-z][a-z0-9_-]{0,29}"
WORKER_ID_PATTERN = rf"{WORKER_ID_PREFIX}[0-9a-f]{{12}}(-{PROFILE_PATTERN})?"
_WORKER_ID = re.compile(WORKER_ID_PATTERN)
DEFAULT_PROFILE_NAME = "default"
"""How people see the profile without a name, which is the cluster's own configuration."""


def is_worker_id(text: str) -> bool:
    """True for a label that a ResourceManager gives. What others say of what they run may be anything (R52)."""
    return _WORKER_ID.fullmatch(text) is not None


def new_worker_id(random_hex: str) -> str:
    """A label without a profile."""
    return WORKER_ID_PREFIX + random_hex[:12]


def with_profile(worker_id: str, profile: str) -> str:
    """The label of a worker with this profile; "" is the cluster's own configuration."""
    return f"{worker_id}-{profile}" if profile else worker_id


def shown_profile(worker_id: str) -> str:
    """The profile of what a driver has started, for people; "" for what it has not."""
    return (profile_of(worker_id) or DEFAULT_PROFILE_NAME) if worker_id else ""


def profile_of(worker_id: str) -> str:
    """The profile of a worker, "" for the cluster's own configuration, and for what no driver has started."""
    parts = worker_id.split("-", 2)
    return parts[2] if len(parts) > 2 else ""
