"""Splits of a vertex: how they are dealt out, and what each one is called where only its identity matters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")
_NAME_LENGTH_MAX = 200


def share_of(splits: Sequence[T], subtask_index: int, parallelism: int) -> Sequence[T]:
    """What a subtask has of them: every P-th split, beginning with its own number."""
    return splits[subtask_index::parallelism]


def split_name(split: Any) -> str:
    """The canonical JSON of a split, or its digest where that is long: the same for equal splits only."""
    text = json.dumps(split, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text if len(text) <= _NAME_LENGTH_MAX else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
