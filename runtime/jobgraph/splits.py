"""Splits of a vertex: how they are dealt out, and what each one is called where only its identity matters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")
NO_SPLIT = -1
"""In place of the number of a split: none is left."""
_NAME_LENGTH_MAX = 200
_DIGITS_MAX = 10


def share_of(splits: Sequence[T], subtask_index: int, parallelism: int) -> Sequence[T]:
    """What a subtask has of them: every P-th split, beginning with its own number."""
    return splits[subtask_index::parallelism]


def numbered_query(number: int, name: str) -> str:
    """What Spark calls the query of one split: of many in one session, no two have one name."""
    return f"{number}: {name}"


def query_number(called: str) -> int | None:
    """The inverse of `numbered_query`: the number of the split; None for the name of another query."""
    number, colon, _ = called.partition(":")
    return int(number) if colon and number.isascii() and number.isdigit() and len(number) < _DIGITS_MAX else None


def split_name(split: Any) -> str:
    """The canonical JSON of a split, or its digest where that is long: the same for equal splits only."""
    text = json.dumps(split, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text if len(text) <= _NAME_LENGTH_MAX else f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
