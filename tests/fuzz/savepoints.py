"""`_metadata` of savepoints, which anybody may have written who can write to their storage (R60)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from runtime.checkpoint.savepoint.savepoint_form import digest_of, parse_savepoint, savepoint_text
from runtime.common.errors import InvalidInputError
from runtime.common.json_text import parse_json
from tests.fuzz.surface import Surface

_SAMPLE = Path(__file__).parents[1] / "unit" / "checkpoint" / "savepoint_1.json"
_TOKENS = (b'"version": 1', b'"digest": "', b'"files": [', b'"path": "../', b'"batch_id": -1', b'"sha256": "')


def _begin() -> Callable[[bytes], object]:
    def feed(data: bytes) -> object:
        try:
            savepoint = parse_savepoint(data, "it")
        except InvalidInputError:
            savepoint = parse_savepoint(_signed(data), "it")
        assert parse_savepoint(savepoint_text(savepoint), "it") == savepoint
        return len(savepoint.queries)

    return feed


def _signed(data: bytes) -> bytes:
    """The same with a digest that fits, so that what is behind it is fed too."""
    try:
        body = parse_json(data)
    except ValueError:
        return data
    if not isinstance(body, dict):
        return data
    body.pop("digest", None)
    return json.dumps({**body, "digest": digest_of(body)}).encode()


def _seeds() -> Sequence[bytes]:
    return [_SAMPLE.read_bytes(), b"{}", b'{"version": 2}']


SURFACES = (Surface("savepoints", _begin, _seeds, (InvalidInputError,), tokens=_TOKENS),)
